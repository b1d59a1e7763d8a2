//! `events.jsonl`: the events of the run, only ever appended to.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use cap_std::fs::OpenOptions;
use serde::Deserialize;

use super::files::{add, length};
use super::staging::open_own;
use super::{Action, EVENTS_JSONL, Workspace, WorkspaceError};
use crate::model::{Event, RunId};
use crate::view::EventView;

/// The longest line that is written. What is longer, or is no event at the end of the file for longer than
/// this, is no work of ours.
const MOST_LINE: u64 = 8 << 20;

/// How much is read at once while the end of the file is looked at.
const CHUNK: u64 = 4096;

/// What became of events that were to be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// How many were not there yet.
    pub written: usize,
    /// The number of the last event in the file now; 0 if it is empty.
    pub last: u64,
}

/// The good end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tail {
    /// The number of the last whole event; 0 before the first.
    last: u64,
    /// The attempt that it tells of.
    attempt: u32,
    /// Where it ends.
    end: u64,
}

/// As much of a line as says which event it is.
#[derive(Deserialize)]
struct Line {
    run_id: RunId,
    sequence: u64,
    #[serde(default)]
    attempt: u32,
}

impl Workspace {
    /// Appends those of the events that are not there yet: stored ones of this run, in order.
    ///
    /// Looks at the end of the file alone, however long it is. A torn line there is cut off first: its event is
    /// among those to append, or is told to be missing.
    ///
    /// # Errors
    /// [`WorkspaceError::Gap`] with the first number that is missing between the file and the events, or among
    /// them: read on from the store there. Others when an event is of another run, or the file cannot be
    /// written. Nothing was appended.
    pub fn append_events(&self, events: &[Event]) -> Result<Appended, WorkspaceError> {
        let foreign = |event: &&Event| event.run_id.as_ref() != Some(self.run_id());
        if let Some(event) = events.iter().find(foreign) {
            return Err(self.other_run(event.run_id.clone()));
        }
        let failed = |error| WorkspaceError::of(Action::Written, EVENTS_JSONL, error);
        let root = &self.shared.root;
        let _lock = root.staging.lock(self.path()).map_err(failed)?;
        let mut file = self.open_events()?;
        let tail = self.tail(&mut file)?;
        if file.metadata().map_err(failed)?.len() > tail.end {
            file.set_len(tail.end).map_err(failed)?;
        }
        let (lines, appended) = self.lines(events, tail.last)?;
        add(&mut file, &lines).map_err(failed)?;
        if root.settings.sync {
            file.sync_data().map_err(failed)?;
        }
        Ok(appended)
    }

    /// The number of the last event in the file; 0 if there is none.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn last_event(&self) -> Result<u64, WorkspaceError> {
        Ok(self.last_told()?.0)
    }

    /// The number of the last event in the file, and the attempt that it tells of.
    pub(crate) fn last_told(&self) -> Result<(u64, u32), WorkspaceError> {
        let failed = |error| WorkspaceError::of(Action::Read, EVENTS_JSONL, error);
        let _lock = self.shared.root.staging.lock(self.path()).map_err(failed)?;
        let tail = self.tail(&mut self.open_events()?)?;
        Ok((tail.last, tail.attempt))
    }

    fn open_events(&self) -> Result<File, WorkspaceError> {
        let mut options = OpenOptions::new();
        let own = open_own(&self.shared.dir, EVENTS_JSONL, options.read(true).append(true).create(true));
        let own = own.map_err(|error| WorkspaceError::of(Action::Opened, EVENTS_JSONL, error))?;
        let expected = "a regular file with no other name";
        own.ok_or_else(|| WorkspaceError::Unfit { path: EVENTS_JSONL.to_owned(), expected })
    }

    /// Goes back from the end of the file to the end of its last whole event.
    ///
    /// One line may be torn by a crash, and some systems leave zeros where bytes were not yet written; so what is no
    /// event is passed over. If that is more than a line can be, the file was damaged otherwise, and is begun anew.
    fn tail(&self, file: &mut File) -> Result<Tail, WorkspaceError> {
        let failed = |error| WorkspaceError::of(Action::Read, EVENTS_JSONL, error);
        let len = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut end = len;
        while end > 0 && len - end <= MOST_LINE {
            let Some(start) = line_start(file, end).map_err(failed)? else { break };
            match event_at(file, start, end).map_err(failed)? {
                Some(line) if line.run_id == *self.run_id() => {
                    return Ok(Tail { last: line.sequence, attempt: line.attempt, end });
                }
                // Two runs in one folder: what the other wrote is not cut off.
                Some(line) => return Err(self.other_run(Some(line.run_id))),
                None => end = start,
            }
        }
        Ok(Tail { last: 0, attempt: 0, end: 0 })
    }

    /// The events after `last`, a line each.
    fn lines(&self, events: &[Event], last: u64) -> Result<(Vec<u8>, Appended), WorkspaceError> {
        let mut lines = Vec::new();
        let mut appended = Appended { written: 0, last };
        for event in events.iter().filter(|event| event.sequence > last) {
            let missing = appended.last.saturating_add(1);
            if event.sequence != missing {
                return Err(WorkspaceError::Gap { run_id: self.run_id().clone(), missing });
            }
            let before = length(&lines);
            serde_json::to_writer(&mut lines, &EventView::from(event))
                .map_err(|error| WorkspaceError::of(Action::Written, EVENTS_JSONL, error.into()))?;
            lines.push(b'\n');
            let size = length(&lines) - before;
            if size > MOST_LINE {
                let (path, limit) = (EVENTS_JSONL.to_owned(), MOST_LINE);
                return Err(WorkspaceError::FileTooLarge { path, size, limit });
            }
            appended = Appended { written: appended.written + 1, last: event.sequence };
        }
        Ok((lines, appended))
    }
}

/// Where the line begins that ends at `end`, with its line feed or without. None if it is longer than any.
fn line_start(file: &mut File, end: u64) -> io::Result<Option<u64>> {
    // The last byte may be the line feed of the line itself.
    let mut to = end - 1;
    while to > 0 && end - to <= MOST_LINE {
        let from = to.saturating_sub(CHUNK);
        let chunk = bytes(file, from, to)?;
        if let Some(at) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(Some(from + length(&chunk[..=at])));
        }
        to = from;
    }
    Ok((to == 0).then_some(0))
}

/// The event on this line, if it is a whole one.
fn event_at(file: &mut File, start: u64, end: u64) -> io::Result<Option<Line>> {
    let line = bytes(file, start, end)?;
    Ok(line.strip_suffix(b"\n").and_then(|text| serde_json::from_slice(text).ok()))
}

fn bytes(file: &mut File, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(to - from).read_to_end(&mut bytes)?;
    Ok(bytes)
}
