//! `docs/LIFECYCLE.md` says what the rules say.
#![allow(clippy::unwrap_used, reason = "a test says so by panicking")]

use std::fmt::Write as _;
use std::path::Path;

use tenure::model::RunStatus::{self, *};
use tenure::rules::allowed;

/// Every arrow: who moves the run, and when.
const ARROWS: &[(RunStatus, RunStatus, &str, &str)] = &[
    (Queued, Claimed, "an instance", "it is due, its lanes have room, the instance has its agent"),
    (Queued, Running, "its former owner", "it proves by the lost token that the run was its own: reinstated"),
    (Queued, Timeout, "the sweep", "its deadline passed while it waited"),
    (Queued, Cancelled, "a caller", "somebody wants it cancelled"),
    (Queued, Skipped, "nobody now", "lawful, but a run that an overlap skips is skipped when it is made"),
    (Claimed, Queued, "the owner, the sweep", "it was given back before it began, or the owner is gone"),
    (Claimed, Running, "the owner", "its attempt begins"),
    (Claimed, Failed, "the sweep", "the owner is gone, and the interruptions are spent"),
    (Claimed, Timeout, "the sweep", "its deadline passed before it began"),
    (Claimed, Cancelled, "the owner, a caller by force, the sweep", "somebody wants it cancelled"),
    (Running, Queued, "the owner", "its attempt was interrupted: no retry is spent"),
    (
        Running,
        Retrying,
        "the owner",
        "its attempt failed or ran out of time, and is tried again after a delay",
    ),
    (Running, AwaitingApproval, "the owner", "its attempt ended with a question"),
    (Running, Completed, "the owner", "its attempt ended with a result"),
    (
        Running,
        Failed,
        "the owner",
        "its attempt failed and is not tried again, or the interruptions are spent",
    ),
    (Running, Timeout, "the owner, the sweep", "time ran out, and it is not tried again"),
    (Running, Cancelled, "the owner, a caller by force, the sweep", "somebody wants it cancelled"),
    (Running, Lost, "the sweep", "its lease lapsed: the owner is gone or cut off"),
    (Retrying, Claimed, "an instance", "the delay is over, and it is claimed again"),
    (Retrying, Timeout, "the sweep", "its deadline passed while it waited"),
    (Retrying, Cancelled, "a caller", "somebody wants it cancelled"),
    (AwaitingApproval, Queued, "a caller", "a person answered"),
    (AwaitingApproval, Timeout, "the sweep", "its deadline passed while it waited"),
    (AwaitingApproval, Cancelled, "a caller", "somebody wants it cancelled"),
    (Lost, Queued, "the sweep", "it is tried again: no retry is spent"),
    (Lost, Running, "its former owner", "it proves by the lost token that the run was its own: reinstated"),
    (Lost, Failed, "the sweep", "the interruptions are spent, or its deadline has passed"),
    (Lost, Cancelled, "a caller", "somebody wants it cancelled"),
];

#[test]
fn the_page_names_every_arrow_of_the_rules_and_no_other() {
    for from in RunStatus::ALL {
        for to in RunStatus::ALL {
            let named = ARROWS.iter().filter(|arrow| (arrow.0, arrow.1) == (from, to)).count();
            assert_eq!(named, usize::from(allowed(from, to)), "{from} to {to}");
        }
    }
}

#[test]
fn the_page_is_what_the_rules_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/LIFECYCLE.md");
    let page = page();
    if std::env::var_os("TENURE_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/LIFECYCLE.md does not say what the rules say: write it anew with \
         `TENURE_BLESS=1 cargo test --test lifecycle_doc`, and read what changed"
    );
}

fn page() -> String {
    let mut page = String::from(
        "# The life of a run\n\n\
         Written by `tests/lifecycle_doc.rs` from the rules in `src/rules/transition.rs`; write it anew with\n\
         `TENURE_BLESS=1 cargo test --test lifecycle_doc`.\n\n## States\n\n\
         | state | waits to be claimed | has an owner | takes room in its lanes | settled | final |\n\
         |---|---|---|---|---|---|\n",
    );
    let mark = |yes: bool| if yes { "yes" } else { "" };
    for status in RunStatus::ALL {
        let facts = [
            status.is_waiting(),
            status.is_held(),
            status.takes_room(),
            status.is_settled(),
            status.is_terminal(),
        ];
        writeln!(page, "| `{status}` | {} |", facts.map(mark).join(" | ")).unwrap();
    }
    page.push_str(
        "\nA run that takes room makes others of its lanes wait: its task, its fixed session, its concurrency\n\
         key. Who waits for a settled run is answered. A final run never changes again; doing it again makes a\n\
         new run.\n\n## Arrows\n\n| from | to | who moves it | when |\n|---|---|---|---|\n",
    );
    for (from, to, who, when) in ARROWS {
        writeln!(page, "| `{from}` | `{to}` | {who} | {when} |").unwrap();
    }
    page.push_str(
        "\nOne write takes one step, or passes through `lost`: whoever declares an owner gone also says how the run\n\
         goes on, and both are told as events. Every write by an owner shows its fencing token.\n\n\
         ```mermaid\nstateDiagram-v2\n    [*] --> queued\n    [*] --> skipped\n",
    );
    for (from, to, ..) in ARROWS {
        writeln!(page, "    {from} --> {to}").unwrap();
    }
    for status in RunStatus::ALL.into_iter().filter(|status| status.is_terminal()) {
        writeln!(page, "    {status} --> [*]").unwrap();
    }
    page.push_str("```\n");
    page
}
