//! Checks that `docs/FIELD_FAULTS.md` and the durable part of `docs/SCENARIOS.md` agree with the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// The groups of the field's faults, and how many each has.
const FIELD: &[(char, u32)] = &[('L', 32), ('S', 23), ('C', 13), ('K', 12), ('G', 16), ('D', 9), ('X', 3)];

/// The numbers of the contract of durable tasks.
const DURABLE: &[std::ops::RangeInclusive<u32>] = &[1..=5, 10..=12, 20..=24, 30..=38, 40..=45];

/// The faults of the peer that hosts and their interfaces are held to.
const PEER: std::ops::RangeInclusive<u32> = 1..=15;

/// The groups of the contract of ownership, and how many each has; the scenarios of the brief have numbers below them.
const OWNERSHIP: &[(&str, u32)] = &[
    ("S1.", 3),
    ("S2.", 4),
    ("S3.", 4),
    ("S4.", 6),
    ("S5.", 3),
    ("S6.", 10),
    ("S7.", 6),
    ("L", 24),
    ("P", 15),
    ("X", 12),
    ("U", 6),
    ("V", 9),
    ("M", 5),
    ("F", 2),
    ("I", 11),
];

/// How the reason begins why nothing proves a promise yet.
const REASON: &str = "later: ";

#[test]
fn every_fault_of_the_field_is_on_the_page_once_and_proved_or_says_why_not() -> io::Result<()> {
    let (page, tests) = (page("docs/FIELD_FAULTS.md")?, tests()?);
    for (group, count) in FIELD {
        for number in 1..=*count {
            let id = format!("{group}{number}");
            let rows: Vec<&Row> = page.iter().filter(|row| row.id == id).collect();
            let [row] = rows[..] else { panic!("{} rows for {id}, expected one", rows.len()) };
            let reason = row.proof.starts_with(REASON);
            assert!(reason || !row.named.is_empty(), "{id} names no test and no reason: \"{}\"", row.proof);
            for name in &row.named {
                assert!(tests.contains(name), "{id}: there is no test \"{name}\"");
            }
        }
    }
    let expected: u32 = FIELD.iter().map(|(_, count)| count).sum();
    assert_eq!(page.len(), usize::try_from(expected).unwrap_or(0), "rows that name no fault of the field");
    Ok(())
}

#[test]
fn no_test_carries_an_id_of_the_field_whose_row_says_that_nothing_proves_it() -> io::Result<()> {
    let page = page("docs/FIELD_FAULTS.md")?;
    for (id, name) in ids("field_", &tests()?) {
        let row = page.iter().find(|row| row.id == id);
        let row = row.unwrap_or_else(|| panic!("\"{name}\": there is no fault {id}"));
        assert!(!row.proof.starts_with(REASON), "\"{name}\" proves {id}: name it in docs/FIELD_FAULTS.md");
    }
    Ok(())
}

#[test]
fn every_promise_of_durable_tasks_is_on_the_page_and_proved() -> io::Result<()> {
    let (page, tests) = (page("docs/SCENARIOS.md")?, tests()?);
    let durable = DURABLE.iter().cloned().flatten().map(|number| format!("T{number}"));
    let expected: BTreeSet<String> = durable.chain(PEER.map(|number| format!("P{number}"))).collect();
    let listed = |row: &&Row| row.id.starts_with(['T', 'P']);
    let rows: Vec<&str> = page.iter().filter(listed).map(|row| row.id.as_str()).collect();
    assert_eq!(rows.len(), expected.len(), "{rows:?}");
    let proved = ids("task_", &tests);
    for id in &expected {
        assert!(rows.contains(&id.as_str()), "{id} is not in docs/SCENARIOS.md");
        assert!(proved.contains_key(id), "no test proves {id}");
    }
    for (id, name) in &proved {
        let known = !id.starts_with(['T', 'P']) || expected.contains(id);
        assert!(known, "\"{name}\": there is no promise {id}");
    }
    Ok(())
}

#[test]
fn every_promise_of_ownership_on_the_page_is_proved() -> io::Result<()> {
    let page = page("docs/SCENARIOS.md")?;
    let listed: BTreeSet<&str> = page.iter().filter_map(|row| row.id.strip_prefix("own ")).collect();
    let contract: BTreeSet<String> = OWNERSHIP
        .iter()
        .flat_map(|(group, count)| (1..=*count).map(move |number| format!("{group}{number}")))
        .collect();
    let contract: BTreeSet<&str> = contract.iter().map(String::as_str).collect();
    assert_eq!(listed, contract, "docs/SCENARIOS.md lists every promise of the contract of ownership");
    let proved = ids("own_", &tests()?);
    for id in &listed {
        assert!(proved.contains_key(*id), "no test proves own {id}");
    }
    for (id, name) in &proved {
        assert!(listed.contains(id.as_str()), "\"{name}\": own {id} is not in docs/SCENARIOS.md");
    }
    Ok(())
}

/// A row of a table.
struct Row {
    id: String,
    proof: String,
    /// Tests that it names.
    named: Vec<String>,
}

fn page(path: &str) -> io::Result<Vec<Row>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))?;
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let id = *cells.first()?;
        let is_id = id.ends_with(|c: char| c.is_ascii_digit());
        let proof = (*cells.get(2).unwrap_or(&"")).to_owned();
        let quoted = proof.split('`').skip(1).step_by(2);
        let named = quoted.filter(|name| carries_an_id(name)).map(str::to_owned).collect();
        is_id.then(|| Row { id: id.to_owned(), proof, named })
    };
    Ok(text.lines().filter_map(row).collect())
}

/// Ids that tests carry, each with one that does: `field_l16_x` carries L16.
fn ids(prefix: &str, tests: &BTreeSet<String>) -> BTreeMap<String, String> {
    let id = |name: &String| {
        let rest = name.strip_prefix(prefix)?.split('_').next()?;
        let (group, number) = rest.split_at_checked(1)?;
        let number: u32 = number.parse().ok()?;
        let id = format!("{}{number}", group.to_uppercase());
        // The scenarios of ownership have numbers below their own: `own_s1_2_x` carries S1.2.
        let below = name.strip_prefix("own_").and_then(|name| name.split('_').nth(1)?.parse::<u32>().ok());
        Some((below.map_or(id.clone(), |below| format!("{id}.{below}")), name.clone()))
    };
    tests.iter().filter_map(id).collect()
}

/// The names of all functions that carry an id: tests, and cases of the conformance suite.
fn tests() -> io::Result<BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = BTreeSet::new();
    for folder in ["src", "tests"] {
        collect(&root.join(folder), &mut names)?;
    }
    Ok(names)
}

fn carries_an_id(name: &str) -> bool {
    ["field_", "task_", "own_"].iter().any(|kind| name.starts_with(kind))
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path)?;
            let functions = source.lines().filter_map(|line| line.split("fn ").nth(1)?.split('(').next());
            names.extend(functions.filter(|name| carries_an_id(name)).map(str::to_owned));
        }
    }
    Ok(())
}
