//! Random scripts: what is done to an application, and what its processes do by themselves.

use std::time::Duration;

use tenure_actors::Limits;
use tenure_actors::rules::{Patience, ProcessKind};

use crate::dice::Dice;

/// A paused clock that repeats every run, or real races.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    Virtual,
    Real,
}

/// What a storm is mostly made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaning {
    Processes,
    Generations,
    Operations,
    Failures,
}

#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) timing: Timing,
    /// With a recorder the journal is judged too; without one, nobody hears the events.
    pub(crate) recorded: bool,
    /// Seeds the turns that the kernel gives away.
    pub(crate) shuffle: Option<u64>,
    pub(crate) limits: Limits,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Start { id: usize, plan: Plan, operation: Option<Wish>, then: Then },
    Remove { id: usize, whose: Whose },
    Crash { id: usize, how: Crash },
    CloseProcess { id: usize, whose: Whose, then: Then },
    CloseRegistry { then: Then },
    CloseGeneration { then: Then },
    Replace { then: Then },
    CloseApplication { then: Then },
    Fail(Part),
    Reserve(Wish),
    Release { which: usize },
    DropLease { which: usize },
    CloseOperations,
    Pause(u64),
    Look,
}

/// Whether the script waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Wait,
    GoOn,
    /// The caller goes away after its first turn.
    Leave,
}

/// The process that has the id now, or any that was ever started.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whose {
    Current,
    Old,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Crash {
    Error,
    Panic,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Registry,
    Operations,
    Supervisor,
}

/// An operation to be reserved.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) operation: usize,
    pub(crate) keys: Vec<usize>,
}

/// What a process does by itself.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: ProcessKind,
    pub(crate) patience: Option<Patience>,
    pub(crate) start: Start,
    pub(crate) acts: Vec<Act>,
    pub(crate) end: End,
    pub(crate) leave: Leave,
    /// Commits that it tries after it was told to stop.
    pub(crate) late: usize,
}

/// How the start of an object or of an actor goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    Works,
    IsSlow(u64),
    Fails,
    Panics,
    Hangs,
    RemovesItself,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    Commit,
    CommitThatPanics,
    CommitAsync(u64),
    CommitForever,
    Progress,
    Pause(u64),
    RemoveItself,
    StartAnother(usize),
    CloseGeneration,
    CloseRegistry,
    CloseItself,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Completes,
    Fails,
    Panics,
    /// Waits until it is told to stop.
    Waits,
    /// Does not listen.
    IsDeaf,
}

/// How it goes when it was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    AtOnce,
    Slowly(u64),
    WithAnError,
    WithAPanic,
    Never,
}

impl Script {
    pub(crate) fn write(seed: u64, timing: Timing, leaning: Leaning) -> Self {
        let mut dice = Dice::new(seed);
        let recorded = dice.chance(80);
        let shuffle = dice.chance(75).then(|| dice.next());
        let limits = limits(&mut dice, timing);
        let length = 4 + dice.below(20);
        let steps = (0..length).map(|_| step(&mut dice, timing, leaning)).collect();
        Self { seed, timing, recorded, shuffle, limits, steps }
    }
}

fn limits(dice: &mut Dice, timing: Timing) -> Limits {
    let ms = Duration::from_millis;
    let (start_bound, cleanup_bound, close_deadline) = match timing {
        Timing::Virtual => (ms(20), ms(10), ms(60 + 20 * pause(dice))),
        // Nothing in a script takes the time of the clean-up: it is as long as a busy machine needs.
        Timing::Real => (ms(2), ms(60_000), ms(4)),
    };
    Limits {
        start_bound,
        cleanup_bound,
        close_deadline,
        patience: Patience::Time(if timing == Timing::Virtual { 15 } else { 1 }),
        max_processes: dice.chance(10).then_some(2),
        max_operations: dice.chance(10).then_some(1),
        max_services: None,
    }
}

fn pause(dice: &mut Dice) -> u64 {
    dice.weighted(&[(4, 0), (3, 1), (2, 3), (2, 7), (1, 12), (1, 25), (1, 50)])
}

fn then(dice: &mut Dice) -> Then {
    dice.weighted(&[(4, Then::Wait), (5, Then::GoOn), (1, Then::Leave)])
}

fn whose(dice: &mut Dice) -> Whose {
    dice.weighted(&[(3, Whose::Current), (1, Whose::Old)])
}

fn wish(dice: &mut Dice) -> Wish {
    let operation = dice.below(3);
    Wish { operation, keys: (0..=dice.below(3)).map(|_| dice.below(4)).collect() }
}

#[derive(Clone, Copy)]
enum Sort {
    Start,
    Remove,
    Crash,
    CloseProcess,
    CloseRegistry,
    CloseGeneration,
    Replace,
    CloseApplication,
    Fail,
    Reserve,
    Release,
    DropLease,
    CloseOperations,
    Pause,
    Look,
}

fn step(dice: &mut Dice, timing: Timing, leaning: Leaning) -> Step {
    let of = |wanted: Leaning, more: usize, less: usize| if leaning == wanted { more } else { less };
    let sort = dice.weighted(&[
        (30, Sort::Start),
        (of(Leaning::Processes, 8, 3), Sort::Remove),
        (of(Leaning::Processes, 8, 3), Sort::Crash),
        (of(Leaning::Processes, 8, 3), Sort::CloseProcess),
        (of(Leaning::Generations, 3, 1), Sort::CloseRegistry),
        (of(Leaning::Generations, 3, 1), Sort::CloseGeneration),
        (of(Leaning::Generations, 9, 1), Sort::Replace),
        (1, Sort::CloseApplication),
        (of(Leaning::Failures, 9, 0), Sort::Fail),
        (of(Leaning::Operations, 25, 2), Sort::Reserve),
        (of(Leaning::Operations, 15, 1), Sort::Release),
        (of(Leaning::Operations, 5, 1), Sort::DropLease),
        (of(Leaning::Operations, 2, 0), Sort::CloseOperations),
        (10, Sort::Pause),
        (6, Sort::Look),
    ]);
    let id = dice.below(4);
    match sort {
        Sort::Start => {
            let plan = plan(dice, timing);
            let operation = dice.chance(of(Leaning::Operations, 60, 20)).then(|| wish(dice));
            Step::Start { id, plan, operation, then: then(dice) }
        }
        Sort::Remove => Step::Remove { id, whose: whose(dice) },
        Sort::Crash => Step::Crash { id, how: if dice.chance(50) { Crash::Error } else { Crash::Panic } },
        Sort::CloseProcess => Step::CloseProcess { id, whose: whose(dice), then: then(dice) },
        Sort::CloseRegistry => Step::CloseRegistry { then: then(dice) },
        Sort::CloseGeneration => Step::CloseGeneration { then: then(dice) },
        Sort::Replace => Step::Replace { then: then(dice) },
        Sort::CloseApplication => Step::CloseApplication { then: then(dice) },
        Sort::Fail => {
            let parts = [(1, Part::Registry), (1, Part::Operations), (1, Part::Supervisor)];
            Step::Fail(dice.weighted(&parts))
        }
        Sort::Reserve => Step::Reserve(wish(dice)),
        Sort::Release => Step::Release { which: dice.below(8) },
        Sort::DropLease => Step::DropLease { which: dice.below(8) },
        Sort::CloseOperations => Step::CloseOperations,
        Sort::Pause => Step::Pause(pause(dice)),
        Sort::Look => Step::Look,
    }
}

fn plan(dice: &mut Dice, timing: Timing) -> Plan {
    let kinds = [(1, ProcessKind::Function), (1, ProcessKind::Object), (1, ProcessKind::Actor)];
    let patiences = [
        (6, None),
        (1, Some(Patience::Kill)),
        (1, Some(Patience::Time(0))),
        (1, Some(Patience::Time(3))),
        (1, Some(Patience::Unlimited)),
    ];
    let wait = pause(dice);
    let starts = [
        (12, Start::Works),
        (3, Start::IsSlow(wait)),
        (2, Start::Fails),
        (1, Start::Panics),
        (1, Start::Hangs),
        (1, Start::RemovesItself),
    ];
    let ends = [(4, End::Completes), (1, End::Fails), (1, End::Panics), (8, End::Waits), (2, End::IsDeaf)];
    let leaves = [
        (8, Leave::AtOnce),
        (3, Leave::Slowly(wait)),
        (1, Leave::WithAnError),
        (1, Leave::WithAPanic),
        (1, Leave::Never),
    ];
    let mut plan = Plan {
        kind: dice.weighted(&kinds),
        patience: dice.weighted(&patiences),
        start: dice.weighted(&starts),
        acts: (0..dice.below(6)).map(|_| act(dice, timing)).collect(),
        end: dice.weighted(&ends),
        leave: dice.weighted(&leaves),
        late: dice.below(4),
    };
    if timing == Timing::Real && plan.leave == Leave::Never && !matches!(plan.start, Start::Works) {
        // The clean-up of its failed start would take the long bound of real time.
        plan.leave = Leave::AtOnce;
    }
    plan
}

fn act(dice: &mut Dice, timing: Timing) -> Act {
    let (wait, other) = (pause(dice), dice.below(4));
    let forever = if timing == Timing::Virtual { 1 } else { 0 };
    dice.weighted(&[
        (20, Act::Commit),
        (1, Act::CommitThatPanics),
        (6, Act::CommitAsync(wait)),
        (forever, Act::CommitForever),
        (5, Act::Progress),
        (14, Act::Pause(wait)),
        (2, Act::RemoveItself),
        (2, Act::StartAnother(other)),
        (1, Act::CloseGeneration),
        (1, Act::CloseRegistry),
        (1, Act::CloseItself),
    ])
}
