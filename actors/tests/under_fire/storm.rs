//! A seeded storm of commands and crashes, and what must hold all through it.
//!
//! `TENURE_SEED=n` runs one seed; a failure names its seed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_actors::rules::Strategy;
use tenure_actors::{ActorName, Event, EventKind, ServiceError, ServiceState, StopReason};

use crate::kit::{End, KINDS, Kind, Part, Plot, Start, Stop, World, after_ms, quiet, soon};

const SERVICES: usize = 6;
const STEPS: usize = 60;
const SEEDS: u64 = 25;

const STRATEGIES: [Strategy; 3] = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne];

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("TENURE_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..count).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_commands_and_crashes_breaks_no_invariant() {
    for seed in seeds(SEEDS) {
        for strategy in STRATEGIES {
            let _raging = Raging(seed, strategy);
            let mut dice = Dice(seed);
            let (world, parts, asked) = rage(strategy, &mut dice, true).await;
            if dice.below(2) == 0 {
                calm_down(&world, &parts).await;
                assert_no_one_is_stuck(&world);
            }
            let (order, events) = close(world, asked).await;
            assert_nothing_starts_after_the_seal(&events);
            assert_the_close_stops_in_reverse_order(&order, &events);
            if strategy != Strategy::OneForOne {
                assert_nobody_starts_before_those_before_him(&events);
            }
        }
    }
}

/// The same on several threads, where the journal may note events of one instant in either order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_on_several_threads_breaks_no_invariant() {
    for seed in seeds(5) {
        for strategy in STRATEGIES {
            let _raging = Raging(seed, strategy);
            let (world, _, asked) = rage(strategy, &mut Dice(seed), false).await;
            close(world, asked).await;
        }
    }
}

/// Names the storm that was raging when something broke.
struct Raging(u64, Strategy);

impl Drop for Raging {
    fn drop(&mut self) {
        if std::thread::panicking() {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "storm: TENURE_SEED={} {:?}", self.0, self.1);
        }
    }
}

/// A world after a storm, its parts, and what was asked for in it.
async fn rage(strategy: Strategy, dice: &mut Dice, lulls: bool) -> (World, Vec<Part>, Vec<Answer>) {
    let mut plot = Plot::new(strategy);
    let mut parts = Vec::new();
    for number in 0..SERVICES {
        let part = plot.part(&format!("s{number}"), KINDS[dice.below(3)]);
        plot = plot.with(spec_of(&part, dice));
        parts.push(part);
    }
    let world = plot.limits(|limits| limits.start_bound = Duration::from_millis(30)).open().await;
    let mut asked = Vec::new();
    for _ in 0..STEPS {
        asked.extend(step(&world, &parts[dice.below(SERVICES)], dice));
        match (dice.below(3), lulls) {
            (0, true) => quiet().await,
            (0, false) => tokio::task::yield_now().await,
            _ => {}
        }
    }
    (world, parts, asked)
}

fn spec_of(part: &Part, dice: &mut Dice) -> tenure_actors::ServiceSpec {
    let spec = match dice.below(4) {
        0 => part.transient(),
        1 => part.temporary(),
        _ => part.spec(),
    };
    let spec = spec.patience(soon(20));
    if dice.below(2) == 0 { spec.backoff(after_ms(3)) } else { spec }
}

type Answer = tokio::task::JoinHandle<()>;

fn step(world: &World, part: &Part, dice: &mut Dice) -> Option<Answer> {
    let (services, name) = (world.services(), part.name().to_owned());
    match dice.below(13) {
        0 | 1 => part.crash(),
        2 => part.end(End::Normal),
        3 => part.end(End::Panic),
        4 => part.next_starts([[Start::Fails, Start::Panics, Start::Gated][dice.below(3)]]),
        5 => drop(part.stop([Stop::Obeys, Stop::Gated, Stop::Fails, Stop::After(7)][dice.below(4)])),
        6 => (part.open_start(), part.open_stop()).0,
        7 => part.make_panics(1),
        8 => return Some(tokio::spawn(async move { answered(services.terminate(&name).await) })),
        9 => return Some(tokio::spawn(async move { answered(services.restart(&name).await) })),
        10 => return Some(tokio::spawn(async move { answered(services.delete(&name).await) })),
        11 => {
            let process = services.get(&name).and_then(|service| service.process)?;
            return Some(tokio::spawn(async move { drop(process.close().await) }));
        }
        _ => {
            let spec = spec_of(part, dice);
            return Some(tokio::spawn(async move { answered(services.start(spec).await) }));
        }
    }
    None
}

fn answered<T>(answer: Result<T, ServiceError>) {
    if let Err(ServiceError::Invalid(invalid)) = answer {
        panic!("{invalid}");
    }
}

/// From here on everything works.
async fn calm_down(world: &World, parts: &[Part]) {
    for part in parts {
        part.start(Start::Works).stop(Stop::Obeys);
        part.make_panics(0);
        (0..STEPS).for_each(|_| part.open_start());
        (0..STEPS).for_each(|_| part.open_stop());
    }
    let settled =
        |state| !matches!(state, ServiceState::Starting | ServiceState::Stopping | ServiceState::Restarting);
    world
        .until("everyone settled", |world| {
            world.services().list().iter().all(|service| settled(service.state))
        })
        .await;
}

/// What is listed as running lives, and nothing else does.
fn assert_no_one_is_stuck(world: &World) {
    for service in world.services().list() {
        let alive = service.process.as_ref().is_some_and(|process| process.exit().is_none());
        assert_eq!(alive, service.state == ServiceState::Running, "{service:?}");
    }
}

/// Answers the services in order, and everything that the journal said.
async fn close(world: World, asked: Vec<Answer>) -> (Vec<String>, Vec<Arc<Event>>) {
    let order = world.services().list().into_iter().map(|service| service.name.to_string()).collect();
    let report = world.application.close().await.expect("the application closes");
    assert_eq!(report.imbalance(), None, "{report:?}");
    world.assert_deserted();
    for answer in asked {
        answer.await.expect("every command is answered");
    }
    (order, world.events())
}

fn sealed_at(events: &[Arc<Event>]) -> usize {
    let seal = events.iter().position(|event| matches!(event.kind, EventKind::Sealed { .. }));
    seal.expect("the generation was closed")
}

fn assert_nothing_starts_after_the_seal(events: &[Arc<Event>]) {
    let late =
        events[sealed_at(events)..].iter().find(|event| matches!(event.kind, EventKind::Started { .. }));
    assert!(late.is_none(), "started after the seal: {late:?}");
}

fn assert_the_close_stops_in_reverse_order(order: &[String], events: &[Arc<Event>]) {
    let stopped = events[sealed_at(events)..].iter().filter_map(|event| match &event.kind {
        EventKind::StopSent { child: ActorName::Child(child), reason: StopReason::Closed } => {
            order.iter().position(|name| name == child.role.as_str())
        }
        _ => None,
    });
    let stopped: Vec<_> = stopped.collect();
    assert!(stopped.is_sorted_by(|first, second| first > second), "{stopped:?} of {order:?}");
}

/// Under a group strategy a group restart stops one service after the other: between the word to one and its
/// end no other is told, and nobody starts.
fn assert_nobody_starts_before_those_before_him(events: &[Arc<Event>]) {
    let mut going_down: Option<&ActorName> = None;
    let mut ended = HashSet::new();
    for event in &events[..sealed_at(events)] {
        match &event.kind {
            // One that ends in the moment it is told has ended first.
            EventKind::StopSent { child, .. } if ended.contains(child) => {}
            EventKind::StopSent { child, reason: StopReason::SiblingRestarted } => {
                assert_eq!(going_down, None, "{child} was told before another had ended");
                going_down = Some(child);
            }
            EventKind::Ended { .. } => {
                ended.insert(&event.actor);
                going_down = going_down.filter(|child| **child != event.actor);
            }
            EventKind::Started { child } => assert_eq!(going_down, None, "{child} started meanwhile"),
            _ => {}
        }
    }
}

/// Steele, Lea and Flood's splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_one_kind_with_hanging_stops_ends_with_every_patience_kept() {
    let mut plot = Plot::new(Strategy::OneForAll);
    let parts: Vec<_> = (0..4).map(|number| plot.part(&format!("h{number}"), Kind::Function)).collect();
    for part in &parts {
        part.stop(Stop::Never);
        plot = plot.with(part.spec().patience(soon(10)));
    }
    let world = plot.open().await;
    for round in 2..8 {
        parts[round % 4].crash();
        world.until_running(&format!("h3#{round}")).await;
    }
    let report = world.end().await;
    assert_eq!(report.started, 4 * 7);
    assert_eq!((report.ended, report.killed.len()), (6, 4 * 7 - 6));
}
