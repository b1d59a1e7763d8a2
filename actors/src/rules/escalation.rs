//! What a supervisor does about one child's end: all the rules of restarting at once.

use serde::{Deserialize, Serialize};

use super::{Admission, Backoff, ExitClass, Intensity, Restart, RestartWindow, Verdict, after_exit};

/// What is settled about a child's restarts before it is started.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChildPolicy {
    /// When it is started again; permanent by default.
    pub restart: Restart,
    /// Its own limit, besides its supervisor's; unlimited by default, so that only the supervisor's counts.
    pub intensity: Intensity,
    /// How long to wait before each start.
    pub backoff: Backoff,
}

impl Default for ChildPolicy {
    fn default() -> Self {
        // A default limit of its own would quietly undercut a supervisor that was given a higher one.
        let intensity = Intensity::Unlimited;
        Self { restart: Restart::default(), intensity, backoff: Backoff::default() }
    }
}

/// One limit and what counts against it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestartLimit {
    intensity: Intensity,
    window: RestartWindow,
}

impl RestartLimit {
    /// A limit with nothing counted against it yet.
    #[must_use]
    pub fn new(intensity: Intensity) -> Self {
        Self { intensity, window: RestartWindow::default() }
    }

    /// Counts a restart at `now_ms` and tells whether it is admitted.
    pub fn admit(&mut self, now_ms: u64) -> Admission {
        self.window.record(now_ms, &self.intensity)
    }
}

/// What a supervisor remembers of one child's restarts, over all its incarnations.
#[derive(Debug, Clone, PartialEq)]
pub struct RestartState {
    restart: Restart,
    backoff: Backoff,
    limit: RestartLimit,
    in_a_row: u32,
    running_since_ms: Option<u64>,
}

impl RestartState {
    /// The state of a child that was not started yet.
    #[must_use]
    pub fn new(policy: &ChildPolicy) -> Self {
        Self {
            restart: policy.restart,
            backoff: policy.backoff,
            limit: RestartLimit::new(policy.intensity),
            in_a_row: 0,
            running_since_ms: None,
        }
    }

    /// Records that the child's start was done at `now_ms`: from here on it counts as quiet until it ends.
    pub fn started(&mut self, now_ms: u64) {
        self.running_since_ms = Some(now_ms);
    }

    /// How many restarts were decided since the child last ran for its back-off's reset time.
    #[must_use]
    pub const fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// The number of the restart decided at `now_ms`, within its row; the first is 0.
    ///
    /// A child whose start failed never ran, so nothing it did was quiet.
    fn next_attempt(&mut self, now_ms: u64) -> u32 {
        let quiet_ms = self.running_since_ms.take().map(|since_ms| now_ms.saturating_sub(since_ms));
        if quiet_ms.is_some_and(|quiet_ms| self.backoff.reset(quiet_ms)) {
            self.in_a_row = 0;
        }
        let attempt = self.in_a_row;
        self.in_a_row = attempt.saturating_add(1);
        attempt
    }

    fn end_row(&mut self) {
        self.in_a_row = 0;
        self.running_since_ms = None;
    }
}

/// One end of a child: how, when, and the seed for the jitter of the delay after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChildEnd {
    /// How it ended. A start that failed is [`Abnormal`](ExitClass::Abnormal).
    pub class: ExitClass,
    /// When it ended, in milliseconds.
    pub at_ms: u64,
    /// The child's own seed, the same for all its restarts.
    pub seed: u64,
}

/// What a supervisor does about a child's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a decision is to be carried out"]
pub enum Decision {
    /// It starts the child again after a delay, and those siblings that the strategy names.
    Restart {
        /// How long to wait, in milliseconds.
        delay_ms: u64,
        /// The number of this restart within its row; the first is 0, as in [`Backoff::delay_ms`].
        attempt: u32,
    },
    /// It keeps the spec, without a process.
    Keep,
    /// It drops the spec.
    Forget,
    /// It ends, all its children first: there were more than `restarts` in `period_ms`.
    GiveUp {
        /// Whose limit was exceeded.
        who: Who,
        /// The limit.
        restarts: u32,
        /// The limit's period, in milliseconds.
        period_ms: u64,
    },
}

/// Whose limit was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    /// The child's own: it cannot be kept up, so its supervisor cannot do its duty.
    Child,
    /// The supervisor's, by all its children together.
    Supervisor,
}

/// Decides what the supervisor with the limit `supervisor` does about an end of `child`.
///
/// | [`after_exit`] says | child's limit | supervisor's limit | decision |
/// |---|---|---|---|
/// | keep | - | - | keep |
/// | forget | - | - | forget |
/// | restart | admits | admits | restart after the delay |
/// | restart | exceeded | either | give up, the child's limit |
/// | restart | admits | exceeded | give up, the supervisor's limit |
///
/// A start that failed is an abnormal end like any other: it is tried again, delayed like any other, and
/// counts against both limits (OS-42, ED-26, ED-28, PS-43). A restart of a whole group counts once, for the
/// child that caused it. If both limits are exceeded the child's is named, because it says more.
pub fn decide(end: ChildEnd, child: &mut RestartState, supervisor: &mut RestartLimit) -> Decision {
    match after_exit(child.restart, end.class) {
        Verdict::Restart => restart_within_limits(end, child, supervisor),
        Verdict::Keep => {
            child.end_row();
            Decision::Keep
        }
        Verdict::Forget => Decision::Forget,
    }
}

fn restart_within_limits(end: ChildEnd, child: &mut RestartState, supervisor: &mut RestartLimit) -> Decision {
    match (child.limit.admit(end.at_ms), supervisor.admit(end.at_ms)) {
        (Admission::Exceeded { restarts, period_ms }, _) => {
            Decision::GiveUp { who: Who::Child, restarts, period_ms }
        }
        (Admission::Admitted { .. }, Admission::Exceeded { restarts, period_ms }) => {
            Decision::GiveUp { who: Who::Supervisor, restarts, period_ms }
        }
        (Admission::Admitted { .. }, Admission::Admitted { .. }) => {
            let attempt = child.next_attempt(end.at_ms);
            Decision::Restart { delay_ms: child.backoff.delay_ms(attempt, end.seed), attempt }
        }
    }
}
