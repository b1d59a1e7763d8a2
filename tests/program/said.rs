//! What `tenure run` says when something is amiss, and what it does not say.

use serde_json::Value;

use crate::run::shell;

#[test]
fn how_it_ended_is_said_in_words_also_where_nothing_else_is() {
    let question = r#"echo '{"awaiting_approval": {"question": "sure?"}}' >&3"#;
    for (script, task, said) in [
        ("echo broken >&2; exit 3", "", "error: failed: exit_code: "),
        (
            "sleep 60",
            "timeout_seconds = 0.2",
            "error: timed out: timeout: the attempt took longer than 0.200 s",
        ),
        (question, "", "error: waits for a person: sure?\n"),
    ] {
        let done = shell(script, task).tenure(&["run", "tenure.toml", "-q"]);
        assert!(done.err.starts_with(said), "{said}: {done:?}");
        assert_eq!(done.out, "");
    }
}

#[test]
fn a_run_that_failed_says_where_its_standard_error_is() {
    let place = shell("echo broken >&2; exit 3", "");
    let done = place.tenure(&["run", "tenure.toml"]);
    let path = done.err.trim().strip_prefix("hint: its standard error is in ").unwrap();
    assert_eq!(std::fs::read_to_string(place.path(path)).unwrap(), "broken\n");
    let silent = shell("exit 3", "").tenure(&["run", "tenure.toml"]);
    assert_eq!(silent.err, "");
}

#[test]
fn the_last_progress_is_kept_though_the_program_ends_at_once() {
    let place = shell("for n in 10 40 70 100; do echo $n step >&3; done", "");
    let done = place.tenure(&["run", "tenure.toml", "--json"]);
    let document: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(document["run"]["progress"]["percent"], 100, "{document}");
}

#[test]
fn empty_lines_are_shown_without_blanks() {
    let done = shell("printf 'a\\n\\n  b  \\n'", "").tenure(&["run", "tenure.toml"]);
    assert!(done.out.contains("      |  a\n      |\n      |    b\n"), "{done:?}");
    assert!(done.out.lines().all(|line| line == line.trim_end()), "{done:?}");
}

#[test]
fn another_configuration_is_not_passed_over() {
    let place = shell("true", "");
    let both = place.tenure(&["run", "tenure.toml", "-c", "nonexist.toml"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    insta::assert_snapshot!("run_two_files", both.err);
    assert_eq!(place.tenure(&["run", "tenure.toml", "-c", "tenure.toml"]).code, Some(0));
    let mut command = place.command(&["run", "tenure.toml"]);
    assert_eq!(command.env("TENURE_CONFIG", "other.toml").output().unwrap().status.code(), Some(0));
}

#[test]
fn a_run_logs_warnings_and_more_for_who_asks() {
    let place = shell("true", "[log]\nlevel = \"debug\"");
    let done = place.tenure(&["run", "tenure.toml"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "what the file says is for a host that serves");
    let asked = place.tenure(&["run", "tenure.toml", "--log", "debug"]);
    assert!(asked.err.contains("DEBUG"), "{asked:?}");
    let quiet = place.tenure(&["run", "tenure.toml", "--log", "debug", "--quiet"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (Some(0), ""));
}

#[test]
fn a_level_that_is_none_is_refused_wherever_it_is_said() {
    let place = shell("true", "");
    let flag = place.tenure(&["run", "tenure.toml", "--log", "noise"]);
    assert_eq!(flag.code, Some(2), "{flag:?}");
    place.write("noise.toml", "[log]\nlevel = \"noise\"\n");
    let file = place.tenure(&["serve", "--config", "noise.toml"]);
    assert_eq!(file.code, Some(2), "{file:?}");
    insta::assert_snapshot!("run_log_noise", flag.err + &file.err);
}

#[test]
fn a_folder_that_cannot_be_made_is_blamed_on_who_named_it() {
    let place = shell("true", "");
    place.write("taken", "");
    let flag = place.tenure(&["run", "tenure.toml", "--workspace", "/proc/x"]);
    assert_eq!(flag.code, Some(2), "{flag:?}");
    let below = place.tenure(&["run", "tenure.toml", "--workspace", "taken/x"]);
    assert_eq!(below.code, Some(2), "{below:?}");
    place.write("w.toml", "[workspace]\nroot = \"/proc/x\"\n");
    let file = place.tenure(&["serve", "--config", "w.toml", "--listen", "127.0.0.1:0"]);
    assert_eq!(file.code, Some(2), "{file:?}");
    insta::assert_snapshot!("run_no_folder", flag.err + &below.err + &file.err);
}

#[test]
fn a_file_that_is_not_there_says_what_may_be_meant() {
    let place = shell("true", "");
    place.write("hello.toml", "");
    let mut said = String::new();
    for args in [
        &["run", "greet"][..],
        &["run", "list"],
        &["run", "hello"],
        &["run", "helo.toml"],
        &["run", "nowhere/x.toml"],
        &["serve", "--config", "helo.toml"],
    ] {
        let done = place.tenure(args);
        assert_eq!(done.code, Some(3), "{args:?}: {done:?}");
        said.push_str(&format!("$ tenure {}\n{}", args.join(" "), done.err));
    }
    assert!(!said.contains("os error"), "{said}");
    insta::assert_snapshot!("run_missing_files", said);
}
