//! Names that are near one that is not there.

use serde_json::Value;

use super::common::Session;
use crate::client::Ask;
use crate::exit::Failure;

/// How many names are looked at, and told.
const LOOKED_AT: usize = 100;
const TOLD: usize = 3;

/// The same failure, with tasks that it may have been about.
pub(super) async fn task(session: &Session, failure: Failure, name: &str) -> Failure {
    or_near(session, failure, name, ["tasks"], "task_id").await
}

/// The same failure, with agents that it may have been about.
pub(super) async fn agent(session: &Session, failure: Failure, name: &str) -> Failure {
    or_near(session, failure, name, ["agents"], "agent_id").await
}

/// The same failure, with where the names of runs are found.
pub(super) fn run(failure: Failure) -> Failure {
    or_hint(failure, "`tenure runs list` shows the runs there are")
}

/// The same failure, with what it says already or else this.
pub(super) fn or_hint(failure: Failure, hint: impl Into<String>) -> Failure {
    if failure.hint.is_some() { failure } else { failure.hint(hint) }
}

async fn or_near(session: &Session, failure: Failure, name: &str, path: [&str; 1], field: &str) -> Failure {
    let kind = path[0];
    let list = format!("`tenure {kind} list` shows the {kind} there are");
    // The failure is what matters: it is told also where this finds nothing.
    let Ok(answer) = session.client.ask(Ask::get(path)).await else { return failure };
    let Ok(answer) = answer.value() else { return failure };
    let entries = answer.get(kind).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let names = entries.iter().take(LOOKED_AT).filter_map(|entry| entry.get(field)?.as_str());
    let near = nearest(name, names);
    if near.is_empty() {
        return failure.hint(list);
    }
    let near: Vec<String> = near.into_iter().map(|name| format!("\"{name}\"")).collect();
    failure.hint(format!("did you mean {}? {list}", near.join(" or ")))
}

/// The names that differ least, if they differ little.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let most = (name.chars().count() / 2).clamp(1, 3);
    let mut found: Vec<(usize, &str)> = names
        .map(|other| (distance(name, other), other))
        .filter(|(distance, other)| *distance <= most || (name.len() >= 3 && other.contains(name)))
        .collect();
    found.sort_unstable();
    found.into_iter().take(TOLD).map(|(_, other)| other).collect()
}

/// How many letters have to be put in, taken out, replaced, to come from one to the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], n + 1);
        for (m, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[m + 1];
            row[m + 1] = replaced.min(row[m] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_little_are_near() {
        let names = ["nightly-report", "nightly-backup", "ping", "weekly"];
        let near = |name| nearest(name, names.into_iter());
        assert_eq!(near("nightly-rport"), ["nightly-report"]);
        assert_eq!(near("pong"), ["ping"]);
        assert_eq!(near("pnig"), ["ping"]);
        assert_eq!(near("nightly"), ["nightly-backup", "nightly-report"]);
        assert!(near("x").is_empty());
        assert!(near("").is_empty());
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
