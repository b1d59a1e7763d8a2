//! What may happen.

use proptest::prelude::*;

/// A step. Numbers pick among what there is.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// A run is queued whatever else is there.
    Enqueue {
        task: usize,
        delay_ms: u64,
        scheduled: bool,
    },
    /// A run is wanted, as the overlap policy says.
    Want {
        task: usize,
        scheduled: bool,
    },
    Claim {
        instance: u128,
        limit: usize,
    },
    /// The last claim is asked for again.
    ClaimAgain,
    Start(usize),
    Finish(usize, End),
    /// Somebody who held a run once tries to finish it.
    FinishLate(usize),
    Release(usize),
    Progress(usize),
    Renew(usize, u64),
    Cancel(usize, bool),
    Sweep,
    Advance(u64),
    Pause(usize),
    Resume(usize),
    Delete(usize),
    Create(usize),
    Approve(usize),
    Reinstate(usize),
    Prune {
        keep: u64,
        limit: usize,
    },
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Completed,
    Failed,
    FailedForGood,
    TimedOut,
    PastDeadline,
    Cancelled,
    Interrupted,
    Asks,
}

pub(crate) fn any() -> impl Strategy<Value = Command> {
    let task = 0..super::world::TASKS;
    let pick = 0..64_usize;
    let end = prop_oneof![
        4 => Just(End::Completed),
        3 => Just(End::Failed),
        1 => Just(End::FailedForGood),
        1 => Just(End::TimedOut),
        1 => Just(End::PastDeadline),
        1 => Just(End::Cancelled),
        2 => Just(End::Interrupted),
        2 => Just(End::Asks),
    ];
    prop_oneof![
        6 => (task.clone(), prop_oneof![3 => Just(0), 1 => 1..5_000_u64], proptest::bool::ANY)
            .prop_map(|(task, delay_ms, scheduled)| Command::Enqueue { task, delay_ms, scheduled }),
        5 => (task.clone(), proptest::bool::ANY).prop_map(|(task, scheduled)| Command::Want { task, scheduled }),
        8 => (0..3_u128, 0..5_usize).prop_map(|(instance, limit)| Command::Claim { instance, limit }),
        1 => Just(Command::ClaimAgain),
        8 => pick.clone().prop_map(Command::Start),
        8 => (pick.clone(), end).prop_map(|(pick, end)| Command::Finish(pick, end)),
        3 => pick.clone().prop_map(Command::FinishLate),
        1 => pick.clone().prop_map(Command::Release),
        1 => pick.clone().prop_map(Command::Progress),
        3 => (pick.clone(), 0..40_000_u64).prop_map(|(pick, ms)| Command::Renew(pick, ms)),
        2 => (pick.clone(), proptest::bool::ANY).prop_map(|(pick, force)| Command::Cancel(pick, force)),
        4 => Just(Command::Sweep),
        6 => prop_oneof![0..2_000_u64, 0..60_000_u64].prop_map(Command::Advance),
        2 => task.clone().prop_map(Command::Pause),
        2 => task.clone().prop_map(Command::Resume),
        1 => task.clone().prop_map(Command::Delete),
        2 => task.prop_map(Command::Create),
        2 => pick.clone().prop_map(Command::Approve),
        2 => pick.prop_map(Command::Reinstate),
        1 => (0..10_u64, 0..4_usize).prop_map(|(keep, limit)| Command::Prune { keep, limit }),
    ]
}
