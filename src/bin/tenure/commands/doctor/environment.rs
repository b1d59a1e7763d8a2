//! Whether there are variables of the environment that look like settings and are none.

use super::Finding;
use crate::commands::near::nearest;
use crate::config::TABLE;

/// What is no setting: of the command line, and what agents are told.
const OTHERS: &[&str] = &[
    "TENURE_AGENT_ID",
    "TENURE_APPROVAL",
    "TENURE_ATTEMPT",
    "TENURE_BLESS",
    "TENURE_CONFIG",
    "TENURE_DEADLINE",
    "TENURE_FENCE",
    "TENURE_PROGRESS",
    "TENURE_PROGRESS_TOKEN",
    "TENURE_QUERY",
    "TENURE_RUN_ID",
    "TENURE_SESSION_ID",
    "TENURE_TASK_ID",
    "TENURE_URL",
];

pub(super) fn look() -> Vec<Finding> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter_map(|name| unknown(&name)).collect()
}

/// What is wrong with the name, if it is one of this program's.
fn unknown(name: &str) -> Option<Finding> {
    let known = || TABLE.iter().map(|setting| setting.env).chain(OTHERS.iter().copied());
    if !name.starts_with("TENURE_") || known().any(|known| known == name) {
        return None;
    }
    let finding = Finding::warn("variable", format!("{name} is no setting: it says nothing"));
    let near = nearest(name, known());
    Some(match near.first() {
        Some(near) => finding.hint(format!("did you mean {near}? `tenure config` shows them all")),
        None => finding.hint("`tenure config` shows the settings and their variables"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_variable_is_told_with_the_one_that_is_meant() {
        let hint = unknown("TENURE_LISTN").and_then(|finding| finding.hint).unwrap();
        assert!(hint.contains("did you mean TENURE_LISTEN?"), "{hint}");
        let far = unknown("TENURE_SOMETHING_ELSE_ENTIRELY").and_then(|finding| finding.hint).unwrap();
        assert!(!far.contains("did you mean"), "{far}");
        for name in ["TENURE_STORE", "TENURE_URL", "TENURE_RUN_ID", "PATH"] {
            assert!(unknown(name).is_none(), "{name}");
        }
    }
}
