//! Clocks that go wrong for one program: the library of `faketime`, which the loader puts before that of the system.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::{Found, skipped};

/// That of `TENURE_TEST_FAKETIME`, or the one that is installed.
pub(crate) fn library() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| find().inspect_err(|why| skipped("faketime", why)))
}

fn find() -> Found {
    if let Ok(named) = std::env::var("TENURE_TEST_FAKETIME") {
        return Ok(named);
    }
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let folders = folders.map(|folder| folder.path()).chain([Path::new("/usr/lib").to_owned()]);
    let mut found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    let found =
        found.find(|library| library.is_file()).and_then(|library| library.to_str().map(str::to_owned));
    found.ok_or_else(|| {
        "no library libfaketimeMT.so.1; install faketime, or name it in TENURE_TEST_FAKETIME".to_owned()
    })
}

/// Sets the clock of a program by so many seconds. How much time passes it is told as it is.
pub(crate) fn set(command: &mut Command, by: &str) {
    let library = library().as_ref().expect("the library");
    command.env("LD_PRELOAD", library).env("FAKETIME", by).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}
