//! What is to be measured, and at which size.

use std::ops::Deref;

use crate::arguments::{self, Groups, Scale};
use crate::flavour::Flavour;
use crate::memory::{Load, Variant};

/// Figures that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Start,
    Close,
    Memory,
    Get,
    Commit,
    Reserve,
    Keys,
}

const GROUPS: [(&str, Group); 7] = [
    ("start", Group::Start),
    ("close", Group::Close),
    ("memory", Group::Memory),
    ("get", Group::Get),
    ("commit", Group::Commit),
    ("reserve", Group::Reserve),
    ("keys", Group::Keys),
];

pub(crate) enum Command {
    Measure(Plan),
    /// Asked by the program itself, of a fresh copy of itself.
    WeighOne(Load),
    /// Nothing but so many lives of one variant: for profiles.
    LiveOne(Load),
}

/// How much of everything.
pub(crate) struct Plan {
    groups: Groups<Group>,
    scale: Scale,
    /// Processes, operations or keys.
    pub(crate) many: usize,
    /// A tenth of it.
    pub(crate) few: usize,
    /// Pairs of a reservation and a release.
    pub(crate) pairs: usize,
}

impl Deref for Plan {
    type Target = Scale;

    fn deref(&self) -> &Scale {
        &self.scale
    }
}

impl Plan {
    fn full(groups: Groups<Group>) -> Self {
        Self { groups, scale: Scale::full(5), many: 100_000, few: 10_000, pairs: 50_000 }
    }

    fn quick(groups: Groups<Group>) -> Self {
        Self { groups, scale: Scale::quick(), many: 1_000, few: 100, pairs: 500 }
    }

    pub(crate) fn wants(&self, group: Group) -> bool {
        self.groups.wants(group)
    }
}

pub(crate) fn parse(given: impl Iterator<Item = String>) -> Result<Command, String> {
    let given: Vec<String> = given.collect();
    let words: Vec<&str> = given.iter().map(String::as_str).collect();
    if let [word @ (WEIGH | LIVE), variant, flavour, count] = words[..] {
        let command = if word == WEIGH { Command::WeighOne } else { Command::LiveOne };
        return load(variant, flavour, count).map(command).ok_or_else(usage);
    }
    let (in_full, groups) = arguments::read(given.into_iter(), &GROUPS, |_| false).ok_or_else(usage)?;
    Ok(Command::Measure(if in_full { Plan::full(groups) } else { Plan::quick(groups) }))
}

pub(crate) const WEIGH: &str = "--weigh-one";
const LIVE: &str = "--live-one";

fn load(variant: &str, flavour: &str, count: &str) -> Option<Load> {
    let (variant, flavour) = (Variant::from_name(variant)?, Flavour::from_name(flavour)?);
    Some(Load { variant, flavour, count: count.parse().ok()? })
}

fn usage() -> String {
    arguments::usage("cargo bench -p tenure-actors", "", &GROUPS)
}
