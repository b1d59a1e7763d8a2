//! What is to be measured, and at which size.

use std::time::Duration;

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
    groups: Vec<Group>,
    /// Whether the sizes are those that the goals are for.
    pub(crate) judges: bool,
    /// Rounds that count; one more comes before them.
    pub(crate) rounds: usize,
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
    /// How long something is repeated that takes nanoseconds.
    pub(crate) span: Duration,
}

impl Plan {
    fn full() -> Self {
        Self {
            groups: Vec::new(),
            judges: true,
            rounds: 3,
            existing: 100_000,
            starts: 10,
            one: 1_000,
            waited: 64 * 500,
            enqueued: 64 * 1_500,
            streams: 1_000,
            listed: 1_000_000,
            lists: 20,
            span: Duration::from_millis(150),
        }
    }

    fn quick() -> Self {
        Self {
            groups: Vec::new(),
            judges: false,
            rounds: 1,
            existing: 500,
            starts: 1,
            one: 10,
            waited: 64 * 2,
            enqueued: 64 * 2,
            streams: 20,
            listed: 1_000,
            lists: 2,
            span: Duration::from_millis(2),
        }
    }

    pub(crate) fn wants(&self, group: Group) -> bool {
        self.groups.is_empty() || self.groups.contains(&group)
    }
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let arguments: Vec<String> = arguments.collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if words == [SERVE] {
        return Ok(Command::Serve);
    }
    let is_bench = words.contains(&"--bench") && !words.contains(&"--quick");
    let mut plan = if is_bench { Plan::full() } else { Plan::quick() };
    for word in words.into_iter().filter(|word| !["--bench", "--quick"].contains(word)) {
        let group = GROUPS.iter().find(|(name, _)| *name == word).ok_or_else(usage)?;
        plan.groups.push(group.1);
    }
    Ok(Command::Measure(plan))
}

fn usage() -> String {
    let names: Vec<&str> = GROUPS.iter().map(|(name, _)| *name).collect();
    format!("usage: cargo bench -p tenure --bench http -- [--quick] [{}]...", names.join("|"))
}
