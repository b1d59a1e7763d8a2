//! `run.json`.

use std::collections::BTreeSet;
use std::thread;

use tenure::view::RunView;

use crate::records::{PATH, ended, run, run_id};
use crate::{Place, listed, refused};

fn kept(place: &Place) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(place.inside("run.json")).unwrap()).unwrap()
}

#[test]
fn task_s9_run_json_is_the_run_as_it_is_shown() {
    let place = Place::new();
    assert!(place.run().write_run(&RunView::from(&run(7))).unwrap());
    let bytes = std::fs::read(place.inside("run.json")).unwrap();
    let shown = serde_json::to_string_pretty(&RunView::from(&run(7))).unwrap() + "\n";
    assert_eq!(String::from_utf8(bytes).unwrap(), shown);
    assert!(shown.contains("0.10000000000000000001"), "metadata keeps its digits");
}

#[test]
fn task_s9_an_older_record_never_replaces_a_newer_one_also_of_another_instance() {
    let place = Place::new();
    assert!(place.run().write_run(&RunView::from(&ended(9))).unwrap());
    let other = place.again().run(&run_id("r1"), PATH).unwrap();
    assert!(!other.write_run(&RunView::from(&run(8))).unwrap());
    assert_eq!(kept(&place)["status"], "cancelled");
    // A renewed lease is told without a new version.
    assert!(other.write_run(&RunView::from(&run(9))).unwrap());
    assert_eq!(kept(&place)["status"], "running");
}

#[test]
fn task_s9_a_reader_sees_whole_records_that_never_go_back() {
    let place = Place::new();
    let workspace = place.run();
    workspace.write_run(&RunView::from(&run(1))).unwrap();
    thread::scope(|scope| {
        for writer in 0..2 {
            let workspace = workspace.clone();
            scope.spawn(move || {
                for version in 1..=100 {
                    workspace.write_run(&RunView::from(&run(2 * version + writer))).unwrap();
                }
            });
        }
        let mut seen = 0;
        while seen < 200 {
            let version = kept(&place)["version"].as_u64().unwrap();
            assert!(version >= seen, "version {version} after {seen}");
            seen = version;
        }
    });
    assert_eq!(kept(&place)["version"], 201);
    assert_eq!(place.half_done(), Vec::<String>::new());
}

#[test]
fn task_s9_a_record_that_is_damaged_is_written_again() {
    let place = Place::new();
    let workspace = place.run();
    for damage in ["", "{\"run_id\": \"r1\", \"ver", "\0\0\0", "[]"] {
        std::fs::write(place.inside("run.json"), damage).unwrap();
        assert!(workspace.write_run(&RunView::from(&run(3))).unwrap());
        assert_eq!(kept(&place)["version"], 3);
    }
}

#[test]
fn task_s9_two_runs_in_one_folder_do_not_write_over_each_other() {
    let place = Place::new();
    place.run().write_run(&RunView::from(&run(3))).unwrap();
    let other = place.root.run(&run_id("r2"), PATH).unwrap();
    let mut view = RunView::from(&run(9));
    assert_eq!(refused(other.write_run(&view)), "the workspace of run \"r2\" keeps nothing of run \"r1\"");
    view.run_id = run_id("r2");
    assert_eq!(refused(other.write_run(&view)), "the workspace of run \"r2\" keeps nothing of run \"r1\"");
    assert_eq!(kept(&place)["version"], 3);
}

#[test]
fn task_s9_what_a_crash_left_half_written_is_listed_nowhere_and_cleared_when_the_root_is_opened() {
    let place = Place::new();
    let workspace = place.run();
    let hidden = place.outside("root/.tenure");
    std::fs::write(hidden.join("temp-of-a-dead-writer"), "{").unwrap();
    std::fs::create_dir_all(hidden.join("trash-of-a-dead-remover/deep")).unwrap();
    // A writer that lives: its file is locked.
    let live = std::fs::File::create(hidden.join("temp-of-a-live-writer")).unwrap();
    live.lock().unwrap();
    assert_eq!(listed(&workspace), ["artifacts/", "logs/"]);
    place.again();
    let left: BTreeSet<String> = place.half_done().into_iter().collect();
    assert_eq!(left, BTreeSet::from(["temp-of-a-live-writer".to_owned()]));
}
