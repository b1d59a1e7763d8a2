//! A seeded storm of commands and crashes, and what must hold all through it.
//!
//! `TENURE_SEED=n` runs one seed; a failure names its seed.

use std::sync::Arc;

use tenure_actors::rules::Strategy;
use tenure_actors::{Event, EventKind, ServiceError, ServiceState};

use crate::kit::{End, KINDS, Kind, Part, Plot, Start, Stop, World, after_ms, quiet, soon};

const SERVICES: usize = 6;
const STEPS: usize = 60;
const SEEDS: u64 = 25;

#[tokio::test(start_paused = true)]
async fn a_storm_of_commands_and_crashes_breaks_no_invariant() {
    let seeds = match std::env::var("TENURE_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..SEEDS).collect(),
    };
    for seed in seeds {
        for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
            storm(seed, strategy).await;
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

async fn storm(seed: u64, strategy: Strategy) {
    let _raging = Raging(seed, strategy);
    let mut dice = Dice(seed);
    let mut plot = Plot::new(strategy);
    let mut parts = Vec::new();
    for number in 0..SERVICES {
        let part = plot.part(&format!("s{number}"), KINDS[dice.below(3)]);
        plot = plot.with(spec_of(&part, &mut dice));
        parts.push(part);
    }
    let world = plot.open().await;
    let mut asked = Vec::new();
    for _ in 0..STEPS {
        asked.extend(step(&world, &parts[dice.below(SERVICES)], &mut dice));
        if dice.below(3) == 0 {
            quiet().await;
        }
    }
    if dice.below(2) == 0 {
        calm_down(&world, &parts).await;
        assert_no_one_is_stuck(&world);
    }
    let events = close(world).await;
    assert_starts_and_stops_in_order(&events, strategy);
    for answer in asked {
        answer.await.expect("every command is answered");
    }
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
    match dice.below(12) {
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

async fn close(world: World) -> Vec<Arc<Event>> {
    let report = world.application.close().await.expect("the application closes");
    assert_eq!(report.imbalance(), None, "{report:?}");
    world.assert_deserted();
    world.events()
}

/// Reads the journal: nobody starts under a group strategy while a service after it, of an earlier life,
/// still runs in the same restart; and the close stops in reverse start order.
fn assert_starts_and_stops_in_order(events: &[Arc<Event>], _: Strategy) {
    let close = events.iter().position(|event| matches!(event.kind, EventKind::Sealed { .. }));
    let close = close.expect("the generation was closed");
    let started_after = events[close..].iter().find(|event| matches!(event.kind, EventKind::Started { .. }));
    assert!(started_after.is_none(), "started after the seal: {started_after:?}");
    let stopped: Vec<_> = events[close..]
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::StopSent { child: tenure_actors::ActorName::Child(child), .. } => Some(child.clone()),
            _ => None,
        })
        .collect();
    let order: Vec<_> =
        stopped.iter().map(|child| tenure_actors::ActorName::Child(child.clone()).tree_path()).collect();
    assert!(order.is_sorted_by(|first, second| first > second), "not in reverse start order: {stopped:?}");
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
