//! Actors of a plugin under supervision: their messages, their state, their own children.

use std::sync::{Arc, Mutex};

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorStatus, RpcReplyPort, SupervisionEvent};
use tenure_actors::rules::{Backoff, Strategy};
use tenure_actors::{ProcessContext, ProcessSpec, ServiceSpec, StartError, StartFailure, Verb};

use crate::kit::{Plot, World, after_ms, quiet};

/// Counts, has a child of its own, and fails when it is told to.
struct Counter {
    family: Family,
    /// Leaves the end of its child to ractor's default, which is to end with it.
    is_dependent: bool,
}

/// The children ever made, over all incarnations, and how many of the next starts fail after making one.
#[derive(Clone, Default)]
struct Family {
    children: Arc<Mutex<Vec<ActorCell>>>,
    failing_starts: Arc<Mutex<u32>>,
    stops: Arc<Mutex<u32>>,
}

enum Say {
    Add(RpcReplyPort<u32>),
    Fail,
    Panic,
    StopChild,
}

impl Actor for Counter {
    type Msg = Say;
    type State = u32;
    type Arguments = ProcessContext;

    async fn pre_start(&self, myself: ActorRef<Say>, _: ProcessContext) -> Result<u32, ActorProcessingErr> {
        let (child, _) = Actor::spawn_linked(None, Leaf, (), myself.get_cell()).await?;
        self.family.children.lock().unwrap().push(child.get_cell());
        let mut failing = self.family.failing_starts.lock().unwrap();
        if *failing > 0 {
            *failing -= 1;
            return Err("no start".into());
        }
        Ok(0)
    }

    async fn handle(&self, _: ActorRef<Say>, say: Say, count: &mut u32) -> Result<(), ActorProcessingErr> {
        match say {
            Say::Add(reply) => {
                *count += 1;
                let _ = reply.send(*count);
            }
            Say::Fail => return Err("told to fail".into()),
            Say::Panic => panic!("told to panic"),
            Say::StopChild => {
                let children = self.family.children.lock().unwrap();
                children.last().expect("it has one").stop(None);
            }
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Say>, _: &mut u32) -> Result<(), ActorProcessingErr> {
        *self.family.stops.lock().unwrap() += 1;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Say>,
        event: SupervisionEvent,
        _: &mut u32,
    ) -> Result<(), ActorProcessingErr> {
        if self.is_dependent && matches!(event, SupervisionEvent::ActorTerminated(..)) {
            myself.stop(None);
        }
        Ok(())
    }
}

struct Leaf;

impl Actor for Leaf {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

impl Family {
    fn spec(&self, is_dependent: bool) -> ServiceSpec {
        let family = self.clone();
        let make = move || {
            let actor = Counter { family: family.clone(), is_dependent };
            ProcessSpec::actor("counter", actor, |context| context)
        };
        ServiceSpec::new("counter", make).backoff(Backoff::none())
    }

    /// How many of the children live.
    fn alive(&self) -> usize {
        let children = self.children.lock().unwrap();
        children.iter().filter(|child| child.get_status() != ActorStatus::Stopped).count()
    }

    fn made(&self) -> usize {
        self.children.lock().unwrap().len()
    }
}

async fn open(strategy: Strategy) -> (World, Family) {
    let family = Family::default();
    let world = Plot::new(strategy).with(family.spec(false)).open().await;
    (world, family)
}

fn counter(world: &World) -> ActorRef<Say> {
    world.get("counter").unwrap().process.unwrap().actor().unwrap()
}

async fn add(world: &World) -> u32 {
    ractor::call!(counter(world), Say::Add).unwrap()
}

/// peer: PS-01, PS-13, PC-05, PC-06, PC-07, PC-08
#[tokio::test(start_paused = true)]
async fn peer_pc_06_an_actor_answers_before_it_is_killed_and_its_successor_after() {
    for strategy in [Strategy::OneForOne, Strategy::OneForAll] {
        for say in [|| Say::Fail, || Say::Panic] {
            let (world, _) = open(strategy).await;
            assert_eq!((add(&world).await, add(&world).await), (1, 2));
            counter(&world).cast(say()).unwrap();
            world.until_running("counter#2").await;
            assert_eq!(add(&world).await, 1, "with fresh state");
            counter(&world).kill();
            world.until_running("counter#3").await;
            assert_eq!(add(&world).await, 1);
            world.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn peer_ps_25_a_restarted_actor_has_state_zero_and_none_of_the_children_of_before() {
    let (world, family) = open(Strategy::OneForOne).await;
    counter(&world).cast(Say::Fail).unwrap();
    world.until_running("counter#2").await;
    quiet().await;
    assert_eq!((family.made(), family.alive()), (2, 1), "the child of the new one alone");
    world.end().await;
    assert_eq!(family.alive(), 0);
}

/// peer: PS-35, PS-36
#[tokio::test(start_paused = true)]
async fn peer_ps_35_children_made_by_a_first_start_that_then_failed_are_stopped_before_the_next_try() {
    for backoff in [Backoff::none(), after_ms(100)] {
        let family = Family::default();
        *family.failing_starts.lock().unwrap() = 3;
        let world = Plot::new(Strategy::OneForOne).with(family.spec(false).backoff(backoff)).open().await;
        quiet().await;
        assert_eq!((family.made(), family.alive()), (4, 1));
        world.end().await;
        assert_eq!(family.alive(), 0);
    }
}

/// peer: PS-37, PS-38
#[tokio::test(start_paused = true)]
async fn peer_ps_37_children_made_by_a_later_start_that_then_failed_are_stopped_before_the_next_try() {
    for backoff in [Backoff::none(), after_ms(100)] {
        let family = Family::default();
        let world = Plot::new(Strategy::OneForOne).with(family.spec(false).backoff(backoff)).open().await;
        *family.failing_starts.lock().unwrap() = 2;
        counter(&world).cast(Say::Fail).unwrap();
        world.until_running("counter#4").await;
        quiet().await;
        assert_eq!((family.made(), family.alive()), (4, 1));
        world.end().await;
        assert_eq!(family.alive(), 0);
    }
}

/// peer: PS-67, PW-04
#[tokio::test(start_paused = true)]
async fn peer_pw_04_an_actor_that_ends_with_its_child_is_seen_one_level_up_and_restarted() {
    let family = Family::default();
    let world = Plot::new(Strategy::OneForOne).with(family.spec(true)).open().await;
    let handle = world.get("counter").unwrap().process.unwrap();
    counter(&world).cast(Say::StopChild).unwrap();
    assert_eq!(handle.ended().await.to_string(), "completed");
    world.until_running("counter#2").await;
    quiet().await;
    assert_eq!(family.alive(), 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_ps_57_a_failure_while_an_actor_is_made_is_a_start_failure() {
    let world = Plot::new(Strategy::OneForOne).open().await;
    let family = Family::default();
    let actor = Counter { family: family.clone(), is_dependent: false };
    let spec = ProcessSpec::actor("counter", actor, |_| panic!("no arguments"));
    let refused = world.generation().registry().start("counter", spec).await;
    let Err(StartError::StartFailed { kind: StartFailure::Panic, source, .. }) = refused else {
        panic!("expected a failed start, got {refused:?}");
    };
    assert_eq!(source.to_string(), "panicked: no arguments");
    assert_eq!((family.made(), world.generation().registry().count()), (0, 0));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_ps_16_a_failure_in_the_start_is_logged_and_leaves_no_zombie() {
    let world = Plot::new(Strategy::OneForOne).open().await;
    let family = Family::default();
    *family.failing_starts.lock().unwrap() = 1;
    let actor = Counter { family: family.clone(), is_dependent: false };
    let spec = ProcessSpec::actor("counter", actor, |context| context);
    world.generation().registry().start("counter", spec).await.map(drop).unwrap_err();
    quiet().await;
    assert_eq!((world.said(Verb::Fail), family.alive()), (vec!["start: no start".to_owned()], 0));
    assert!(world.generation().tree().generations[0].children.is_empty());
    world.end().await;
}

/// Stops itself before its start is done.
struct Reluctant(Arc<Mutex<u32>>);

impl Actor for Reluctant {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        myself.stop(None);
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<()>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        *self.0.lock().unwrap() += 1;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn peer_pw_14_an_actor_that_stops_in_its_own_start_has_started_and_runs_its_last_hook_once() {
    let world = Plot::new(Strategy::OneForOne).open().await;
    let stops = Arc::new(Mutex::new(0));
    let spec = ProcessSpec::actor("reluctant", Reluctant(Arc::clone(&stops)), |_| ());
    let process = world.generation().registry().start("x", spec).await.unwrap();
    assert_eq!(process.ended().await.to_string(), "completed");
    assert_eq!(*stops.lock().unwrap(), 1);
    assert_eq!(world.generation().registry().count(), 0);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn peer_pc_33_a_child_made_in_a_start_is_usable_from_there_on() {
    struct Parent;
    impl tenure_actors::ManagedProcess for Parent {
        async fn start(self: Arc<Self>, context: ProcessContext) -> tenure_actors::ProcessResult {
            let actor = Counter { family: Family::default(), is_dependent: false };
            let child = ProcessSpec::actor("counter", actor, |context| context);
            let child = context.generation().registry().start("child", child).await?;
            let counter = child.actor::<Say>().ok_or("no actor")?;
            let count = ractor::call!(counter, Say::Add)?;
            if count == 1 { Ok(()) } else { Err("did not count".into()) }
        }
    }
    let world = Plot::new(Strategy::OneForOne).open().await;
    let registry = world.generation().registry();
    registry.start("parent", ProcessSpec::object("parent", Arc::new(Parent))).await.unwrap();
    let counter = registry.get_actor::<Say>("child").unwrap();
    assert_eq!(ractor::call!(counter, Say::Add).unwrap(), 2);
    world.end().await;
}

/// peer: PC-50
#[tokio::test(start_paused = true)]
async fn peer_pc_50_late_callbacks_of_an_ended_process_are_refused_and_crash_nothing() {
    let mut plot = Plot::new(Strategy::OneForOne);
    let a = plot.part("a", crate::kit::Kind::Actor);
    let world = plot.open().await;
    let registry = world.generation().registry();
    let process = registry.start("a", a.process()).await.unwrap();
    a.crash();
    process.ended().await;
    let context = a.contexts().remove(0);
    assert!(
        context.commit(|| ()).is_err() && context.is_cancelled() && context.cancellation().is_cancelled()
    );
    context.progress(50, "late");
    assert!(!context.remove_self());
    context.cancelled().await;
    assert_eq!(context.id().as_str(), "a");
    world.end().await;
}
