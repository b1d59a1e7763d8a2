//! Panics of user code in every place it runs, the drops included. None harms the kernel or a neighbour.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tenure_actors::{
    Application, ExitReason, ManagedProcess, ProcessContext, ProcessHandle, ProcessId, ProcessKind,
    ProcessResult, ProcessSpec, Registry, RegistryMessage, StartError, StartFailure, rules::Patience,
};

use super::support::{Ask, Door, Play, close, end, open, soon};

/// Panics when it is dropped.
pub(super) struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("dropped");
        }
    }
}

/// The kernel is as it was: the generation is open, and its registry starts and finds processes.
async fn all_is_well(application: &Application) {
    // Some turns for whatever may be dropped late.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let generation = application.current();
    assert_eq!((generation.epoch().get(), generation.is_open()), (1, true), "{:?}", generation.report());
    let registry = generation.registry();
    let play = Play::quiet();
    let process = registry.start("well", play.object()).await.expect("the registry works");
    assert!(Arc::ptr_eq(&registry.get::<Play>("well").expect("found"), &play));
    assert!(process.remove());
    soon(process.ended()).await;
}

fn is_panic(exit: &ExitReason, text: &str) -> bool {
    matches!(exit, ExitReason::Panicked(told) if &**told == text)
}

#[tokio::test(start_paused = true)]
async fn reg_a_function_that_panics_before_its_first_await_ends_alone() {
    let application = open().await;
    let registry = application.current().registry();
    let body = ProcessSpec::function("rash", |_| {
        if true {
            panic!("before the future was made");
        }
        async { Ok(()) }
    });
    let process = registry.start("x", body).await.expect("started");
    assert!(is_panic(&soon(process.ended()).await, "before the future was made"));
    all_is_well(&application).await;
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_a_function_whose_future_panics_in_its_drop_ends_alone() {
    let application = open().await;
    let registry = application.current().registry();
    let body = ProcessSpec::function("rash", |_| {
        let grenade = Grenade;
        async move {
            let _held = grenade;
            Ok(())
        }
    });
    let process = registry.start("x", body).await.expect("started");
    assert!(is_panic(&soon(process.ended()).await, "dropped"));
    all_is_well(&application).await;
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_a_function_whose_future_panics_in_its_drop_when_it_is_killed_ends_alone() {
    let application = open().await;
    let registry = application.current().registry();
    let door = Door::closed();
    let visited = Arc::clone(&door);
    let body = ProcessSpec::function("rash", move |_| async move {
        let _held = Grenade;
        visited.pass().await;
        Ok(())
    });
    let process = registry.start("x", body.patience(Patience::Kill)).await.expect("started");
    door.reached().await;
    assert!(matches!(soon(process.close()).await, ExitReason::Killed(_)));
    all_is_well(&application).await;
    let report = end(&application).await;
    assert_eq!(report.killed.len(), 1);
}

/// An object that panics when it is dropped, and where else it is told to.
#[derive(Default)]
pub(super) struct Rash {
    pub(super) in_start: bool,
    pub(super) in_close: bool,
    pub(super) fails_to_start: bool,
    pub(super) stays_in_start: bool,
    pub(super) stays_in_close: bool,
    pub(super) _grenade: Option<Grenade>,
}

impl ManagedProcess for Rash {
    fn start(self: Arc<Self>, _: ProcessContext) -> impl Future<Output = ProcessResult> + Send {
        assert!(!self.in_start, "in start, before its future was made");
        async move {
            if self.stays_in_start {
                pending::<()>().await;
            }
            if self.fails_to_start { Err("it fails".into()) } else { Ok(()) }
        }
    }

    fn close(self: Arc<Self>) -> impl Future<Output = ProcessResult> + Send {
        assert!(!self.in_close, "in close, before its future was made");
        async move {
            if self.stays_in_close {
                pending::<()>().await;
            }
            Ok(())
        }
    }
}

impl Rash {
    pub(super) fn spec(self) -> ProcessSpec {
        ProcessSpec::object("rash", Arc::new(self))
    }
}

#[tokio::test(start_paused = true)]
async fn reg_an_object_that_panics_before_the_future_of_its_start_is_made_is_a_failed_start() {
    let application = open().await;
    let rash = Rash { in_start: true, ..Rash::default() };
    let failed = application.current().registry().start("x", rash.spec()).await;
    let Err(StartError::StartFailed { source, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!(source.to_string(), "panicked: in start, before its future was made");
    all_is_well(&application).await;
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_an_object_that_panics_before_the_future_of_its_close_is_made_is_reported() {
    let application = open().await;
    let rash = Rash { in_close: true, ..Rash::default() };
    application.current().registry().start("x", rash.spec()).await.expect("started");
    let report = end(&application).await;
    assert_eq!(report.failed.len(), 1);
    assert_eq!(report.failed[0].1, "panicked: in close, before its future was made");
}

/// How the kernel comes to hold the last reference to an object.
async fn is_dropped(registry: &Registry, by: &str) {
    let armed = || Rash { _grenade: Some(Grenade), ..Rash::default() };
    match by {
        "close" => {
            let process = registry.start("x", armed().spec()).await.expect("started");
            soon(process.close()).await;
        }
        "removal" => {
            let process = registry.start("x", armed().spec()).await.expect("started");
            assert!(process.remove());
            soon(process.ended()).await;
        }
        "failed start" => {
            let failed = registry.start("x", Rash { fails_to_start: true, ..armed() }.spec()).await;
            assert!(matches!(failed, Err(StartError::StartFailed { .. })), "{failed:?}");
        }
        "refusal" => {
            let process = registry.start("x", Rash::default().spec()).await.expect("started");
            let refused = registry.start("x", armed().spec()).await;
            assert!(matches!(refused, Err(StartError::AlreadyExists { .. })), "{refused:?}");
            assert!(process.remove());
        }
        "kill" => {
            let process =
                registry.start("x", armed().spec().patience(Patience::Kill)).await.expect("started");
            soon(process.close()).await;
        }
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn reg_an_object_that_panics_in_its_drop_harms_nobody_wherever_it_is_dropped() {
    for by in ["close", "removal", "failed start", "refusal", "kill"] {
        let application = open().await;
        is_dropped(&application.current().registry(), by).await;
        all_is_well(&application).await;
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_objects_that_panic_in_their_drop_do_not_keep_a_close_from_its_end() {
    let application = open().await;
    let registry = application.current().registry();
    for number in 0..20 {
        let rash = Rash { _grenade: Some(Grenade), ..Rash::default() };
        registry.start(format!("x{number}"), rash.spec()).await.expect("started");
    }
    let report = close(&registry).await;
    assert_eq!(report.started, 20);
    all_is_open_but_the_registry(&application);
    end(&application).await;
}

fn all_is_open_but_the_registry(application: &Application) {
    let generation = application.current();
    assert_eq!((generation.epoch().get(), generation.is_open()), (1, true));
}

#[tokio::test(start_paused = true)]
async fn reg_a_refused_function_or_actor_that_panics_in_its_drop_harms_nobody() {
    let application = open().await;
    let registry = application.current().registry();
    let taken = registry.start("x", Play::quiet().object()).await.expect("started");
    let grenade = Grenade;
    let function = ProcessSpec::function("rash", move |_| async move {
        drop(grenade);
        Ok(())
    });
    let grenade = Grenade;
    let actor =
        ProcessSpec::actor("rash", Armed::default(), move |_| State { grenade: Some(grenade), door: None });
    for spec in [function, actor] {
        let refused = registry.start("x", spec).await;
        assert!(matches!(refused, Err(StartError::AlreadyExists { .. })), "{refused:?}");
    }
    assert!(taken.remove());
    all_is_well(&application).await;
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_starts_that_a_failing_registry_never_saw_harm_nobody_with_their_drops() {
    let application = open().await;
    let generation = application.current();
    tenure_actors::testkit::fail_registry(&generation, "out of order");
    let starting: Vec<_> = (0..3)
        .map(|number| {
            let actor = generation.registry().actor_ref().expect("it is open");
            let process = Rash { _grenade: Some(Grenade), ..Rash::default() }.spec();
            let id = ProcessId::new(format!("x{number}")).expect("a valid id");
            let start = move |reply| RegistryMessage::Start { id, process, reply };
            tokio::spawn(async move { actor.call(start, Some(Duration::from_secs(1))).await })
        })
        .collect();
    for start in starting {
        let answered = soon(start).await.expect("no panic");
        assert!(!matches!(answered, Ok(CallResult::Success(_))), "never seen: {answered:?}");
    }
    soon(generation.closed()).await.expect("from outside");
    end(&application).await;
}

/// An actor whose state panics when it is dropped, or the actor itself.
#[derive(Default)]
pub(super) struct Armed {
    pub(super) _itself: Option<Grenade>,
}

pub(super) struct State {
    pub(super) grenade: Option<Grenade>,
    pub(super) door: Option<Arc<Door>>,
}

impl Actor for Armed {
    type Msg = Ask;
    type State = State;
    type Arguments = State;

    async fn pre_start(&self, _: ActorRef<Ask>, state: State) -> Result<State, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(&self, _: ActorRef<Ask>, ask: Ask, state: &mut State) -> Result<(), ActorProcessingErr> {
        assert!(state.grenade.is_some());
        match ask {
            Ask::Panic(text) => panic!("{text}"),
            Ask::Fail(code) => Err(format!("failed with {code}").into()),
            _ => Ok(()),
        }
    }

    async fn post_stop(&self, _: ActorRef<Ask>, state: &mut State) -> Result<(), ActorProcessingErr> {
        if let Some(door) = &state.door {
            door.pass().await;
        }
        Ok(())
    }
}

pub(super) async fn armed(registry: &Registry, door: Option<Arc<Door>>) -> ProcessHandle {
    let spec = ProcessSpec::actor("rash", Armed::default(), move |_| State { grenade: Some(Grenade), door });
    registry.start("x", spec.patience(Patience::Time(10))).await.expect("started")
}

#[tokio::test(start_paused = true)]
async fn reg_an_actor_whose_state_panics_in_its_drop_ends_alone_however_it_ends() {
    for by in ["stop", "close", "failure", "panic", "stranger", "patience"] {
        let application = open().await;
        let registry = application.current().registry();
        let door = (by == "patience").then(Door::closed);
        let process = armed(&registry, door).await;
        let actor = process.actor::<Ask>().expect("an actor");
        match by {
            "stop" => actor.stop(None),
            "close" | "patience" => drop(soon(process.close()).await),
            "failure" => actor.cast(Ask::Fail(1)).expect("it runs"),
            "panic" => actor.cast(Ask::Panic("in a handler")).expect("it runs"),
            _ => actor.kill(),
        }
        let exit = soon(process.ended()).await;
        let as_expected = match by {
            "stop" | "close" => is_panic(&exit, "dropped"),
            "failure" => matches!(exit, ExitReason::Failed(_)),
            "panic" => is_panic(&exit, "in a handler"),
            _ => matches!(exit, ExitReason::Killed(_)),
        };
        assert!(as_expected, "{by}: {exit:?}");
        all_is_well(&application).await;
        end(&application).await;
    }
}

/// An actor that panics before the future of a hook is made.
struct Hasty {
    in_start: bool,
}

impl Actor for Hasty {
    type Msg = ();
    type State = ();
    type Arguments = ();

    fn pre_start(
        &self,
        _: ActorRef<()>,
        (): (),
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        assert!(!self.in_start, "in pre_start, before its future was made");
        async { Ok(()) }
    }

    fn handle(
        &self,
        _: ActorRef<()>,
        (): (),
        (): &mut (),
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        if !self.in_start {
            panic!("in a handler, before its future was made");
        }
        async { Ok(()) }
    }
}

#[tokio::test(start_paused = true)]
async fn reg_an_actor_that_panics_before_the_future_of_a_hook_is_made_is_told_as_panicked() {
    let application = open().await;
    let registry = application.current().registry();
    let failed = registry.start("x", ProcessSpec::actor("hasty", Hasty { in_start: true }, |_| ())).await;
    let Err(StartError::StartFailed { kind, source, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!(kind, StartFailure::Panic, "{source}");
    assert_eq!(source.to_string(), "panicked: in pre_start, before its future was made");
    let spec = ProcessSpec::actor("hasty", Hasty { in_start: false }, |_| ());
    let process = registry.start("x", spec).await.expect("started");
    process.actor::<()>().expect("an actor").cast(()).expect("it runs");
    let exit = soon(process.ended()).await;
    assert!(is_panic(&exit, "in a handler, before its future was made"), "{exit:?}");
    all_is_well(&application).await;
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_an_object_whose_start_or_close_panics_in_its_drop_when_it_is_cut_off_ends_alone() {
    let hanging = |_: ProcessContext| async {
        let _held = Grenade;
        std::future::pending().await
    };
    let application = open().await;
    let registry = application.current().registry();
    let failed = registry.start("x", Play::starting(hanging).object()).await;
    assert!(matches!(failed, Err(StartError::StartTimedOut { .. })), "{failed:?}");
    let process = registry.start("x", Play::closing(hanging).object()).await.expect("started");
    assert!(matches!(soon(process.close()).await, ExitReason::Killed(_)));
    all_is_well(&application).await;
    let report = end(&application).await;
    assert_eq!(report.abandoned.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn reg_an_actor_whose_arguments_panic_is_a_failed_start() {
    let application = open().await;
    let registry = application.current().registry();
    let spec = ProcessSpec::actor("rash", Armed::default(), |_| -> State { panic!("no arguments") });
    let failed = registry.start("x", spec).await;
    let Err(StartError::StartFailed { source, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!(source.to_string(), "panicked: no arguments");
    assert_eq!(registry.count(), 0);
    all_is_well(&application).await;
    end(&application).await;
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_a_panic_of_one_process_leaves_its_neighbours_running(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let neighbour = Play::quiet();
        registry.start("neighbour", neighbour.spec(kind)).await.expect("started");
        let context = neighbour.context().await;
        let actor = registry.start("a", Play::quiet().spec(ProcessKind::Actor)).await.expect("started");
        actor.actor::<Ask>().expect("an actor").cast(Ask::Panic("out of luck")).expect("it runs");
        let function = ProcessSpec::function("f", |_| async { panic!("out of luck") });
        let function = registry.start("f", function).await.expect("started");
        for process in [actor, function] {
            assert!(is_panic(&soon(process.ended()).await, "out of luck"));
        }
        context.commit(|| ()).expect("its authority stands");
        assert_eq!((neighbour.closes(), registry.count()), (0, 1));
        all_is_well(&application).await;
        end(&application).await;
    }
}
