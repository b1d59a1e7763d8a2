//! What every benchmark is told: which groups of figures, and whether at the sizes that the goals are for.

use std::time::Duration;

/// Figures that are measured together, each with its word.
pub(crate) type Words<G> = [(&'static str, G)];

/// Which groups are to be measured: all, unless some are named.
pub(crate) struct Groups<G>(Vec<G>);

impl<G: PartialEq> Groups<G> {
    pub(crate) fn wants(&self, group: G) -> bool {
        self.0.is_empty() || self.0.contains(&group)
    }
}

/// What every plan has.
pub(crate) struct Scale {
    /// Whether the sizes are those that the goals are for.
    pub(crate) judges: bool,
    /// Rounds that count; one more comes before them.
    pub(crate) rounds: usize,
    /// How long something is repeated that takes nanoseconds.
    pub(crate) span: Duration,
}

impl Scale {
    pub(crate) fn full(rounds: usize) -> Self {
        Self { judges: true, rounds, span: Duration::from_millis(150) }
    }

    pub(crate) fn quick() -> Self {
        Self { judges: false, rounds: 1, span: Duration::from_millis(2) }
    }
}

/// Reads the command line: whether everything is to be measured in full, and which groups. What names no group is
/// offered to `other`. None if something was not understood.
pub(crate) fn read<G: Copy>(
    given: impl Iterator<Item = String>,
    words: &Words<G>,
    mut other: impl FnMut(&str) -> bool,
) -> Option<(bool, Groups<G>)> {
    let given: Vec<String> = given.collect();
    let is_given = |word: &str| given.iter().any(|given| given == word);
    // Cargo says `--bench` when it is to be measured, and nothing when it is only tested.
    let in_full = is_given("--bench") && !is_given("--quick");
    let mut groups = Vec::new();
    for word in given.iter().filter(|word| !["--bench", "--quick"].contains(&word.as_str())) {
        match words.iter().find(|(name, _)| name == word) {
            Some((_, group)) => groups.push(*group),
            None if other(word) => {}
            None => return None,
        }
    }
    Some((in_full, Groups(groups)))
}

/// How it is called.
pub(crate) fn usage<G>(command: &str, more: &str, words: &Words<G>) -> String {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    format!("usage: {command} -- [--quick] {more}[{}]...", names.join("|"))
}
