//! C3 and C5: the id is given up before the lease, however a process ends; what comes after a close is a no-op.

use tenure_actors::rules::{Patience, ProcessKind};
use tenure_actors::{CommitError, EventKind, ExitReason, ProcessHandle, ProcessSpec, ReserveError};

use crate::bench::{self, Order, Plain, Worker, request, terminal_steps};
use crate::kinds::{KINDS, begin, process};

/// Brings a process to its end in one way.
type End = fn(&ProcessHandle);

/// Makes a process that ends by itself.
type Make = fn() -> ProcessSpec;

fn tell(process: &ProcessHandle, order: Order) {
    process.actor::<Order>().unwrap().cast(order).unwrap();
}

#[tokio::test(start_paused = true)]
async fn sup_c03_an_actor_gives_up_its_id_before_its_lease_however_it_ends() {
    let ends: [End; 5] = [
        |process| tell(process, Order::Complete),
        |process| tell(process, Order::Fail),
        |process| tell(process, Order::Panic),
        |process| process.actor::<Order>().unwrap().kill(),
        |process| {
            assert!(process.remove());
            tell(process, Order::Complete);
        },
    ];
    for end in ends {
        let application = bench::open().await;
        let recorder = application.journal().record();
        let process = begin(&application, Worker::spec()).await;
        end(&process);
        let exit = process.ended().await;
        assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"], "{exit}");
        bench::close(&application).await;
        assert_eq!(terminal_steps(&recorder, "a").len(), 2, "and neither again");
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c03_a_function_gives_up_its_id_before_its_lease_however_it_ends() {
    let ends: [(&str, Make); 4] = [
        ("completed", || ProcessSpec::function("p", |_| async { Ok(()) })),
        ("failed: told to fail", || ProcessSpec::function("p", |_| async { Err("told to fail".into()) })),
        ("panicked: told to panic", || ProcessSpec::function("p", |_| async { panic!("told to panic") })),
        ("completed", || {
            ProcessSpec::function("p", |context| async move {
                assert!(context.remove_self());
                Ok(())
            })
        }),
    ];
    for (wanted, make) in ends {
        let application = bench::open().await;
        let recorder = application.journal().record();
        let exit = begin(&application, make()).await.ended().await;
        assert_eq!(exit.to_string(), wanted);
        assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"], "{wanted}");
        bench::close(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c03_an_object_that_removes_itself_gives_up_its_id_before_its_lease() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    let object = Plain::new();
    let process = begin(&application, object.spec()).await;
    assert!(object.context().remove_self());
    let exit = process.ended().await;
    assert!(matches!(exit, ExitReason::Removed), "{exit}");
    assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"]);
    assert_eq!(object.counts(), (1, 0), "close is not called");
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c03_a_closed_process_gives_up_its_id_before_its_lease() {
    for kind in KINDS {
        let application = bench::open().await;
        let recorder = application.journal().record();
        let process = begin(&application, process(kind)).await;
        assert!(matches!(process.close().await, ExitReason::Stopped));
        assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"], "{kind:?}");
        bench::close(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c03_a_killed_process_gives_up_its_id_before_its_lease() {
    for kind in [ProcessKind::Function, ProcessKind::Actor] {
        let application = bench::open().await;
        let recorder = application.journal().record();
        let spec = if kind == ProcessKind::Function { bench::deaf() } else { Worker::spec() };
        let process = begin(&application, spec.patience(Patience::Time(10))).await;
        if kind == ProcessKind::Actor {
            tell(&process, Order::Hang);
        }
        let exit = process.close().await;
        assert!(matches!(exit, ExitReason::Killed(_)), "{kind:?} {exit}");
        assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"], "{kind:?}");
        bench::close(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c03_a_replaced_process_gives_up_its_id_before_its_lease() {
    for kind in KINDS {
        let application = bench::open().await;
        let recorder = application.journal().record();
        begin(&application, process(kind)).await;
        let report = application.replace().await.unwrap();
        bench::assert_balanced(&report);
        assert_eq!(report.closed, 1, "{kind:?}");
        assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"], "{kind:?}");
        begin(&application, process(kind)).await;
        bench::close(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c03_every_lease_that_a_process_holds_is_released_after_its_id() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    let process = begin(&application, bench::waiting()).await;
    let object = Plain::new();
    application.current().registry().start("b", object.spec()).await.unwrap();
    let second = application.current().operations().reserve(request("b", &["k2"])).await.unwrap();
    object.context().hold(second);
    process.close().await;
    assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"]);
    assert!(application.current().operations().get("b").is_some(), "another's lease stays");
    object.context().handle().close().await;
    assert_eq!(terminal_steps(&recorder, "b"), ["unbound", "released"]);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c05_what_a_worker_does_after_the_close_is_a_no_op() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    let object = Plain::new();
    begin(&application, object.spec()).await;
    let generation = application.current();
    let own = generation.operations().reserve(request("own", &["own"])).await.unwrap();
    let report = bench::close(&application).await;
    assert_eq!((report.closed, report.failed.len()), (1, 0));
    let seen = recorder.events().len();

    let context = object.context();
    assert!(!context.remove_self());
    assert!(!context.handle().remove());
    assert!(!generation.registry().remove("a", &context.handle().identity()));
    assert!(!own.release());
    context.hold(own);
    let late = context.commit(|| panic!("it has no authority"));
    assert!(matches!(late, Err::<(), _>(CommitError::AuthorityRevoked { current: None, .. })));

    let after: Vec<_> = recorder.events()[seen..].iter().map(|event| event.kind.verb().to_string()).collect();
    assert_eq!(after, ["submit", "drop-late"], "the refused commit is told, nothing else");
    assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"]);
    let failed =
        |event: &std::sync::Arc<tenure_actors::Event>| matches!(event.kind, EventKind::Failed { .. });
    assert!(!recorder.events().iter().any(failed), "no error is surfaced");
}

#[tokio::test(start_paused = true)]
async fn sup_c05_a_lease_outside_of_any_process_is_cleared_after_the_processes_ended() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    begin(&application, bench::waiting()).await;
    let outside = application.current().operations().reserve(request("outside", &["k2"])).await.unwrap();
    bench::close(&application).await;

    assert!(!outside.is_held());
    let cleared = recorder.events().iter().rposition(|event| {
        matches!(&event.kind, EventKind::Released { operation, cleared: true } if operation.as_str() == "outside")
    });
    let ended = recorder.events().iter().position(|event| event.actor.to_string() == "waiting#1");
    assert!(ended.unwrap() < cleared.unwrap());
    assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"], "a's own was released, not cleared");
}

#[tokio::test(start_paused = true)]
async fn sup_c05_old_work_does_not_touch_the_operation_and_process_of_the_same_id_in_the_next_generation() {
    let application = bench::open().await;
    let old = Plain::new();
    begin(&application, old.spec()).await;
    bench::assert_balanced(&application.replace().await.unwrap());
    let new = Plain::new();
    let process = begin(&application, new.spec()).await;

    assert!(!old.context().remove_self());
    assert!(!application.current().registry().remove("a", &old.context().handle().identity()));
    old.context().handle().close().await;
    assert!(process.exit().is_none());
    assert_eq!(new.context().commit(|| 7), Ok(7));
    let busy = application.current().operations().reserve(request("b", &["k"])).await;
    assert!(matches!(busy, Err(ReserveError::Busy(_))));
    bench::close(&application).await;
}
