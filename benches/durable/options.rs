//! What is to be measured, and at which size.

use std::time::Duration;

/// Figures that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Cycles,
    Callers,
    Host,
    Full,
    Prompt,
    Idle,
}

const GROUPS: [(&str, Group); 6] = [
    ("cycles", Group::Cycles),
    ("callers", Group::Callers),
    ("host", Group::Host),
    ("full", Group::Full),
    ("prompt", Group::Prompt),
    ("idle", Group::Idle),
];

/// How much of everything.
pub(crate) struct Plan {
    groups: Vec<Group>,
    /// The only store to measure: for profiles.
    store: Option<String>,
    /// Whether the sizes are those that the goals are for.
    pub(crate) judges: bool,
    /// Rounds that count; one more comes before them.
    pub(crate) rounds: usize,
    /// Runs of a backlog.
    pub(crate) backlog: usize,
    /// Finished runs in a full file.
    pub(crate) finished: usize,
    /// Future runs in a full file.
    pub(crate) future: usize,
    /// Runs whose delay is taken.
    pub(crate) prompt: usize,
    /// How long an idle host is watched.
    pub(crate) idle: Duration,
    /// How long something is repeated that takes nanoseconds.
    pub(crate) span: Duration,
}

impl Plan {
    fn full() -> Self {
        Self {
            groups: Vec::new(),
            store: None,
            judges: true,
            rounds: 3,
            backlog: 100_000,
            finished: 1_000_000,
            future: 500_000,
            prompt: 500,
            idle: Duration::from_secs(10),
            span: Duration::from_millis(150),
        }
    }

    fn quick() -> Self {
        Self {
            judges: false,
            rounds: 1,
            backlog: 500,
            finished: 1_000,
            future: 500,
            prompt: 5,
            idle: Duration::from_millis(200),
            span: Duration::from_millis(2),
            ..Self::full()
        }
    }

    /// Whether this store is to be measured, and its baseline beside it: a profile of one is of it alone.
    pub(crate) fn wants_store(&self, name: &str) -> bool {
        self.store.as_ref().is_none_or(|store| *store == name)
    }

    /// Whether baselines are measured.
    pub(crate) fn compares(&self) -> bool {
        self.store.is_none()
    }

    pub(crate) fn wants(&self, group: Group) -> bool {
        self.groups.is_empty() || self.groups.contains(&group)
    }
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let arguments: Vec<String> = arguments.collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_bench = words.contains(&"--bench") && !words.contains(&"--quick");
    let mut plan = if is_bench { Plan::full() } else { Plan::quick() };
    for word in words.into_iter().filter(|word| !["--bench", "--quick"].contains(word)) {
        if let Some(runs) = word.strip_prefix("--runs=") {
            plan.backlog = runs.parse().map_err(|_| usage())?;
            plan.judges = false;
            continue;
        }
        if let Some(store) = word.strip_prefix("--store=") {
            plan.store = Some(store.to_owned());
            continue;
        }
        let group = GROUPS.iter().find(|(name, _)| *name == word).ok_or_else(usage)?;
        plan.groups.push(group.1);
    }
    Ok(plan)
}

fn usage() -> String {
    let names: Vec<&str> = GROUPS.iter().map(|(name, _)| *name).collect();
    format!(
        "usage: cargo bench -p tenure --bench durable -- [--quick] [--runs=NUMBER] [--store=full|normal|memory] \
         [{}]...",
        names.join("|")
    )
}
