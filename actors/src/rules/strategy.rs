//! Who is stopped and started together with a child that is restarted.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Restart;

/// Which siblings share a child's restart; written `one_for_one`, `one_for_all` or `rest_for_one`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// None: the children do not depend on each other.
    #[default]
    OneForOne,
    /// All: each depends on every other.
    OneForAll,
    /// Those that were started after it: each depends on the ones before it.
    RestForOne,
}

/// What a supervisor knows of one child when it plans a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChildView {
    /// Where the child stands.
    pub state: ChildState,
    /// When it is started again.
    pub restart: Restart,
}

/// Where a child stands between its spec and its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChildState {
    /// It has a process whose start was done.
    Running,
    /// It has a process whose start is not done yet.
    Starting,
    /// It has no process but will: it waits for its delay, or for its turn in a restart of its group.
    BackingOff,
    /// It ended by itself and its spec was kept.
    Ended,
    /// Somebody stopped it on purpose; its spec was kept.
    StoppedOnPurpose,
}

impl ChildState {
    const fn has_process(self) -> bool {
        match self {
            Self::Running | Self::Starting => true,
            Self::BackingOff | Self::Ended | Self::StoppedOnPurpose => false,
        }
    }
}

/// What a supervisor does about one failed child, as indices into its children in start order.
///
/// First everything in `stop` is stopped, one after the other and each waited for; then what is in `forget`
/// loses its spec; then, after the failed child's delay, everything in `start` is started one after the
/// other. No child is in both `start` and `forget`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Plan {
    /// Siblings with a process, in reverse start order; never the failed child, which has none.
    ///
    /// Temporary siblings are here too, although they are not started again: one list holds the whole order.
    pub stop: Vec<usize>,
    /// Temporary children of the group, in start order: they end with it and their specs are gone.
    pub forget: Vec<usize>,
    /// The children to start, in start order, with the failed one among them.
    pub start: Vec<usize>,
}

impl Plan {
    fn start_or_forget(&mut self, index: usize, restart: Restart) {
        match restart {
            Restart::Permanent | Restart::Transient => self.start.push(index),
            Restart::Temporary => self.forget.push(index),
        }
    }

    fn include_sibling(&mut self, index: usize, sibling: ChildView) {
        // The word of whoever stopped it outlives the failure of another child.
        if sibling.state == ChildState::StoppedOnPurpose {
            return;
        }
        if sibling.state.has_process() {
            self.stop.push(index);
        }
        self.start_or_forget(index, sibling.restart);
    }
}

/// Plans the restart of `children[failed]`; `children` is in start order.
///
/// Asked after [`after_exit`](super::after_exit) said [`Restart`](super::Verdict::Restart), and again for a
/// child whose start failed during such a restart: the siblings that wait behind it are then
/// [`BackingOff`](ChildState::BackingOff). Under `rest_for_one` the ones that are already up again are left
/// alone (OS-53).
///
/// What becomes of a sibling that the strategy reaches:
///
/// | sibling is | permanent, transient | temporary |
/// |---|---|---|
/// | running, starting | stopped, started | stopped, forgotten |
/// | backing off | started with the group, its own delay is void | forgotten |
/// | ended by itself | started | forgotten |
/// | stopped on purpose | stays stopped | stays stopped |
///
/// Sources: OS-41, OS-43, OS-53, OS-85 and OTP's `supervisor.erl`, with two decisions. *Ended by itself*: as
/// in OTP, a group restart is a fresh start of the group, so a transient child that had done its work does
/// it again for the new siblings; who wants its work done once makes the child temporary. *Stopped on
/// purpose*: OTP starts such a child again, here it stays stopped, because a crash elsewhere is no reason to
/// overrule the one who stopped it.
///
/// A failed child that is temporary is forgotten and its siblings are left alone, as `after_exit` has it; an
/// index beyond the children gives an empty plan.
#[must_use]
pub fn restart_plan(strategy: Strategy, children: &[ChildView], failed: usize) -> Plan {
    let mut plan = Plan::default();
    for index in group(strategy, children, failed) {
        if index == failed {
            plan.start_or_forget(index, children[index].restart);
        } else {
            plan.include_sibling(index, children[index]);
        }
    }
    plan.stop.reverse();
    plan
}

/// The indices of the children that share the restart of `children[failed]`, itself included.
fn group(strategy: Strategy, children: &[ChildView], failed: usize) -> Range<usize> {
    let Some(child) = children.get(failed) else { return 0..0 };
    match (child.restart, strategy) {
        (Restart::Temporary, _) | (_, Strategy::OneForOne) => failed..failed + 1,
        (Restart::Permanent | Restart::Transient, Strategy::OneForAll) => 0..children.len(),
        (Restart::Permanent | Restart::Transient, Strategy::RestForOne) => failed..children.len(),
    }
}

/// The order in which `count` children in start order are stopped: exactly reversed (OS-85).
///
/// ```
/// assert_eq!(tenure_actors::rules::stop_order(3).collect::<Vec<_>>(), [2, 1, 0]);
/// ```
#[must_use = "the order is lazy"]
pub fn stop_order(count: usize) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + Clone {
    (0..count).rev()
}
