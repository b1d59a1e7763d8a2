//! Limits, each on both of its sides.

use tenure::workspace::WorkspaceLimits;

use crate::{Place, listed, refused};

const SMALL: WorkspaceLimits =
    WorkspaceLimits { max_file_bytes: 10, max_files: 3, max_total_bytes: 25, max_depth: 3 };

#[test]
fn task_s9_a_file_is_no_larger_than_allowed() {
    let place = Place::with(SMALL);
    let workspace = place.run();
    workspace.write("a", &[0; 10]).unwrap();
    let told = "\"a\" has 11 bytes, and 10 are allowed; write less, or split it";
    assert_eq!(refused(workspace.write("a", &[0; 11])), told);
    assert_eq!(refused(workspace.append("a", &[0; 1])), told);
    assert_eq!(workspace.read("a", 10).unwrap().len(), 10, "the file is as it was");
    assert_eq!(
        refused(workspace.read("a", 9)),
        "\"a\" has 10 bytes, and 9 are allowed; write less, or split it"
    );
}

#[test]
fn task_s9_there_are_no_more_files_and_folders_than_allowed() {
    let place = Place::with(SMALL);
    let workspace = place.run();
    workspace.write("a", b"").unwrap();
    let told = "was not made: its workspace holds 3 files and folders, which is the limit; remove some";
    assert_eq!(refused(workspace.write("x/y/z", b"")), format!("\"x/y/z\" {told}"));
    workspace.append("x/y", b"").unwrap();
    assert_eq!(refused(workspace.append("b", b"")), format!("\"b\" {told}"));
    workspace.write("a", b"again").unwrap();
    workspace.remove_file("a").unwrap();
    workspace.write("b", b"").unwrap();
    // What is removed past the workspace makes room as well.
    std::fs::remove_file(place.inside("b")).unwrap();
    workspace.write("c", b"").unwrap();
    assert_eq!(listed(&workspace), ["artifacts/", "c", "logs/", "x/", "x/y"]);
    // A workspace that is over its limit keeps the files that it has up to date.
    std::fs::write(place.inside("d"), "").unwrap();
    let again = place.run();
    again.write("c", b"newer").unwrap();
    assert_eq!(refused(again.write("e", b"")), format!("\"e\" {told}"));
}

#[test]
fn task_s9_all_files_together_are_no_larger_than_allowed() {
    let place = Place::with(SMALL);
    let workspace = place.run();
    workspace.write("a", &[0; 10]).unwrap();
    // What is written past the workspace counts as well.
    std::fs::write(place.inside("b"), [0; 10]).unwrap();
    let again = place.run();
    again.append("c", &[0; 5]).unwrap();
    let told = "\"c\" was not written: its workspace would exceed 25 bytes, which is the limit; remove files";
    assert_eq!(refused(again.append("c", &[0; 1])), told);
    again.write("a", &[0; 9]).unwrap();
    again.append("c", &[0; 1]).unwrap();
    assert_eq!(refused(again.write("c", &[0; 7])), told);
    // A workspace that is over its limit can still be made smaller.
    std::fs::write(place.inside("b"), [0; 100]).unwrap();
    place.run().write("a", &[0; 1]).unwrap();
}

#[test]
fn task_s9_paths_go_no_deeper_than_allowed_and_listings_look_no_deeper() {
    let place = Place::with(SMALL);
    let workspace = place.run();
    let told = "\"a/b/c/d\" is no path within a workspace: expected at most 3 names";
    assert_eq!(refused(workspace.write("a/b/c/d", b"")), told);
    std::fs::create_dir_all(place.inside("1/2/3/4/5")).unwrap();
    let listing = workspace.list().unwrap();
    let paths: Vec<&str> = listing.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!((paths, listing.complete), (vec!["1", "1/2", "1/2/3", "artifacts", "logs"], false));
}

#[test]
fn task_s9_a_listing_has_an_end() {
    let place = Place::with(SMALL);
    let workspace = place.run();
    for n in 0..20 {
        std::fs::write(place.inside(&format!("{n}")), "").unwrap();
    }
    let listing = workspace.list().unwrap();
    // As many as may be written, and the four of our own.
    assert_eq!((listing.entries.len(), listing.complete), (7, false));
}
