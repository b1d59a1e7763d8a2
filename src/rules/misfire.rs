//! What becomes of the occurrences that are due: on time, late, or missed (contract, section 6; T31 to T36).
//!
//! | occurrence | `run_once` | `skip_missed` | `queue_all` |
//! |---|---|---|---|
//! | late by no more than the grace | runs | runs | runs |
//! | late by more, or in a pause | stands for the newest that runs | skipped | runs |
//! | the newest, if it is missed too | runs | skipped | runs |
//!
//! `once` always runs. Never do more run at a time than the catch-up limit; what is older is skipped and says
//! so, as is what is older than the catch-up window. Every occurrence is recorded by itself, up to
//! [`MOST_RECORDS`] in one decision; one record stands for those before them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::due::{DueError, Plan};
use crate::model::{
    MisfirePolicy, Schedule, SchedulePlace, ScheduleState, Seconds, SkipReason, TaskId, Timestamp, Timing,
};

/// The most occurrences that one decision records by themselves.
pub const MOST_RECORDS: u64 = 1000;

/// How long a schedule that cannot fire waits before it is tried again: at first, and at most.
const FAILING_DELAYS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));

/// What a schedule is looked at with.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// The store's clock.
    pub now: Timestamp,
    /// Since when the task was paused, until now. None if it was not.
    pub paused_since: Option<Timestamp>,
    /// Occurrences that have a record already, as a store said that refused one: they are passed over, and the
    /// schedule goes on (T30).
    pub recorded: &'a [Timestamp],
}

impl Look<'_> {
    /// A look at a schedule that was not paused.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self { now, paused_since: None, recorded: &[] }
    }
}

/// What is to be done about a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Firing {
    /// What is due, the oldest first. Empty when nothing is.
    pub due: Vec<DueOccurrence>,
    /// What the schedule is afterwards, with its version raised.
    pub next: ScheduleState,
}

/// An occurrence that is due, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueOccurrence {
    /// The instant that the schedule named.
    pub due_at: Timestamp,
    /// How long ago that was, in milliseconds.
    pub late_by_ms: u64,
    /// How many occurrences this stands for; they end at `due_at`.
    pub count: u64,
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of an occurrence that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It wants a run. The overlap policy of its task is still to be asked.
    Runs {
        /// When the run may begin.
        not_before: Timestamp,
    },
    /// The run of a newer occurrence, in the same decision, stands for it.
    Coalesced {
        /// The due time of that occurrence.
        into: Timestamp,
    },
    /// It has no run.
    Skipped(SkipReason),
}

/// The place of a schedule that is new, or whose instants were changed.
///
/// # Errors
/// [`DueError`] when the schedule cannot be read.
pub fn begin(
    schedule: &Schedule,
    task_id: &TaskId,
    version: u64,
    now: Timestamp,
) -> Result<ScheduleState, DueError> {
    let plan = Plan::of(schedule)?;
    let place = waiting(&plan, schedule, task_id, plan.first(now));
    Ok(ScheduleState { task_id: task_id.clone(), version, last_due: None, place })
}

/// The place of a schedule whose task is changed: the one it has, unless other instants are named (T35).
///
/// # Errors
/// [`DueError`] when the new schedule cannot be read.
pub fn replace(
    old: &Schedule,
    new: &Schedule,
    state: &ScheduleState,
    now: Timestamp,
) -> Result<Option<ScheduleState>, DueError> {
    let names = |schedule: &Schedule| Schedule {
        misfire_policy: MisfirePolicy::default(),
        misfire_grace: Seconds::default(),
        catch_up_limit: 0,
        catch_up_window: None,
        catch_up_spread: None,
        ..schedule.clone()
    };
    if names(old) == names(new) {
        return Ok(None);
    }
    begin(new, &state.task_id, state.version + 1, now).map(Some)
}

/// The due times that come next, at most so many: those that are overdue first.
///
/// # Errors
/// [`DueError`] when the schedule cannot be read.
pub fn upcoming(schedule: &Schedule, state: &ScheduleState, most: usize) -> Result<Vec<Timestamp>, DueError> {
    let plan = Plan::of(schedule)?;
    let first = if state.place == SchedulePlace::Idle { None } else { first_due(&plan, state) };
    let following = |due: &Timestamp| plan.next_after(Some(*due), *due);
    Ok(std::iter::successors(first, following).take(most).collect())
}

/// Decides on a schedule whose time to fire has come. With nothing due it only says when to look again.
#[must_use]
pub fn fire(plan: &Plan, schedule: &Schedule, state: &ScheduleState, look: Look<'_>) -> Firing {
    let task_id = &state.task_id;
    let Some(first) = first_due(plan, state) else {
        return Firing { due: Vec::new(), next: moved(state, state.last_due, SchedulePlace::Idle) };
    };
    let mut until = look.now;
    let mut newest = plan.newest(first, until, MOST_RECORDS);
    // The newest may still wait for its jitter; those before it do not, for none goes past the next.
    let early = newest.last().copied().filter(|due| fires_at(plan, schedule, task_id, *due) > look.now);
    if let Some(early) = early {
        newest.pop();
        until = Timestamp::from_ms(early.ms() - 1);
    }
    let total = plan.count(first, until);
    let last_due = newest.last().copied();
    let older = total.saturating_sub(newest.len() as u64);
    let next = match last_due {
        None => Some(first),
        Some(last) => early.or_else(|| plan.next_after(Some(last), look.now)),
    };
    let place = waiting(plan, schedule, task_id, next);
    let next = moved(state, last_due.or(state.last_due), place);
    let before = newest.first().map(|oldest| Timestamp::from_ms(oldest.ms() - 1)).filter(|_| older > 0);
    let before =
        before.and_then(|end| plan.newest(first, end, 1).pop()).filter(|due| !look.recorded.contains(due));
    let fresh = newest.into_iter().filter(|due| !look.recorded.contains(due)).collect();
    let due = Batch { schedule, task_id, look, due: fresh, older, before }.decide();
    Firing { due, next }
}

/// The state of a schedule that could not be fired (T36): tried again ever more rarely, its place kept.
#[must_use]
pub fn failing(state: &ScheduleState, error: &str, now: Timestamp) -> ScheduleState {
    let (since, tries) = match &state.place {
        SchedulePlace::Failing { since, tries, .. } => (*since, tries.saturating_add(1)),
        SchedulePlace::Waiting { due_at, .. } => (*due_at, 1),
        SchedulePlace::Idle => (now, 1),
    };
    let (initial, most) = FAILING_DELAYS;
    let delay = initial.saturating_mul(1 << (tries - 1).min(20)).min(most);
    let error = error.chars().take(1000).collect();
    let retry_at = now.plus(delay);
    moved(state, state.last_due, SchedulePlace::Failing { error, since, tries, retry_at })
}

/// The oldest occurrence without a record.
fn first_due(plan: &Plan, state: &ScheduleState) -> Option<Timestamp> {
    match &state.place {
        SchedulePlace::Idle => None,
        SchedulePlace::Waiting { due_at, .. } => Some(*due_at),
        SchedulePlace::Failing { since, .. } => plan.from(state.last_due, *since),
    }
}

fn moved(state: &ScheduleState, last_due: Option<Timestamp>, place: SchedulePlace) -> ScheduleState {
    ScheduleState { task_id: state.task_id.clone(), version: state.version + 1, last_due, place }
}

fn waiting(plan: &Plan, schedule: &Schedule, task_id: &TaskId, due: Option<Timestamp>) -> SchedulePlace {
    match due {
        None => SchedulePlace::Idle,
        Some(due_at) => SchedulePlace::Waiting { due_at, fire_at: fires_at(plan, schedule, task_id, due_at) },
    }
}

/// When an occurrence fires: its jitter is drawn from its task and due time alone, so that it is the same
/// whoever asks and never adds up (T34), and it ends before the next occurrence. One that is late has used it
/// up and is not delayed again (field S14).
fn fires_at(plan: &Plan, schedule: &Schedule, task_id: &TaskId, due_at: Timestamp) -> Timestamp {
    let jitter = schedule.jitter.ms();
    if jitter == 0 {
        return due_at;
    }
    let next = plan.next_after(Some(due_at), due_at);
    let room =
        next.map_or(u64::MAX, |next| u64::try_from(next.since(due_at).as_millis()).unwrap_or(u64::MAX));
    due_at.plus(Duration::from_millis(draw(task_id, due_at) % jitter.min(room).max(1)))
}

/// A number that depends on nothing but the occurrence. FNV-1a with a final mix: stable across versions and
/// machines, as what is stored must be.
fn draw(task_id: &TaskId, due_at: Timestamp) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in task_id.as_str().bytes().chain(due_at.ms().to_le_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// What is due in one decision.
struct Batch<'a> {
    schedule: &'a Schedule,
    task_id: &'a TaskId,
    look: Look<'a>,
    /// Each by itself, the oldest first.
    due: Vec<Timestamp>,
    /// How many there are before.
    older: u64,
    /// The newest of those.
    before: Option<Timestamp>,
}

impl Batch<'_> {
    fn decide(self) -> Vec<DueOccurrence> {
        let runs = self.runs();
        let spread = self.spread(&runs);
        let newest_run = runs.last().copied();
        let older = self.before.map(|due_at| (due_at, self.older));
        let each = self.due.iter().map(|due_at| (*due_at, 1));
        let mut decided = Vec::with_capacity(self.due.len() + 1);
        for (due_at, count) in older.into_iter().chain(each) {
            let fate = match spread.get(&due_at) {
                Some(not_before) => Fate::Runs { not_before: *not_before },
                None => self.without_run(due_at, newest_run),
            };
            decided.push(DueOccurrence { due_at, late_by_ms: self.late_by(due_at), count, fate });
        }
        decided
    }

    fn late_by(&self, due_at: Timestamp) -> u64 {
        u64::try_from(self.look.now.since(due_at).as_millis()).unwrap_or(u64::MAX)
    }

    fn is_paused(&self, due_at: Timestamp) -> bool {
        self.look.paused_since.is_some_and(|since| due_at >= since)
    }

    /// By more than the grace, counted from when it was to fire at the latest; or in a pause.
    fn is_missed(&self, due_at: Timestamp) -> bool {
        let grace = self.schedule.misfire_grace.ms().saturating_add(self.schedule.jitter.ms());
        self.is_paused(due_at) || self.late_by(due_at) > grace
    }

    fn is_past_window(&self, due_at: Timestamp) -> bool {
        let window = self.schedule.catch_up_window;
        window.is_some_and(|window| self.late_by(due_at) > window.ms()) && self.is_missed(due_at)
    }

    /// The occurrences that run, the oldest first.
    fn runs(&self) -> Vec<Timestamp> {
        if matches!(self.schedule.timing, Timing::Once { .. }) {
            return self.due.clone();
        }
        let may_run: Vec<Timestamp> =
            self.due.iter().copied().filter(|due| !self.is_past_window(*due)).collect();
        let on_time = || may_run.iter().copied().filter(|due| !self.is_missed(*due)).collect::<Vec<_>>();
        let mut runs = match self.schedule.misfire_policy {
            MisfirePolicy::SkipMissed => on_time(),
            MisfirePolicy::QueueAll => may_run,
            MisfirePolicy::RunOnce => match on_time() {
                none if none.is_empty() => may_run.last().copied().into_iter().collect(),
                some => some,
            },
        };
        let most = usize::try_from(self.schedule.catch_up_limit).unwrap_or(usize::MAX).max(1);
        runs.drain(..runs.len().saturating_sub(most));
        runs
    }

    /// When each may begin: those that are caught up, spread over the time for it (field S16).
    fn spread(&self, runs: &[Timestamp]) -> BTreeMap<Timestamp, Timestamp> {
        let late = runs.iter().filter(|due| self.is_missed(**due)).count() as u64;
        let slot = self.schedule.catch_up_spread.map_or(0, Seconds::ms) / late.max(1);
        let mut behind = 0;
        runs.iter()
            .map(|due| {
                if !self.is_missed(*due) || slot == 0 {
                    return (*due, self.look.now);
                }
                let after = behind * slot + draw(self.task_id, *due) % slot;
                behind += 1;
                (*due, self.look.now.plus(Duration::from_millis(after)))
            })
            .collect()
    }

    fn without_run(&self, due_at: Timestamp, newest_run: Option<Timestamp>) -> Fate {
        match (self.schedule.misfire_policy, newest_run) {
            _ if self.is_past_window(due_at) => Fate::Skipped(SkipReason::PastWindow),
            (MisfirePolicy::RunOnce, Some(into)) => Fate::Coalesced { into },
            (MisfirePolicy::QueueAll, _) => Fate::Skipped(SkipReason::PastLimit),
            _ if self.is_paused(due_at) => Fate::Skipped(SkipReason::Paused),
            _ if self.is_missed(due_at) => Fate::Skipped(SkipReason::Missed),
            _ => Fate::Skipped(SkipReason::PastLimit),
        }
    }
}
