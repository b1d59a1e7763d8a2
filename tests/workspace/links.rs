//! Links and other things that an agent may make in its folder: nothing leads out of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tenure::view::RunView;

use crate::records::{PATH, event, run, run_id};
use crate::{Place, listed, refused};

fn untouched(place: &Place) {
    assert_eq!(fs::read(place.outside("secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(place.outside("outside")).unwrap().count(), 1);
    assert_eq!(fs::read(place.outside("outside/x")).unwrap(), b"x");
}

/// A place with a folder outside of the root, and links to all that lies there in the folder of the run.
fn with_links() -> Place {
    let place = Place::new();
    place.run();
    fs::create_dir(place.outside("outside")).unwrap();
    fs::write(place.outside("outside/x"), "x").unwrap();
    symlink(place.outside("secret"), place.inside("file")).unwrap();
    symlink("../../../../../secret", place.inside("relative")).unwrap();
    symlink(place.outside("outside"), place.inside("folder")).unwrap();
    symlink(place.outside("outside/new"), place.inside("dangling")).unwrap();
    symlink("loop", place.inside("loop")).unwrap();
    place
}

#[test]
fn task_s9_no_read_follows_a_link_out() {
    let place = with_links();
    let workspace = place.run();
    for path in ["file", "relative", "folder/x", "folder", "dangling"] {
        let told = format!("{path:?} leads out of its workspace; only what lies within can be reached");
        assert_eq!(refused(workspace.read(path, 100)), told);
        assert_eq!(refused(workspace.open(path)), told);
    }
    assert_eq!(refused(workspace.read("loop", 1)), "\"loop\" cannot be used: expected no link");
    symlink("output.md", place.inside("within")).unwrap();
    workspace.write("output.md", b"within").unwrap();
    assert_eq!(workspace.read("within", 6).unwrap(), b"within");
}

#[test]
fn task_s9_no_write_follows_a_link() {
    let place = with_links();
    let workspace = place.run();
    for path in ["file", "relative", "dangling", "folder", "loop"] {
        let told = refused(workspace.append(path, b"evil"));
        assert_eq!(told, format!("{path:?} cannot be used: expected no link"));
    }
    for path in ["folder/x", "folder/new", "folder/a/b", "dangling/x"] {
        for told in [
            refused(workspace.append(path, b"evil")),
            refused(workspace.write(path, b"evil")),
            refused(workspace.remove_file(path)),
        ] {
            assert_eq!(told, format!("{path:?} cannot be used: expected folders above it that are no links"));
        }
    }
    // What replaces a file replaces the link, and not what it leads to.
    for path in ["file", "relative", "dangling", "folder", "loop"] {
        workspace.write(path, b"mine").unwrap();
        assert_eq!(fs::read(place.inside(path)).unwrap(), b"mine");
        assert!(!fs::symlink_metadata(place.inside(path)).unwrap().is_symlink());
    }
    untouched(&place);
}

#[test]
fn task_s9_links_are_not_listed_and_can_be_removed() {
    let place = with_links();
    let workspace = place.run();
    assert_eq!(listed(&workspace), ["artifacts/", "logs/"]);
    for path in ["file", "folder", "dangling", "loop"] {
        workspace.remove_file(path).unwrap();
    }
    untouched(&place);
    assert!(place.root.remove(PATH).unwrap());
    untouched(&place);
}

#[test]
fn task_s9_run_json_and_events_are_not_written_through_links() {
    let place = with_links();
    let workspace = place.run();
    symlink(place.outside("secret"), place.inside("run.json")).unwrap();
    symlink(place.outside("secret"), place.inside("events.jsonl")).unwrap();
    assert!(workspace.write_run(&RunView::from(&run(1))).unwrap());
    let told = refused(workspace.append_events(&[event(1)]));
    assert_eq!(told, "\"events.jsonl\" cannot be used: expected no link");
    untouched(&place);
}

#[test]
fn task_s9_a_file_with_a_second_name_is_not_changed_in_place() {
    let place = with_links();
    let workspace = place.run();
    fs::hard_link(place.outside("secret"), place.inside("hard")).unwrap();
    fs::hard_link(place.outside("secret"), place.inside("events.jsonl")).unwrap();
    let expected = "cannot be used: expected a regular file with no other name";
    assert_eq!(refused(workspace.append("hard", b"evil")), format!("\"hard\" {expected}"));
    assert_eq!(refused(workspace.append_events(&[event(1)])), format!("\"events.jsonl\" {expected}"));
    workspace.write("hard", b"mine").unwrap();
    untouched(&place);
}

#[test]
fn task_s9_a_folder_that_became_a_link_is_not_entered() {
    let place = with_links();
    fs::remove_dir_all(place.inside("")).unwrap();
    symlink(place.outside("outside"), place.inside("")).unwrap_err();
    symlink(place.outside("outside"), place.outside("root").join(PATH)).unwrap();
    let told = format!("{PATH:?} cannot be used: expected folders above it that are no links");
    assert_eq!(refused(place.root.run(&run_id("r1"), PATH)), told);
    assert_eq!(refused(place.root.find(&run_id("r1"), PATH)), told);
    // Removing it removes the link.
    assert!(place.root.remove(PATH).unwrap());
    untouched(&place);
}

#[test]
fn task_s9_a_folder_above_that_became_a_link_is_not_entered() {
    let place = with_links();
    place.root.remove(PATH).unwrap();
    fs::create_dir(place.outside("outside/nightly")).unwrap();
    fs::create_dir(place.outside("root/background")).unwrap();
    symlink(place.outside("outside"), place.outside("root/background/writer")).unwrap();
    refused(place.root.run(&run_id("r1"), PATH));
    let told = format!("{:?} cannot be used: expected folders above it that are no links", PATH);
    assert_eq!(refused(place.root.remove("background/writer/nightly/r1")), told);
    assert!(place.outside("outside/nightly").exists());
}

#[test]
fn task_s9_pipes_and_sockets_block_nobody() {
    let place = Place::new();
    let workspace = place.run();
    for name in ["pipe", "events.jsonl", "run.json"] {
        assert!(Command::new("mkfifo").arg(place.inside(name)).status().unwrap().success());
    }
    let _socket = UnixListener::bind(place.inside("socket")).unwrap();
    assert_eq!(listed(&workspace), ["artifacts/", "logs/"]);
    assert_eq!(refused(workspace.read("pipe", 1)), "\"pipe\" cannot be used: expected a regular file");
    refused(workspace.read("socket", 1));
    refused(workspace.append("pipe", b"x"));
    refused(workspace.append("socket", b"x"));
    refused(workspace.append_events(&[event(1)]));
    assert!(workspace.write_run(&RunView::from(&run(1))).unwrap());
    workspace.write("pipe", b"x").unwrap();
}

/// Swaps what lies at `path`, again and again until told to stop: a folder, or a link out. While neither is there a
/// write may make a folder, which is in the way then.
fn swap(path: &Path, outside: &Path, stop: &AtomicBool) {
    let aside = path.with_extension("aside");
    while !stop.load(Ordering::SeqCst) {
        fs::rename(path, &aside).unwrap();
        if symlink(outside, path).is_ok() {
            fs::remove_file(path).unwrap();
        }
        while fs::rename(&aside, path).is_err() {
            // Fails when something is written there meanwhile; then it is done again.
            drop(fs::remove_dir_all(path));
        }
    }
}

#[test]
fn task_s9_a_folder_swapped_for_a_link_between_check_and_use_leads_nowhere() {
    let place = with_links();
    let workspace = place.run();
    workspace.write("swapped/x", b"mine").unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| swap(&place.inside("swapped"), &place.outside("outside"), &stop));
        for n in 0..2000 {
            // Each may be refused; none may reach what is outside.
            drop(workspace.append("swapped/x", b"mine"));
            drop(workspace.write("swapped/y", b"mine"));
            drop(workspace.remove_file("swapped/y"));
            if let Ok(bytes) = workspace.read("swapped/x", 1 << 20) {
                assert!(bytes.starts_with(b"mine"), "read {n} found what is outside");
            }
            if n % 50 == 0 {
                let listing = workspace.list().unwrap();
                assert!(listing.entries.iter().all(|entry| entry.path != "swapped/new"));
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
    untouched(&place);
}
