//! Services that do not start.

use std::sync::Mutex;
use std::time::Duration;

use tenure_actors::rules::{Backoff, Strategy};
use tenure_actors::{ProcessSpec, ServiceError, ServiceState, StartError, StartFailure, Verb};

use crate::kit::{KINDS, Kind, Plot, Start, Stop, after_ms, quiet};

#[tokio::test(start_paused = true)]
async fn a_make_that_panics_for_ever_without_delay_leaves_the_supervisor_answering() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", Kind::Function);
    let world = plot.with(a.spec()).open().await;
    a.make_panics(usize::MAX);
    a.crash();
    while a.made() < 100 {
        tokio::task::yield_now().await;
    }
    let refused = world.services().delete("a").await;
    assert!(matches!(refused, Err(ServiceError::InUse { .. })), "{refused:?}");
    world.services().terminate("a").await.unwrap();
    assert_eq!(world.state("a"), Some(ServiceState::Stopped));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_make_that_panics_is_a_start_that_failed_of_an_incarnation_with_a_name() {
    for kind in KINDS {
        let mut plot = Plot::new(Strategy::OneForOne);
        let (a, b) = (plot.part("a", kind), plot.part("b", Kind::Actor));
        let world = plot.with(b.spec().backoff(after_ms(10))).open().await;
        a.make_panics(1);
        let Err(ServiceError::StartFailed { source: StartError::StartFailed { kind, source, .. }, .. }) =
            world.services().start(a.spec()).await
        else {
            panic!("expected a failed start");
        };
        assert_eq!((kind, source.to_string().as_str()), (StartFailure::Panic, "panicked: make panics"));
        b.make_panics(1);
        b.crash();
        world.until_running("b#3").await;
        assert_eq!(world.said(Verb::Retry), ["b#1, restart 1 in 10ms", "b#2, restart 2 in 10ms"]);
        let failed = world.said(Verb::Fail);
        assert!(failed.iter().any(|line| line == "start: panicked: make panics"), "{failed:?}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_for_ever_without_delay_leaves_the_supervisor_answering() {
    for kind in [Kind::Object, Kind::Actor] {
        let mut plot = Plot::new(Strategy::OneForOne);
        let (a, b) = (plot.part("a", kind), plot.part("b", Kind::Actor));
        let world = plot.open().await;
        world.services().start(a.spec()).await.unwrap();
        world.services().terminate("a").await.unwrap();
        a.start(Start::Fails);
        let failed = world.services().restart("a").await;
        assert!(matches!(failed, Err(ServiceError::StartFailed { .. })), "{failed:?}");
        a.start(Start::Works);
        world.services().restart("a").await.unwrap();
        world.services().start(b.spec()).await.unwrap();
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_terminated_while_it_starts_is_stopped_when_its_start_has_settled() {
    for kind in [Kind::Object, Kind::Actor] {
        let mut plot = Plot::new(Strategy::OneForOne);
        let a = plot.part("a", kind);
        let world = plot.open().await;
        a.next_starts([Start::Gated]);
        let (services, spec) = (world.services(), a.spec());
        let started = tokio::spawn(async move { services.start(spec).await });
        world.until_line("start a#1").await;
        let services = world.services();
        let terminated = tokio::spawn(async move { services.terminate("a").await });
        world.until_state("a", ServiceState::Stopping).await;
        assert!(a.contexts()[0].commit(|| ()).is_err(), "its authority ended with the order");
        a.open_start();
        started.await.unwrap().expect("it was admitted and its start worked");
        terminated.await.unwrap().unwrap();
        assert_eq!(world.state("a"), Some(ServiceState::Stopped));
        assert_eq!(world.diary.lines(), ["start a#1", "up a#1", "down a#1", "gone a#1"]);
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn everyone_is_answered_when_a_start_fails_while_it_is_being_terminated() {
    for added in [true, false] {
        let mut plot = Plot::new(Strategy::OneForOne);
        let a = plot.part("a", Kind::Object);
        let world = plot.limits(|limits| limits.start_bound = Duration::from_millis(300)).open().await;
        if !added {
            world.services().start(a.spec()).await.unwrap();
            world.services().terminate("a").await.unwrap();
        }
        a.next_starts([Start::Hangs]);
        let (services, spec) = (world.services(), a.spec());
        let started = tokio::spawn(async move {
            if added { services.start(spec).await } else { services.restart("a").await }
        });
        world.until_state("a", ServiceState::Starting).await;
        let terminate = || {
            let services = world.services();
            tokio::spawn(async move { services.terminate("a").await })
        };
        let (first, second) = (terminate(), terminate());
        let failed = started.await.unwrap();
        assert!(
            matches!(
                &failed,
                Err(ServiceError::StartFailed { source: StartError::StartTimedOut { .. }, .. })
            ),
            "{failed:?}"
        );
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        let expected = if added { None } else { Some(ServiceState::Stopped) };
        assert_eq!(world.state("a"), expected, "a first start that failed keeps nothing");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_terminated_before_its_turn_to_start_says_so_to_who_started_it() {
    let (mut plot, [a]) = Plot::new(Strategy::RestForOne).cast(["a"]);
    let b = plot.part("b", Kind::Actor);
    let world = plot.with_backoff("a", 60_000).open().await;
    a.crash();
    world.until_state("a", ServiceState::Restarting).await;
    let (services, spec) = (world.services(), b.spec());
    let started = tokio::spawn(async move { services.start(spec).await });
    world.until_state("b", ServiceState::Restarting).await;
    world.services().terminate("b").await.unwrap();
    let refused = started.await.unwrap();
    assert!(matches!(&refused, Err(ServiceError::Terminated { name }) if &**name == "b"), "{refused:?}");
    assert_eq!(world.get("b").map(|service| service.state), None, "it never ran, so nothing is kept");
    assert_eq!(b.made(), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_restart_waits_for_the_start_that_is_in_progress() {
    let (mut plot, [a]) = Plot::new(Strategy::OneForAll).cast(["a"]);
    let b = plot.part("b", Kind::Actor);
    let world = plot.open().await;
    b.next_starts([Start::Gated]);
    let (services, spec) = (world.services(), b.spec());
    let started = tokio::spawn(async move { services.start(spec).await });
    world.until_line("start b#1").await;
    a.crash();
    world.until_state("b", ServiceState::Stopping).await;
    quiet().await;
    assert_eq!(world.diary.of("start"), ["a#1", "b#1"]);
    b.open_start();
    assert_eq!(started.await.unwrap().unwrap().name(), "b#1", "the start that was asked for has settled");
    world.until_running("b#2").await;
    assert_eq!(world.cast(), ["a running a#2", "b running b#2"]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_while_its_group_is_stopped_counts_once_with_the_group() {
    let mut plot = Plot::new(Strategy::OneForAll).limited(1, 60_000);
    let (a, b) = (plot.part("a", Kind::Actor), plot.part("b", Kind::Object));
    let world = plot.with(a.spec()).with(b.spec()).open().await;
    world.services().terminate("b").await.unwrap();
    b.next_starts([Start::Gated]);
    b.stop(Stop::Fails);
    let services = world.services();
    let restarted = tokio::spawn(async move { services.restart("b").await });
    world.until_state("b", ServiceState::Starting).await;
    a.crash();
    world.until_state("b", ServiceState::Stopping).await;
    b.open_start();
    restarted.await.unwrap().expect("its start was admitted and worked");
    world.until_running("b#3").await;
    assert_eq!(world.said(Verb::Retry).len(), 1);
    world.end().await;
}

/// Hangs in its start; what it holds there takes as long to drop as the test wants.
struct Clinging {
    letting_go: tokio::sync::mpsc::UnboundedSender<&'static str>,
    gate: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
}

struct Grip(tokio::sync::mpsc::UnboundedSender<&'static str>, std::sync::mpsc::Receiver<()>);

impl Drop for Grip {
    fn drop(&mut self) {
        let _ = self.0.send("lets go");
        let _ = self.1.recv();
        let _ = self.0.send("gone");
    }
}

impl ractor::Actor for Clinging {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ractor::ActorRef<()>, (): ()) -> Result<(), ractor::ActorProcessingErr> {
        let gate = self.gate.lock().unwrap().take();
        let _grip = gate.map(|gate| Grip(self.letting_go.clone(), gate));
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_exceeds_its_bound_is_refused_only_after_nothing_of_it_runs() {
    let world = Plot::new(Strategy::OneForOne).open().await;
    let (letting_go, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (open, gate) = std::sync::mpsc::channel();
    let actor = Clinging { letting_go: letting_go.clone(), gate: Mutex::new(Some(gate)) };
    let spec = ProcessSpec::actor("clinging", actor, |_| ()).start_bound(Duration::from_millis(1));
    let registry = world.generation().registry();
    let started = tokio::spawn(async move {
        let refused = registry.start("x", spec).await;
        let _ = letting_go.send("refused");
        refused
    });
    assert_eq!(told.recv().await, Some("lets go"));
    // Time enough for an answer that comes too early.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    open.send(()).unwrap();
    assert_eq!((told.recv().await, told.recv().await), (Some("gone"), Some("refused")));
    assert!(matches!(started.await.unwrap(), Err(StartError::StartTimedOut { .. })));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_never_ends_is_left_behind_by_terminate_and_by_close() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let (a, b) = (plot.part("a", Kind::Actor), plot.part("b", Kind::Actor));
    let endless = after_ms(u64::MAX);
    let world = plot.with(a.spec().backoff(endless)).with(b.spec().backoff(endless)).open().await;
    a.crash();
    b.crash();
    world.until_state("a", ServiceState::Restarting).await;
    world.until_state("b", ServiceState::Restarting).await;
    world.services().terminate("a").await.unwrap();
    world.services().restart("a").await.unwrap();
    assert_eq!(world.cast(), ["a running a#2", "b restarting"]);
    assert_eq!(Backoff::none().settings().max_ms, 0);
    world.end().await;
}
