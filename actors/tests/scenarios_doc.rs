//! Checks that the page of scenarios and the tests agree.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// The groups of the contract: letter, prefix of test names, how many.
const GROUPS: &[(char, &str, u32)] = &[('R', "reg_r", 42), ('O', "op_o", 24), ('C', "sup_c", 8)];

#[test]
fn every_scenario_is_on_the_page_once() -> io::Result<()> {
    let page = page()?;
    for (letter, _, count) in GROUPS {
        for number in 1..=*count {
            let rows = page.lines().filter(|line| line.starts_with(&format!("| {letter}{number} |"))).count();
            assert_eq!(rows, 1, "expected one row for {letter}{number} in docs/SCENARIOS.md");
        }
    }
    Ok(())
}

#[test]
fn every_scenario_is_proved_by_a_test_of_its_name() -> io::Result<()> {
    let names = test_names(&here().join("tests"))?;
    let unproved: Vec<String> = GROUPS
        .iter()
        .flat_map(|(_, prefix, count)| (1..=*count).map(move |number| format!("{prefix}{number:02}_")))
        .filter(|prefix| !names.iter().any(|name| name.starts_with(prefix.as_str())))
        .collect();
    assert!(unproved.is_empty(), "no test proves: {}", unproved.join(", "));
    Ok(())
}

#[test]
fn no_test_carries_an_id_that_is_not_in_the_contract() -> io::Result<()> {
    for name in test_names(&here().join("tests"))? {
        for (letter, prefix, count) in GROUPS {
            let number = name.strip_prefix(prefix).and_then(|rest| rest.split('_').next()?.parse().ok());
            assert!(
                number.is_none_or(|number: u32| (1..=*count).contains(&number)),
                "{name}: no {letter} of that number"
            );
        }
    }
    Ok(())
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> io::Result<String> {
    fs::read_to_string(here().join("../docs/SCENARIOS.md"))
}

/// The names of all functions below a folder that are tests by their attribute.
fn test_names(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            names.extend(test_names(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(tests_in(&fs::read_to_string(&path)?));
        }
    }
    Ok(names)
}

fn tests_in(source: &str) -> Vec<String> {
    let mut is_test = false;
    let mut names = Vec::new();
    for line in source.lines().map(str::trim) {
        let function = line.trim_start_matches("pub ").trim_start_matches("async ").strip_prefix("fn ");
        match function {
            Some(rest) if is_test => {
                names.extend(rest.split('(').next().map(str::to_owned));
                is_test = false;
            }
            Some(_) => is_test = false,
            None => is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test"),
        }
    }
    names
}
