//! A full disk and missing permissions. Each is tried by a test process of its own, that is held by the system.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use tempfile::TempDir;
use tenure::view::RunView;
use tenure::workspace::{WorkspaceError, WorkspaceRoot, WorkspaceSettings};

use crate::records::{event, run};
use crate::{Place, refused};

/// Set for the process in which a test does what it is about.
const HELD: &str = "TENURE_TEST_HELD";

/// Runs the named test again, in a process of its own.
fn held(name: &str, limit: &str) {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("workspace");
    // Where the tests are built, another user may have no business.
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("trap '' XFSZ; {limit} exec \"$0\" --exact \"$1\""))
        .arg(&program)
        .arg(name);
    command.env(HELD, "yes").current_dir(folder.path());
    if fs::metadata(folder.path()).unwrap().uid() == 0 {
        // Whom no permission stops would prove nothing.
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    let told =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

fn is_held() -> bool {
    std::env::var_os(HELD).is_some()
}

#[test]
fn task_s9_a_full_disk_is_told_and_leaves_every_file_as_it_was() {
    if !is_held() {
        return held("system::task_s9_a_full_disk_is_told_and_leaves_every_file_as_it_was", "ulimit -f 16;");
    }
    let place = Place::new();
    let workspace = place.run();
    let large = vec![b'x'; 1 << 20];
    workspace.write("a", b"before").unwrap();
    let told = refused(workspace.write("a", &large));
    assert!(told.starts_with("\"a\" could not be written: no room is left ("), "{told}");
    assert!(told.ends_with("; free some, or lower the retention"), "{told}");
    let answer = workspace.append("a", &large);
    assert!(
        matches!(&answer, Err(error @ WorkspaceError::Full { .. }) if error.is_transient()),
        "{answer:?}"
    );
    assert_eq!(workspace.read("a", 6).unwrap(), b"before");

    workspace.append_events(&[event(1)]).unwrap();
    let mut long = event(2);
    long.data = String::from_utf8(large.clone()).unwrap().into();
    let answer = workspace.append_events(&[long]);
    assert!(matches!(answer, Err(WorkspaceError::Full { .. })), "{answer:?}");
    assert_eq!(workspace.last_event().unwrap(), 1);

    let mut view = RunView::from(&run(2));
    assert!(workspace.write_run(&view).unwrap());
    view.query_snapshot = String::from_utf8(large).unwrap().into();
    refused(workspace.write_run(&view));
    let kept = workspace.read("run.json", 1 << 16).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&kept).is_ok(), "the record before is whole");
    assert_eq!(place.half_done(), Vec::<String>::new());
}

#[test]
fn task_s9_missing_permissions_are_told_with_what_to_do() {
    if !is_held() {
        return held("system::task_s9_missing_permissions_are_told_with_what_to_do", "");
    }
    let place = Place::new();
    let workspace = place.run();
    let mode =
        |path: &str, mode| fs::set_permissions(place.inside(path), Permissions::from_mode(mode)).unwrap();
    let denied = |told: String, what: &str| {
        assert!(told.starts_with(&format!("{what}: Permission denied")), "{told}");
        assert!(told.ends_with("; let this program's user write below the workspace root"), "{told}");
    };
    mode("logs", 0o500);
    denied(refused(workspace.write("logs/x", b"x")), "\"logs/x\" could not be written");
    denied(refused(workspace.append("logs/x", b"x")), "\"logs/x\" could not be written");
    workspace.append_events(&[event(1)]).unwrap();
    mode("events.jsonl", 0o400);
    denied(refused(workspace.append_events(&[event(2)])), "\"events.jsonl\" could not be opened");
    mode("artifacts", 0);
    let listing = workspace.list().unwrap();
    assert_eq!((listing.entries.len(), listing.complete), (3, false));
    let closed = TempDir::new().unwrap();
    fs::set_permissions(closed.path(), Permissions::from_mode(0o500)).unwrap();
    let told = refused(WorkspaceRoot::open(closed.path(), WorkspaceSettings::default()));
    denied(told, &format!("{:?} could not be opened", closed.path()));
    for path in ["logs", "artifacts"] {
        mode(path, 0o700);
    }
}

#[test]
fn task_s9_a_root_is_made_for_its_user_alone() {
    let place = Place::new();
    let mode = fs::metadata(place.outside("root")).unwrap().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}
