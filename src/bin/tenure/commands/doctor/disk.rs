//! Whether the folders can be written, and have room.

use std::path::Path;

use super::Finding;
use crate::config::{Config, StoreUrl};

/// Less room than this is little.
const LITTLE: u64 = 1 << 30;
/// Less than this is as good as none.
const NONE: u64 = 64 << 20;

pub(super) fn look(config: &Config, found: &mut Vec<Finding>) {
    if let StoreUrl::Sqlite(path) = &config.store.url {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        look_at("the store", folder.unwrap_or(Path::new(".")), found);
    }
    look_at("the files of runs", &config.workspace.root, found);
}

fn look_at(what: &str, folder: &Path, found: &mut Vec<Finding>) {
    // What is not there yet is made in the nearest folder that is.
    let mut there = folder;
    while !there.exists() {
        match there.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => there = parent,
            _ => there = Path::new("."),
        }
    }
    let shown = format!("\"{}\", for {what}", folder.display());
    found.push(match writable(there) {
        Ok(()) => Finding::ok("folder", format!("{shown}: it can be written")),
        Err(error) => Finding::fail("folder", format!("{shown}: it cannot be written: {error}"))
            .hint("let the user that the server runs as write there, or name another folder"),
    });
    if let Some(free) = free(there) {
        found.push(room(&shown, free));
    }
}

fn writable(folder: &Path) -> std::io::Result<()> {
    let trial = folder.join(format!(".tenure-doctor-{}", std::process::id()));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).open(&trial);
    made?;
    std::fs::remove_file(trial)
}

/// How many bytes are free for users.
#[cfg(unix)]
fn free(folder: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(folder).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}

#[cfg(not(unix))]
fn free(_folder: &Path) -> Option<u64> {
    None
}

fn room(shown: &str, free: u64) -> Finding {
    let mib = free >> 20;
    let told = if free >= LITTLE { format!("{} GiB", free >> 30) } else { format!("{mib} MiB") };
    let message = format!("{shown}: {told} free");
    let hint = "make room, or keep less: `tenure store prune`, `store.retain_for`";
    match free {
        ..NONE => Finding::fail("room", message).hint(hint),
        NONE..LITTLE => Finding::warn("room", message).hint(hint),
        _ => Finding::ok("room", message),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn little_room_is_a_warning_and_none_a_failure() {
        assert_eq!(room("x", NONE - 1).state, State::Fail);
        assert_eq!(room("x", NONE).state, State::Warn);
        assert_eq!(room("x", LITTLE - 1).state, State::Warn);
        assert_eq!(room("x", LITTLE).state, State::Ok);
        assert_eq!(room("x", LITTLE).message, "x: 1 GiB free");
    }
}
