//! Reads along in what an agent answers, as it comes.
//!
//! The file may be replaced by one that says the same and more: what was shown is not shown again. It may be
//! replaced by another attempt's: that is shown from its beginning.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use tenure::workspace::OUTPUT_MD;

/// The most that is read at once, and shown in all: more is to be read in the file.
const PIECE: usize = 64 * 1024;
const MOST: u64 = 256 * 1024;

/// A file that is read as it grows.
pub(super) struct Tail {
    path: PathBuf,
    /// How much was read, and its hash.
    read: u64,
    hash: DefaultHasher,
    /// A line whose end has not come.
    begun: Vec<u8>,
    /// Whether something was left out.
    cut: bool,
}

impl Tail {
    /// The answer of a run, in the folder of its files.
    pub(super) fn of(folder: &Path) -> Self {
        let path = folder.join(OUTPUT_MD);
        Self { path, read: 0, hash: DefaultHasher::new(), begun: Vec::new(), cut: false }
    }

    /// Whether all that is in the file was shown, and something is.
    pub(super) fn is_whole(&self) -> bool {
        let size = std::fs::metadata(&self.path).map_or(0, |file| file.len());
        !self.cut && size > 0 && size == self.read && self.begun.is_empty()
    }

    /// Gives the lines that came since; the last one though its end has not come, if nothing more does.
    pub(super) fn read(&mut self, mut show: impl FnMut(&str)) {
        // A file that cannot be read is not there yet, or not any more.
        let Ok(mut file) = File::open(&self.path) else { return };
        if !self.goes_on(&mut file) {
            *self = Self { path: std::mem::take(&mut self.path), ..Self::of(Path::new("")) };
        }
        if file.seek(SeekFrom::Start(self.read)).is_err() {
            return;
        }
        loop {
            let mut piece = Vec::with_capacity(4096);
            if (&mut file).take(PIECE as u64).read_to_end(&mut piece).is_err() || piece.is_empty() {
                break;
            }
            self.take(&piece, &mut show);
        }
    }

    fn take(&mut self, piece: &[u8], show: &mut impl FnMut(&str)) {
        self.read += piece.len() as u64;
        self.hash.write(piece);
        if self.read > MOST {
            if !std::mem::replace(&mut self.cut, true) {
                show("... and more, in output.md");
            }
            return;
        }
        self.begun.extend_from_slice(piece);
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            show(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        }
    }

    /// The rest of a line that never ended.
    pub(super) fn finish(&mut self, mut show: impl FnMut(&str)) {
        if !self.begun.is_empty() {
            show(&String::from_utf8_lossy(&std::mem::take(&mut self.begun)));
        }
    }

    /// Whether the file begins with what was read.
    fn goes_on(&self, file: &mut File) -> bool {
        let mut hash = DefaultHasher::new();
        let mut left = self.read.min(MOST + PIECE as u64);
        if left < self.read {
            // Too much to look at again and again: nothing of it is shown any more.
            return true;
        }
        let mut piece = [0; 4096];
        while left > 0 {
            let most = piece.len().min(usize::try_from(left).unwrap_or(piece.len()));
            match file.read(&mut piece[..most]) {
                Ok(0) | Err(_) => return false,
                Ok(read) => {
                    hash.write(&piece[..read]);
                    left -= read as u64;
                }
            }
        }
        hash.finish() == self.hash.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(tail: &mut Tail) -> Vec<String> {
        let mut lines = Vec::new();
        tail.read(|line| lines.push(line.to_owned()));
        lines
    }

    #[test]
    fn a_file_is_read_as_it_grows_and_anew_when_it_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join(OUTPUT_MD), text).unwrap();
        let mut tail = Tail::of(folder.path());
        assert!(lines(&mut tail).is_empty());
        write("one\ntw");
        assert_eq!(lines(&mut tail), ["one"]);
        write("one\ntwo\n");
        assert_eq!(lines(&mut tail), ["two"]);
        assert!(tail.is_whole());
        write("one\ntwo\nthree");
        assert!(lines(&mut tail).is_empty());
        let mut rest = Vec::new();
        tail.finish(|line| rest.push(line.to_owned()));
        assert_eq!(rest, ["three"]);
        write("another\n");
        assert_eq!(lines(&mut tail), ["another"]);
    }

    #[test]
    fn a_large_file_is_shown_in_part() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(OUTPUT_MD), "x\n".repeat(1_000_000)).unwrap();
        let mut tail = Tail::of(folder.path());
        let shown = lines(&mut tail);
        assert_eq!(shown.last().map(String::as_str), Some("... and more, in output.md"));
        assert!((100_000..200_000).contains(&shown.len()), "{}", shown.len());
        assert!(!tail.is_whole());
    }
}
