//! Clocks that go wrong for one program: the library of `faketime`, which the loader puts before that of the system.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

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

/// Sets the clock of a program while it runs: a file, which its library reads whenever it is asked for the time.
pub(crate) struct Dial {
    folder: TempDir,
}

impl Dial {
    /// That of a program which is to be started. Until it is set the clock shows what time it is.
    pub(crate) fn of(command: &mut Command) -> Self {
        let dial = Self { folder: tempfile::tempdir().expect("a folder") };
        dial.set(0);
        let library = library().as_ref().expect("the library");
        command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", dial.file());
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        dial
    }

    /// So many seconds off from now on. At once: nobody reads half of a file.
    pub(crate) fn set(&self, seconds: i64) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{seconds:+}\n")).expect("a file");
        std::fs::rename(new, self.file()).expect("in its place");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("clock")
    }
}
