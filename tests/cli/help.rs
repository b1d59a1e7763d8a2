//! The help of every command: whole, and with an example.

use crate::program::Place;

/// Every command that does something, and the groups.
const COMMANDS: &[&str] = &[
    "tasks",
    "tasks list",
    "tasks show",
    "tasks add",
    "tasks edit",
    "tasks run",
    "tasks pause",
    "tasks resume",
    "tasks delete",
    "tasks occurrences",
    "runs",
    "runs list",
    "runs show",
    "runs cat",
    "runs wait",
    "runs cancel",
    "runs retry",
    "runs resume",
    "events",
    "agents",
    "agents list",
    "agents show",
    "agents add",
    "agents delete",
    "tree",
    "status",
    "doctor",
    "store",
    "store migrate",
    "store check",
    "store prune",
    "completions",
];

#[test]
fn the_help_of_every_command_says_what_it_does() {
    let place = Place::new();
    for command in COMMANDS {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let said = place.run(&words).well();
        insta::assert_snapshot!(format!("help_{}", command.replace(' ', "_")), own(&said.out));
    }
}

#[test]
fn the_help_of_every_command_has_an_example() {
    let place = Place::new();
    let page = place.run(&["reference"]).well().out;
    let (_, sections) = page.split_once("## Times and lengths of time").unwrap();
    let mut seen = 0;
    for section in sections.split("\n## tenure ").skip(1) {
        let name = section.lines().next().unwrap();
        assert!(section.contains("\n```sh\ntenure "), "`tenure {name}` has no example");
        seen += 1;
    }
    assert!(seen >= 30, "{seen} commands were seen");
}

#[test]
fn every_example_can_be_typed() {
    let place = Place::new();
    let page = place.run(&["reference"]).well().out;
    let examples = page.split("\n```sh\n").skip(1).map(|block| block.split("\n```").next().unwrap());
    let mut seen = 0;
    for line in
        examples.flat_map(|block| block.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>())
    {
        let typed = line.split(['|', '<', '>']).next().unwrap().split(" &&").next().unwrap();
        let words: Vec<String> =
            crate::program::words(typed).into_iter().skip(1).chain(["--help".to_owned()]).collect();
        let said = place.run(&words);
        assert_eq!(said.code(), 0, "{line}\n{}", said.err);
        seen += 1;
    }
    assert!(seen >= 40, "{seen} examples were seen");
}

#[test]
fn completions_are_made_for_every_shell() {
    let place = Place::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = place.run(&["completions", shell]).well().out;
        for word in ["occurrences", "migrate", "doctor"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
    assert_eq!(place.run(&["completions", "tcsh"]).code(), 2);
}

/// Without what every command takes.
fn own(help: &str) -> String {
    let (before, everywhere) = help.split_once("\nEverywhere:\n").unwrap_or((help, ""));
    let after = everywhere.find("\nExample").map_or("", |at| &everywhere[at..]);
    format!("{before}{after}")
}
