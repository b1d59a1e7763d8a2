//! Going down folder by folder, through no link.

use std::io;

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;

/// How often a folder that another removed meanwhile is made again. Each try is over in microseconds, and three who
/// make and remove folders beside each other all the time were seen to take eight from one of them.
const TRIES: usize = 100;

/// The folder at the end of these names.
pub(super) fn open(from: &Dir, names: &[&str]) -> io::Result<Dir> {
    names.iter().try_fold(from.try_clone()?, |dir, name| dir.open_dir_nofollow(name))
}

/// The same, making what is not there.
///
/// A folder that retention finds empty is removed, perhaps between the steps: then the way down begins anew.
pub(super) fn make(from: &Dir, names: &[&str]) -> io::Result<Dir> {
    let mut made = make_once(from, names);
    for _ in 1..TRIES {
        match &made {
            Err(error) if error.kind() == io::ErrorKind::NotFound => made = make_once(from, names),
            _ => break,
        }
    }
    made
}

fn make_once(from: &Dir, names: &[&str]) -> io::Result<Dir> {
    names.iter().try_fold(from.try_clone()?, |dir, name| make_one(&dir, name))
}

/// The folder with this name, making it if it is not there.
pub(super) fn make_one(dir: &Dir, name: &str) -> io::Result<Dir> {
    match dir.open_dir_nofollow(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    match dir.create_dir(name) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => dir.open_dir_nofollow(name),
    }
}
