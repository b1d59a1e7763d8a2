//! What is to be measured, and at which size.

use std::ops::Deref;
use std::time::Duration;

use crate::arguments::{self, Groups, Scale};
use crate::stores::Kind;

/// Figures that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Cycles,
    Callers,
    Host,
    Two,
    Full,
    Prompt,
    Idle,
    Kept,
    Leases,
    Replicas,
    Bytes,
}

const GROUPS: [(&str, Group); 11] = [
    ("cycles", Group::Cycles),
    ("callers", Group::Callers),
    ("host", Group::Host),
    ("two", Group::Two),
    ("full", Group::Full),
    ("prompt", Group::Prompt),
    ("idle", Group::Idle),
    ("kept", Group::Kept),
    ("leases", Group::Leases),
    ("replicas", Group::Replicas),
    ("bytes", Group::Bytes),
];

/// How much of everything.
pub(crate) struct Plan {
    groups: Groups<Group>,
    scale: Scale,
    /// The only stores to measure.
    stores: Vec<Kind>,
    /// Whether baselines are measured: not for a profile, which is of one store alone.
    compares: bool,
    /// Runs of a backlog.
    pub(crate) backlog: usize,
    /// Finished runs in a full file.
    pub(crate) finished: usize,
    /// Future runs in a full file.
    pub(crate) future: usize,
    /// Runs that are held, and as many that are blocked, beside them.
    pub(crate) held: usize,
    /// Runs whose delay is taken.
    pub(crate) prompt: usize,
    /// Leases that are renewed at once.
    pub(crate) leases: usize,
    /// Runs whose cancel is waited for without a hint: each takes up to a heartbeat.
    pub(crate) unheard: usize,
    /// Tasks and runs of which it is told what a host keeps.
    pub(crate) kept: usize,
    /// How long an idle host is watched.
    pub(crate) idle: Duration,
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
            stores: Vec::new(),
            compares: true,
            backlog: 100_000,
            finished: 1_000_000,
            future: 500_000,
            held: 100_000,
            prompt: 500,
            leases: 10_000,
            unheard: 30,
            kept: 20_000,
            idle: Duration::from_secs(10),
        }
    }

    fn quick(groups: Groups<Group>) -> Self {
        Self {
            scale: Scale::quick(),
            backlog: 500,
            finished: 1_000,
            future: 500,
            held: 100,
            prompt: 5,
            leases: 500,
            unheard: 1,
            kept: 200,
            idle: Duration::from_millis(200),
            ..Self::full(groups)
        }
    }

    /// Whether this store is to be measured. What needs a server that this machine has not is left out, and said.
    pub(crate) fn wants_store(&self, kind: Kind) -> bool {
        (self.stores.is_empty() || self.stores.contains(&kind)) && kind.is_there()
    }

    /// Of these, those that are to be measured.
    pub(crate) fn stores<const N: usize>(&self, kinds: [Kind; N]) -> impl Iterator<Item = Kind> + '_ {
        kinds.into_iter().filter(|kind| self.wants_store(*kind))
    }

    /// Whether baselines are measured.
    pub(crate) fn compares(&self) -> bool {
        self.compares
    }

    pub(crate) fn wants(&self, group: Group) -> bool {
        self.groups.wants(group)
    }
}

pub(crate) fn parse(given: impl Iterator<Item = String>) -> Result<Plan, String> {
    let (mut runs, mut stores, mut compares) = (None, Vec::new(), true);
    let other = |word: &str| {
        if let Some(number) = word.strip_prefix("--runs=") {
            runs = number.parse().ok();
            return runs.is_some();
        }
        compares = !word.starts_with("--alone=");
        let words = word.strip_prefix("--alone=").or(word.strip_prefix("--stores="));
        let named = words.and_then(|words| words.split(',').map(Kind::from_word).collect::<Option<Vec<_>>>());
        stores.extend(named.iter().flatten());
        named.is_some()
    };
    let (in_full, groups) = arguments::read(given, &GROUPS, other).ok_or_else(usage)?;
    let mut plan = if in_full { Plan::full(groups) } else { Plan::quick(groups) };
    (plan.stores, plan.compares) = (stores, compares);
    if let Some(runs) = runs {
        plan.backlog = runs;
        plan.scale.judges = false;
    }
    Ok(plan)
}

fn usage() -> String {
    let stores: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
    let more = format!("[--runs=NUMBER] [--stores={0}] [--alone={0}] ", stores.join(","));
    arguments::usage("cargo bench -p tenure --bench durable", &more, &GROUPS)
}
