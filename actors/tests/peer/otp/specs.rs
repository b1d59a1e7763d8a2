//! Starting and ending, specs and what is read back of them.

use std::sync::Arc;

use tenure_actors::rules::{
    Backoff, BackoffSettings, ChildPolicy, Intensity, InvalidSetting, Patience, Restart, Strategy,
};
use tenure_actors::{
    Application, GenerationSpec, OpenError, ServiceError, ServiceSpec, ServiceState, StartError, StartFailure,
};

use crate::kit::{Kind, Part, Plot, Start, after_ms, limited, soon};

#[tokio::test(start_paused = true)]
async fn peer_os_01_a_generation_without_services_opens_and_closes() {
    let world = Plot::new(Strategy::OneForOne).open().await;
    assert!(world.services().list().is_empty() && world.generation().is_open());
    let report = world.end().await;
    assert_eq!((report.started, report.ended, report.closed), (0, 0, 0));
}

/// peer: OS-10, PC-19
#[tokio::test(start_paused = true)]
async fn peer_os_10_a_start_that_fails_is_an_error_with_its_cause_and_keeps_no_spec() {
    for (start, failure, text) in [
        (Start::Fails, StartFailure::Error, "no start"),
        (Start::Panics, StartFailure::Panic, "panicked: start panics"),
    ] {
        for kind in [Kind::Object, Kind::Actor] {
            let mut plot = Plot::new(Strategy::OneForOne);
            let a = plot.part("a", kind);
            let world = plot.open().await;
            a.next_starts([start]);
            let Err(ServiceError::StartFailed {
                source: StartError::StartFailed { kind, source, .. }, ..
            }) = world.services().start(a.spec()).await
            else {
                panic!("expected a failed start");
            };
            assert_eq!((kind, source.to_string().as_str()), (failure, text));
            assert!(world.services().list().is_empty());
            world.services().start(a.spec()).await.expect("the name is free");
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn peer_os_11_a_stopped_service_whose_manual_restart_fails_stays_listed_without_a_process() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let world = plot.with(a.spec()).open().await;
    world.services().terminate("a").await.unwrap();
    a.next_starts([Start::Fails]);
    let failed = world.services().restart("a").await;
    assert!(matches!(failed, Err(ServiceError::StartFailed { .. })), "{failed:?}");
    assert_eq!(world.cast(), ["a stopped"]);
    assert_eq!(world.services().restart("a").await.unwrap().name(), "a#3");
    world.end().await;
}

/// peer: OS-13, OS-91
#[tokio::test(start_paused = true)]
async fn peer_os_13_defaults_are_read_back_and_an_unknown_name_is_not_found() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let (defaults, part) = (ServiceSpec::new("defaults", a_function), a.spec().backoff(after_ms(60_000)));
    let world = plot.with(defaults).with(part).open().await;
    let read = world.get("defaults").unwrap();
    assert_eq!(read.policy, ChildPolicy::default());
    assert_eq!((read.policy.restart, read.policy.intensity), (Restart::Permanent, Intensity::Unlimited));
    assert_eq!(read.patience, Patience::Time(5_000));
    assert_eq!((read.state, read.incarnation.as_deref()), (ServiceState::Running, Some("defaults#1")));
    assert!(world.get("nobody").is_none());
    assert!(matches!(world.services().restart("nobody").await, Err(ServiceError::NotFound { .. })));
    assert!(matches!(world.services().terminate("nobody").await, Err(ServiceError::NotFound { .. })));
    assert!(matches!(world.services().delete("nobody").await, Err(ServiceError::NotFound { .. })));
    a.crash();
    world.until_state("a", ServiceState::Restarting).await;
    assert!(world.get("a").unwrap().process.is_none(), "one that restarts is found, and has no process");
    world.end().await;
}

fn a_function() -> tenure_actors::ProcessSpec {
    tenure_actors::ProcessSpec::function("role", |context| async move {
        context.cancelled().await;
        Ok(())
    })
}

/// peer: OS-15, PB-41
#[tokio::test(start_paused = true)]
async fn peer_os_15_a_faulty_spec_refuses_the_opening_and_names_the_fault() {
    let named = |name: &str| ServiceSpec::new(name, a_function);
    for (services, fault) in [
        (vec![named("")], "is empty"),
        (vec![named(&"x".repeat(513))], "has 513 bytes"),
        (vec![named("a\nb")], "control character at byte 1"),
        (vec![named("a"), named("b"), named("a")], "service \"a\" is given twice"),
        (vec![named("a"), named("b"), named("c"), named("d")], "4 services are given, expected at most 3"),
    ] {
        let mut spec = GenerationSpec { services, ..GenerationSpec::default() };
        spec.limits.max_services = Some(3);
        let refused = Application::open(spec).await.map(drop);
        let told = refused.as_ref().map_err(OpenError::to_string);
        assert!(matches!(&told, Err(told) if told.contains(fault)), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn peer_os_24_a_dynamic_child_is_ended_by_its_handle_twice_is_fine_and_a_foreign_one_stays() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let (a, b) = (plot.part("a", Kind::Function), plot.part("b", Kind::Function));
    let world = plot.open().await;
    let registry = world.generation().registry();
    let own = registry.start("own", a.process()).await.unwrap();
    let foreign = registry.start("foreign", b.process()).await.unwrap();
    assert_eq!(own.close().await.to_string(), "stopped (graceful)");
    assert_eq!(own.close().await.to_string(), "stopped (graceful)");
    assert!(!registry.remove("own", &own.identity()), "not found");
    assert!(!registry.remove("own", &foreign.identity()) && !registry.remove("foreign", &own.identity()));
    assert!(foreign.exit().is_none() && registry.count() == 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_os_25_every_invalid_field_is_refused_by_name_and_every_valid_combination_passes() {
    let world = Plot::new(Strategy::OneForOne).open().await;
    let services = world.services();
    for name in ["", "a\tb", &"x".repeat(513)] {
        let refused = services.start(ServiceSpec::new(name, a_function)).await;
        assert!(matches!(&refused, Err(ServiceError::Invalid(_))), "{refused:?}");
    }
    let mut started = 0;
    for restart in [Restart::Permanent, Restart::Transient, Restart::Temporary] {
        for patience in [Patience::Kill, soon(0), soon(1), Patience::Time(u64::MAX), Patience::Unlimited] {
            for (intensity, backoff) in
                [(limited(0, 1), Backoff::none()), (Intensity::Unlimited, Backoff::default())]
            {
                let spec = ServiceSpec::new(format!("s{started}"), a_function)
                    .restart(restart)
                    .patience(patience)
                    .intensity(intensity)
                    .backoff(backoff);
                services.start(spec).await.unwrap();
                started += 1;
            }
        }
    }
    let duplicate = services.start(ServiceSpec::new("s0", a_function)).await;
    let Err(ServiceError::AlreadyExists { name, state }) = duplicate else {
        panic!("expected it to be taken, got {duplicate:?}");
    };
    assert_eq!((&*name, state), ("s0", ServiceState::Running));
    assert_eq!(services.list().len(), started);
    world.end().await;
}

/// peer: OS-27, OS-48
#[tokio::test(start_paused = true)]
async fn peer_os_27_what_a_start_gives_reaches_who_started_it_and_is_made_anew_by_a_restart() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Actor);
    let world = plot.open().await;
    let first = world.services().start(a.spec()).await.unwrap();
    let given = first.actor::<()>().expect("the actor that was started");
    a.crash();
    world.until_running("a#2").await;
    let second = world.get("a").unwrap().process.unwrap().actor::<()>().unwrap();
    assert_ne!(given.get_id(), second.get_id());
    world.services().terminate("a").await.unwrap();
    let third = world.services().restart("a").await.unwrap().actor::<()>().unwrap();
    assert_ne!(second.get_id(), third.get_id());
    world.end().await;
}

/// peer: OS-28, ED-05
#[test]
fn peer_os_28_flags_out_of_range_are_refused_by_name() {
    // What is negative, unknown or missing does not compile; unlimited intensity is allowed here.
    let field = |refused: Result<(), InvalidSetting>| refused.unwrap_err().to_string();
    assert!(field(Intensity::limited(3, 0).map(drop)).contains("period_ms"));
    let backoff = |change: fn(&mut BackoffSettings)| {
        let mut settings = BackoffSettings::default();
        change(&mut settings);
        field(Backoff::new(settings).map(drop))
    };
    assert!(backoff(|settings| settings.min_ms = 40_000).contains("min_ms"));
    assert!(backoff(|settings| settings.factor = 0.5).contains("factor"));
    assert!(backoff(|settings| settings.jitter = 1.5).contains("jitter"));
}

/// peer: OS-50, OS-74
#[tokio::test(start_paused = true)]
async fn peer_os_74_what_a_temporary_service_was_made_of_is_dropped_with_it_under_each_strategy() {
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        let mut plot = Plot::new(strategy);
        let (a, b) = (plot.part("a", Kind::Function), plot.part("b", Kind::Function));
        let world = plot.open().await;
        let (kept, dropped) = (Arc::new(()), Arc::new(()));
        let holding = |part: &Part, argument: &Arc<()>| {
            let (part, argument) = (part.clone(), Arc::clone(argument));
            ServiceSpec::new(part.name().to_owned(), move || {
                let _ = &argument;
                part.process()
            })
        };
        world.services().start(holding(&a, &kept).restart(Restart::Transient)).await.unwrap();
        world.services().start(holding(&b, &dropped).restart(Restart::Temporary)).await.unwrap();
        a.end(crate::kit::End::Normal);
        b.crash();
        world.until_state("a", ServiceState::Ended).await;
        world.until_gone("b").await;
        assert_eq!((Arc::strong_count(&kept), Arc::strong_count(&dropped)), (2, 1));
        world.end().await;
    }
}

/// peer: OS-87, OS-88
#[tokio::test(start_paused = true)]
async fn peer_os_88_reports_show_the_first_line_of_an_error_and_no_more_than_fits() {
    let world = Plot::new(Strategy::OneForOne).open().await;
    let registry = world.generation().registry();
    for (id, text) in [("lines", "first\nsecond".to_owned()), ("long", "x".repeat(500))] {
        let body = move |_| async move { Err(text.into()) };
        let process =
            registry.start(id, tenure_actors::ProcessSpec::function("failing", body)).await.unwrap();
        process.ended().await;
    }
    let cut = format!("run: {}…", "x".repeat(200));
    assert_eq!(world.said(tenure_actors::Verb::Fail), ["run: first".to_owned(), cut]);
    let ended = world.said(tenure_actors::Verb::End);
    assert_eq!(ended[0], "failed: first");
    assert!(ended.iter().all(|line| line.lines().count() == 1));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_os_54_an_actor_that_severed_its_link_does_not_hold_up_its_stop() {
    let actor = || tenure_actors::ProcessSpec::actor("loose", Loose, |_| ());
    let world = Plot::new(Strategy::OneForOne)
        .with(ServiceSpec::new("loose", actor).patience(soon(300)))
        .open()
        .await;
    let loose = world.get("loose").unwrap().process.unwrap();
    let cell = loose.actor::<()>().unwrap();
    cell.cast(()).unwrap();
    crate::kit::quiet().await;
    assert!(cell.get_cell().try_get_supervisor().is_none(), "it severed its link");
    let before = tokio::time::Instant::now();
    world.services().terminate("loose").await.unwrap();
    assert!(before.elapsed().as_millis() <= 300, "its patience is the most");
    assert_eq!(cell.get_status(), ractor::ActorStatus::Stopped);
    world.end().await;
}

struct Loose;

impl ractor::Actor for Loose {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ractor::ActorRef<()>, (): ()) -> Result<(), ractor::ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        myself: ractor::ActorRef<()>,
        (): (),
        _: &mut (),
    ) -> Result<(), ractor::ActorProcessingErr> {
        if let Some(supervisor) = myself.get_cell().try_get_supervisor() {
            myself.get_cell().unlink(supervisor);
        }
        Ok(())
    }
}
