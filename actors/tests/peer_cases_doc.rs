//! `docs/PEER_CASES.md` names a test, or a reason, for every case of the peers' suites. This checks that it
//! does: each case once, and every test it names exists.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is how a test fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// How many cases of each group the contract has.
const CASES: [(&str, usize); 10] = [
    ("OS", 52),
    ("ES", 8),
    ("ED", 24),
    ("ER", 25),
    ("ET", 26),
    ("EP", 8),
    ("PS", 51),
    ("PW", 26),
    ("PC", 33),
    ("PB", 31),
];

/// A line of a table.
struct Case {
    id: String,
    here: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn cases() -> Vec<Case> {
    let doc = fs::read_to_string(root().join("docs/PEER_CASES.md")).expect("the list of cases");
    let case = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let (id, here) = (cells.next()?.trim(), cells.next()?.trim());
        let is_id =
            id.len() == 5 && id[2..].starts_with('-') && id[3..].chars().all(|digit| digit.is_ascii_digit());
        is_id.then(|| Case { id: id.to_owned(), here: here.to_owned() })
    };
    doc.lines().filter_map(case).collect()
}

/// The text of every test source.
fn sources() -> String {
    let mut text = String::new();
    let mut folders = vec![root().join("actors/tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the tests") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(path).expect("a source"));
            }
        }
    }
    text
}

/// The test that a case names, if it names one: `` `peer_os_41_...` ``.
fn test_of(case: &Case) -> Option<&str> {
    case.here.strip_prefix('`')?.split('`').next()
}

#[test]
fn every_case_of_the_peers_is_listed_once_and_in_order() {
    let mut listed = BTreeMap::new();
    for case in cases() {
        listed.entry(case.id[..2].to_owned()).or_insert_with(Vec::new).push(case.id);
    }
    for (group, expected) in CASES {
        let ids = listed.remove(group).unwrap_or_default();
        assert!(ids.is_sorted_by(|first, second| first < second), "{group}: not in order, or twice: {ids:?}");
        assert_eq!(ids.len(), expected, "{group}: cases were lost or invented");
    }
    assert!(listed.is_empty(), "unknown groups: {listed:?}");
}

#[test]
fn every_case_names_a_test_that_exists_or_a_reason() {
    let sources = sources();
    let broken: Vec<_> = cases()
        .iter()
        .filter(|case| match test_of(case) {
            Some(test) => !sources.contains(&format!("fn {test}(")),
            None => case.here.strip_prefix("not offered: ").is_none_or(|reason| reason.len() < 10),
        })
        .map(|case| format!("{}: {}", case.id, case.here))
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_test_that_carries_a_case_says_so_and_is_listed_for_it() {
    let listed: BTreeMap<_, _> = cases().into_iter().map(|case| (case.id.clone(), case)).collect();
    let mut proved = Vec::new();
    for line in sources().lines() {
        if let Some(ids) = line.trim().strip_prefix("/// peer: ") {
            proved.extend(ids.split(", ").map(str::to_owned));
        }
    }
    assert!(proved.len() > 50, "the doc comments of the tests are read");
    for id in proved {
        let case = listed.get(&id).unwrap_or_else(|| panic!("{id} is not listed"));
        assert!(test_of(case).is_some(), "{id} is proved by a test, and listed as {}", case.here);
    }
}
