//! Programs that another user may run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of a program that everybody may run, wherever the program itself lies. It is there as long as its folder.
pub(crate) fn for_everybody(program: &Path) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    let copy = folder.path().join("program");
    // By a child: what this process writes itself may be held open, and so be busy, by what other tests start.
    let copied = Command::new("install").args(["-m", "755"]).arg(program).arg(&copy).status();
    assert!(copied.expect("install").success(), "{} is not copied", program.display());
    (folder, copy)
}
