//! What is to be measured, and at which size.

use std::ops::Deref;

use crate::arguments::{self, Groups, Scale};

/// Figures that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Start,
    Run,
    One,
    Many,
    Streams,
    Lists,
}

const GROUPS: [(&str, Group); 6] = [
    ("start", Group::Start),
    ("run", Group::Run),
    ("one", Group::One),
    ("many", Group::Many),
    ("streams", Group::Streams),
    ("lists", Group::Lists),
];

/// What a copy of this program is told that is to serve.
pub(crate) const SERVE: &str = "--serve";

pub(crate) enum Command {
    Measure(Plan),
    /// Asked by the program itself, of a fresh copy of itself.
    Serve,
}

/// How much of everything.
pub(crate) struct Plan {
    groups: Groups<Group>,
    scale: Scale,
    /// Finished runs in the store that `serve` starts on.
    pub(crate) existing: usize,
    /// Starts of the program in a round.
    pub(crate) starts: usize,
    /// Runs of one caller in a round.
    pub(crate) one: usize,
    /// Runs of all callers in a round that are waited for.
    pub(crate) waited: usize,
    /// Runs of all callers in a round that are not.
    pub(crate) enqueued: usize,
    /// Open event streams.
    pub(crate) streams: usize,
    /// Runs in the store that is listed.
    pub(crate) listed: usize,
    /// Requests for a list in a round.
    pub(crate) lists: usize,
}

impl Deref for Plan {
    type Target = Scale;

    fn deref(&self) -> &Scale {
        &self.scale
    }
}

impl Plan {
    fn full(groups: Groups<Group>) -> Self {
        Self {
            groups,
            scale: Scale::full(3),
            existing: 100_000,
            starts: 10,
            one: 1_000,
            waited: 64 * 500,
            enqueued: 64 * 1_500,
            streams: 1_000,
            listed: 1_000_000,
            lists: 20,
        }
    }

    fn quick(groups: Groups<Group>) -> Self {
        Self {
            groups,
            scale: Scale::quick(),
            existing: 500,
            starts: 1,
            one: 10,
            waited: 64 * 2,
            enqueued: 64 * 2,
            streams: 20,
            listed: 1_000,
            lists: 2,
        }
    }

    pub(crate) fn wants(&self, group: Group) -> bool {
        self.groups.wants(group)
    }
}

pub(crate) fn parse(given: impl Iterator<Item = String>) -> Result<Command, String> {
    let given: Vec<String> = given.collect();
    if given == [SERVE] {
        return Ok(Command::Serve);
    }
    let usage = || arguments::usage("cargo bench -p tenure --bench http", "", &GROUPS);
    let (in_full, groups) = arguments::read(given.into_iter(), &GROUPS, |_| false).ok_or_else(usage)?;
    Ok(Command::Measure(if in_full { Plan::full(groups) } else { Plan::quick(groups) }))
}
