//! C4: a worker that crashes at any step of its end; the remaining steps happen exactly once.
//!
//! The steps are those of C3: commit the result, publish the notice, give up the id, release the lease.

use std::sync::Arc;

use tenure_actors::rules::Patience;
use tenure_actors::{OperationLease, ProcessContext, ProcessResult, ProcessSpec};

use crate::bench::{self, Count, Gate, Plain, request, terminal_steps};
use crate::kinds::{begin, reserve};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Nothing,
    Committed,
    Noticed,
    Removed,
    Released,
}

const STEPS: [Step; 5] = [Step::Nothing, Step::Committed, Step::Noticed, Step::Removed, Step::Released];

#[derive(Debug, Clone, Copy)]
enum Crash {
    Error,
    Panic,
    Kill,
}

const CRASHES: [Crash; 3] = [Crash::Error, Crash::Panic, Crash::Kill];

/// What can be seen of the work from outside.
#[derive(Clone)]
struct Seen {
    results: Count,
    notices: Count,
    arrived: Gate,
}

impl Seen {
    fn new() -> Self {
        Self { results: Count::new(), notices: Count::new(), arrived: Gate::new() }
    }
}

/// Goes through the steps up to `last`, then crashes.
async fn work(
    context: ProcessContext,
    lease: Option<Arc<OperationLease>>,
    seen: Seen,
    last: Step,
    crash: Crash,
) -> ProcessResult {
    if last >= Step::Committed {
        context.commit(|| seen.results.add())?;
    }
    if last >= Step::Noticed {
        seen.notices.add();
    }
    if last >= Step::Removed {
        assert!(context.remove_self());
    }
    if last >= Step::Released
        && let Some(lease) = lease
    {
        assert!(lease.release());
    }
    seen.arrived.open();
    match crash {
        Crash::Error => Err("told to fail".into()),
        Crash::Panic => panic!("told to panic"),
        Crash::Kill => std::future::pending().await,
    }
}

async fn check(last: Step, crash: Crash, with_process: bool) {
    let application = bench::open().await;
    let recorder = application.journal().record();
    let (generation, seen) = (application.current(), Seen::new());
    let lease = reserve(&generation).await;
    let (with, own) = if with_process { (Some(lease), None) } else { (None, Some(Arc::new(lease))) };
    let told = seen.clone();
    let spec = ProcessSpec::function("p", move |context| work(context, own, told, last, crash));
    let spec = with.into_iter().fold(spec.patience(Patience::Kill), ProcessSpec::holding);
    let process = generation.registry().start("a", spec).await.unwrap();
    seen.arrived.passed().await;
    if matches!(crash, Crash::Kill) {
        process.close().await;
    }
    let exit = process.ended().await;

    let case = format!("{last:?} {crash:?} with the process {with_process}: {exit}");
    assert!(exit.is_abnormal(), "{case}");
    assert_eq!(seen.results.get(), usize::from(last >= Step::Committed), "{case}");
    assert_eq!(seen.notices.get(), usize::from(last >= Step::Noticed), "{case}");
    assert!(
        generation.registry().lookup("a").is_none() && generation.operations().get("a").is_none(),
        "{case}"
    );
    let mut steps = terminal_steps(&recorder, "a");
    if !with_process && last < Step::Removed {
        // Its own variable, dropped with it: once all the same.
        steps.reverse();
    }
    assert_eq!(steps, ["unbound", "released"], "{case}");
    begin(&application, bench::waiting()).await;
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn sup_c04_a_crash_at_any_step_leaves_the_rest_to_supervision_exactly_once() {
    for last in STEPS {
        for crash in CRASHES {
            check(last, crash, true).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c04_a_lease_that_the_worker_keeps_itself_is_released_exactly_once_too() {
    for last in STEPS {
        for crash in CRASHES {
            check(last, crash, false).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c04_an_object_closed_between_its_steps_ends_exactly_once() {
    for removed in [false, true] {
        let application = bench::open().await;
        let recorder = application.journal().record();
        let object = Plain::new();
        let process = begin(&application, object.spec()).await;
        object.context().commit(|| ()).unwrap();
        if removed {
            assert!(object.context().remove_self());
        }
        process.close().await;
        assert!(!object.context().remove_self());
        assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"], "removed {removed}");
        bench::close(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c04_a_generation_that_fails_between_the_steps_finishes_them_exactly_once() {
    for last in STEPS {
        let application = bench::open().await;
        let recorder = application.journal().record();
        let (generation, seen) = (application.current(), Seen::new());
        let told = seen.clone();
        let spec = ProcessSpec::function("p", move |context| work(context, None, told, last, Crash::Kill));
        begin(&application, spec.patience(Patience::Time(10))).await;
        seen.arrived.passed().await;
        tenure_actors::testkit::fail_registry(&generation, "boom");
        bench::assert_balanced(&generation.closed().await.unwrap());
        assert_eq!(terminal_steps(&recorder, "a"), ["unbound", "released"], "{last:?}");
        bench::close(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sup_c04_operations_that_fail_under_a_process_leave_nothing_held_and_nothing_bound() {
    let application = bench::open().await;
    let generation = application.current();
    begin(&application, bench::waiting()).await;
    tenure_actors::testkit::fail_operations(&generation, "boom");
    bench::assert_balanced(&generation.closed().await.unwrap());
    assert!(generation.registry().lookup("a").is_none() && generation.operations().get("a").is_none());
    bench::close(&application).await;
}

/// Leaves a second lease with a process at the very moment at which its first is released.
#[tokio::test(start_paused = true)]
async fn sup_c04_a_lease_left_with_a_process_while_it_ends_is_released_too() {
    let application = bench::open().await;
    let object = Plain::new();
    let process = begin(&application, object.spec()).await;
    let second = application.current().operations().reserve(request("b", &["k2"])).await.unwrap();
    let context = object.context().clone();
    let second = parking_lot::Mutex::new(Some(second));
    let _tracing = crate::observing::on_event(move |text| {
        if text.contains("verb=release")
            && let Some(second) = second.lock().take()
        {
            context.hold(second);
        }
    });
    process.close().await;
    assert!(process.exit().is_some());
    assert!(application.current().operations().get("b").is_none(), "it leaked");
    bench::close(&application).await;
}
