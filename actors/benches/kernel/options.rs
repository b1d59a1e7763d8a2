//! What is to be measured, and at which size.

use std::time::Duration;

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
    groups: Vec<Group>,
    /// Whether the sizes are those that the goals are for.
    pub(crate) judges: bool,
    /// Rounds that count; one more comes before them.
    pub(crate) rounds: usize,
    /// Processes, operations or keys.
    pub(crate) many: usize,
    /// A tenth of it.
    pub(crate) few: usize,
    /// Pairs of a reservation and a release.
    pub(crate) pairs: usize,
    /// How long something is repeated that takes nanoseconds.
    pub(crate) span: Duration,
}

impl Plan {
    fn full() -> Self {
        Self {
            groups: Vec::new(),
            judges: true,
            rounds: 5,
            many: 100_000,
            few: 10_000,
            pairs: 50_000,
            span: Duration::from_millis(150),
        }
    }

    fn quick() -> Self {
        let (rounds, many, few, pairs) = (1, 1_000, 100, 500);
        Self { groups: Vec::new(), judges: false, rounds, many, few, pairs, span: Duration::from_millis(2) }
    }

    pub(crate) fn wants(&self, group: Group) -> bool {
        self.groups.is_empty() || self.groups.contains(&group)
    }
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let arguments: Vec<String> = arguments.collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let [word @ (WEIGH | LIVE), variant, flavour, count] = words[..] {
        let command = if word == WEIGH { Command::WeighOne } else { Command::LiveOne };
        return load(variant, flavour, count).map(command).ok_or_else(usage);
    }
    let is_bench = words.contains(&"--bench") && !words.contains(&"--quick");
    let mut plan = if is_bench { Plan::full() } else { Plan::quick() };
    for word in words.into_iter().filter(|word| !["--bench", "--quick"].contains(word)) {
        let group = GROUPS.iter().find(|(name, _)| *name == word).ok_or_else(usage)?;
        plan.groups.push(group.1);
    }
    Ok(Command::Measure(plan))
}

pub(crate) const WEIGH: &str = "--weigh-one";
const LIVE: &str = "--live-one";

fn load(variant: &str, flavour: &str, count: &str) -> Option<Load> {
    let (variant, flavour) = (Variant::from_name(variant)?, Flavour::from_name(flavour)?);
    Some(Load { variant, flavour, count: count.parse().ok()? })
}

fn usage() -> String {
    let names: Vec<&str> = GROUPS.iter().map(|(name, _)| *name).collect();
    format!("usage: cargo bench -p tenure-actors -- [--quick] [{}]...", names.join("|"))
}
