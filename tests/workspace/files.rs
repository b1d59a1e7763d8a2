//! What the agent writes and people read.

use std::io::Read;

use tenure::workspace::media_type;

use crate::records::{PATH, event, run, run_id};
use crate::{Place, listed, refused};

#[test]
fn task_s9_what_is_written_can_be_read_and_is_listed_at_every_depth() {
    let place = Place::new();
    let workspace = place.run();
    workspace.write("output.md", b"# Report\n").unwrap();
    workspace.append("logs/run.log", b"one\n").unwrap();
    workspace.append("logs/run.log", b"two\n").unwrap();
    workspace.write("artifacts/a/b/data.bin", &[0, 255]).unwrap();
    workspace.write_run(&tenure::view::RunView::from(&run(1))).unwrap();
    workspace.append_events(&[event(1)]).unwrap();
    assert_eq!(
        listed(&workspace),
        [
            "artifacts/",
            "artifacts/a/",
            "artifacts/a/b/",
            "artifacts/a/b/data.bin",
            "events.jsonl",
            "logs/",
            "logs/run.log",
            "output.md",
            "run.json"
        ]
    );
    assert_eq!(workspace.read("logs/run.log", 8).unwrap(), b"one\ntwo\n");
    let entry = workspace.list().unwrap().entries.into_iter().find(|entry| entry.name == "data.bin").unwrap();
    assert_eq!((entry.size, entry.is_dir), (2, false));
    let shown = serde_json::to_value(&entry).unwrap();
    let names: Vec<&String> = shown.as_object().unwrap().keys().collect();
    assert_eq!(names, ["is_dir", "modified_at", "name", "path", "size"]);
}

#[test]
fn task_s9_a_file_is_opened_to_be_streamed_with_its_size_and_media_type() {
    let place = Place::new();
    let workspace = place.run();
    workspace.write("output.md", b"# Report\n").unwrap();
    let mut opened = workspace.open("output.md").unwrap();
    assert_eq!((opened.size, opened.media_type.as_str()), (9, "text/markdown; charset=utf-8"));
    // Who reads goes on reading what was there.
    workspace.write("output.md", b"another").unwrap();
    let mut text = String::new();
    opened.file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "# Report\n");
}

#[test]
fn task_s9_media_types_follow_the_name() {
    let names = [
        "run.json",
        "events.jsonl",
        "output.md",
        "logs/a.log",
        "a.txt",
        "a.HTML",
        "a.png",
        "a.svg",
        "a.csv",
        "a",
        "a.unheard-of",
        "log",
        "",
    ];
    let told: Vec<String> = names.iter().map(|name| format!("{name:>14} {}", media_type(name))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn task_s9_files_that_are_kept_by_tenure_are_not_written_by_agents() {
    let place = Place::new();
    let workspace = place.run();
    for path in ["run.json", "events.jsonl", "RUN.JSON"] {
        let expected =
            format!("{path:?} is kept by tenure and is not written by agents; choose another name");
        assert_eq!(refused(workspace.write(path, b"")), expected);
        assert_eq!(refused(workspace.append(path, b"")), expected);
        assert_eq!(refused(workspace.remove_file(path)), expected);
    }
    workspace.write("artifacts/run.json", b"{}").unwrap();
    let hidden = refused(place.root.run(&run_id("r1"), ".tenure/r1"));
    assert!(hidden.contains("kept by tenure"), "{hidden}");
}

#[test]
fn task_s9_no_path_leads_out() {
    let place = Place::new();
    let workspace = place.run();
    let outside = place.outside("secret");
    let paths = ["../r2/x", "a/../../x", "/etc/passwd", "", ".", "a//b", outside.to_str().unwrap(), "a\0b"];
    for path in paths {
        let told = [
            refused(workspace.write(path, b"x")),
            refused(workspace.append(path, b"x")),
            refused(workspace.read(path, 10)),
            refused(workspace.open(path)),
            refused(workspace.remove_file(path)),
            refused(place.root.run(&run_id("r1"), path)),
            refused(place.root.find(&run_id("r1"), path)),
            refused(place.root.remove(path)),
        ];
        for told in told {
            assert!(told.starts_with(&format!("{path:?} is no path within a workspace")), "{told}");
        }
    }
    assert_eq!(std::fs::read(outside).unwrap(), b"secret");
}

#[test]
fn task_s9_what_is_missing_or_something_else_is_told() {
    let place = Place::new();
    let workspace = place.run();
    let missing = refused(workspace.read("nothing.md", 1));
    assert_eq!(missing, "\"nothing.md\" does not exist in the workspace; list it to see what does");
    let folder = "\"logs\" cannot be used: expected a file, found a folder";
    assert_eq!(refused(workspace.open("logs")), folder);
    assert_eq!(refused(workspace.write("logs", b"")), folder);
    assert_eq!(refused(workspace.append("logs", b"")), folder);
    workspace.write("a", b"").unwrap();
    let below = refused(workspace.write("a/b", b""));
    assert_eq!(below, "\"a/b\" cannot be used: expected folders above it that are no links");
    assert_eq!(place.half_done(), Vec::<String>::new());
}

#[test]
fn task_s9_a_removed_workspace_is_gone_with_the_empty_folders_above_it() {
    let place = Place::new();
    let workspace = place.run();
    workspace.write("artifacts/deep/er/x", b"x").unwrap();
    let sibling = place.root.run(&run_id("r2"), "background/writer/nightly/r2").unwrap();
    sibling.write("x", b"x").unwrap();
    assert!(place.root.find(&run_id("r1"), PATH).unwrap().is_some());
    assert!(place.root.remove(PATH).unwrap());
    assert!(!place.root.remove(PATH).unwrap());
    assert!(place.root.find(&run_id("r1"), PATH).unwrap().is_none());
    refused(workspace.write("late", b"x"));
    assert_eq!(sibling.read("x", 1).unwrap(), b"x");
    assert!(place.root.remove(sibling.path()).unwrap());
    assert!(!place.outside("root/background").exists());
    assert_eq!(place.half_done(), Vec::<String>::new());
}

#[test]
fn task_s9_folders_are_made_while_others_are_removed_beside_them() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for name in ["r1", "r2", "r3"] {
            let root = place.root.clone();
            scope.spawn(move || {
                for _ in 0..100 {
                    let path = format!("background/writer/{name}");
                    root.run(&run_id(name), &path).unwrap().write("x", b"x").unwrap();
                    assert!(root.remove(&path).unwrap());
                }
            });
        }
    });
    assert_eq!(place.half_done(), Vec::<String>::new());
}

#[tokio::test]
async fn task_s9_asynchronous_callers_are_not_blocked() {
    let place = Place::new();
    let workspace = place.run();
    workspace.blocking(|workspace| workspace.write("a", b"a")).await.unwrap();
    assert_eq!(workspace.blocking(|workspace| workspace.read("a", 1)).await.unwrap(), b"a");
    let panicked = workspace.blocking(|_| -> Result<(), _> { panic!("boom") }).await;
    assert!(refused(panicked).contains("boom"));
}
