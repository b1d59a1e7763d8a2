//! Looking after the store and the set-up.

use crate::program::{Place, masked};

const STORE: &str = ".tenure/tenure.db";

/// An agent whose program is everywhere, and a task of it.
const CONFIG: &str = "[agents.echo]\nkind = \"command\"\ncommand = [\"cat\"]\n";

fn database(place: &Place) -> rusqlite::Connection {
    rusqlite::Connection::open(place.path().join(STORE)).unwrap()
}

#[test]
fn a_store_is_made_and_brought_up_to_date() {
    let place = Place::new();
    let lines =
        ["store migrate", "store migrate", "store migrate --json", "store check", "store check --json"];
    insta::assert_snapshot!(place.told_all(&lines));
}

#[test]
fn a_store_of_a_newer_program_is_left_alone() {
    let place = Place::new();
    place.run(&["store", "migrate"]).well();
    let database = database(&place);
    let newer = "INSERT INTO schema_migrations SELECT 99, '0099_later', checksum, applied_at \
        FROM schema_migrations LIMIT 1";
    database.execute(newer, []).unwrap();
    insta::assert_snapshot!(place.told_all(&["store migrate", "store check", "tasks list"]));
    let doctor = place.run(&["doctor"]);
    assert_eq!(doctor.code(), 1);
    assert!(doctor.out.contains("its schema has version 99"), "{}", doctor.out);
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let place = Place::new();
    std::fs::create_dir(place.path().join(".tenure")).unwrap();
    place.write(
        STORE,
        "this is a letter to my mother, and it is long enough to be taken for a database of pages",
    );
    insta::assert_snapshot!(place.told_all(&["store check", "tasks list", "store migrate"]));
    let database = rusqlite::Connection::open(place.path().join("other.db")).unwrap();
    database.execute_batch("CREATE TABLE letters (text TEXT)").unwrap();
    let told = place.told("tasks list --store sqlite:other.db");
    assert!(told.contains("is a database of another program"), "{told}");
}

#[test]
fn what_is_wrong_with_a_store_is_found_and_made_good() {
    let place = Place::with(CONFIG);
    place.run(&["tasks", "add", "t", "--agent", "echo", "--query", "hello"]).well();
    place.run(&["tasks", "run", "t"]).well();
    database(&place).execute("UPDATE counters SET n = n + 5", []).unwrap();
    let lines = ["store check", "store check --json", "store check --repair", "store check"];
    insta::assert_snapshot!(place.told_all(&lines));
}

#[test]
fn task_p15_finished_runs_are_pruned_with_their_age_or_number() {
    let place = Place::with(CONFIG);
    place
        .run(&["tasks", "add", "t", "--agent", "echo", "--query", "q", "--overlap", "allow_parallel"])
        .well();
    for _ in 0..5 {
        let run = place.run(&["tasks", "run", "t", "-q"]).well().out;
        place.run(&["runs", "cancel", run.trim()]).well();
    }
    place.run(&["tasks", "run", "t"]).well();
    let told = place.told_all(&[
        "store prune",
        "store prune --before 1h",
        "store prune --keep 3 --dry-run",
        "store prune --before now --dry-run --json",
        "store prune --keep 3 --json",
        "store prune --before now",
        "store prune --before tomorow",
    ]);
    insta::assert_snapshot!(told);
    let left = place.run(&["runs", "list", "--json"]).well().json();
    assert_eq!(left["total"], 1, "what has not ended is kept: {left}");
}

#[test]
fn the_doctor_says_what_is_wrong_and_what_to_do() {
    let place = Place::with(
        "[server]\nlisten = \"127.0.0.1:1\"\n\
         [worker]\nlease = \"2s\"\n\
         [agents.echo]\nkind = \"command\"\ncommand = [\"no-such-program\"]\n\
         [agents.writer]\nkind = \"chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n\
         api_key_env = \"NO_SUCH_KEY\"\n",
    );
    let before = place.run(&["doctor"]);
    place.run(&["store", "migrate"]).well();
    let after = place.run(&["doctor"]);
    assert_eq!((before.code(), after.code()), (1, 1));
    insta::assert_snapshot!(format!("{}\n---\n\n{}", rooms(&before.out), rooms(&after.out)));
}

#[test]
fn the_doctor_finds_nothing_wrong_where_nothing_is() {
    let place = Place::with(CONFIG);
    place.run(&["store", "migrate"]).well();
    let said = place.run(&["doctor", "--json"]).well().json();
    assert_eq!(said["ok"], true, "{said}");
    let failed = place.run(&["doctor", "--config", "nowhere.toml", "--url", "http://127.0.0.1:1"]);
    assert_eq!(failed.code(), 1);
    assert!(failed.out.contains("fail  settings"), "{}", failed.out);
    assert!(failed.out.contains("fail  server"), "{}", failed.out);
}

/// Without how much room there is.
fn rooms(text: &str) -> String {
    let line = |line: &str| match line.strip_suffix(" free").and_then(|line| line.rsplit_once(": ")) {
        Some((before, _)) => format!("{before}: SOME free"),
        None => line.replace(env!("CARGO_BIN_EXE_tenure"), "TENURE"),
    };
    masked(text).lines().map(line).collect::<Vec<_>>().join("\n")
}
