//! What a program writes to standard error: its beginning and its end in `logs/`, whatever lies between.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::workspace::{GuardedWorkspace, LOGS, WorkspaceError};

/// How much of the beginning is kept, and how much of the end.
const HEAD: u64 = 1024 * 1024;
const TAIL: usize = 64 * 1024;
/// How much of the last line is shown with an error.
const MOST_SHOWN: usize = 500;

pub(super) struct Log {
    /// None where no files are kept, or the log could not be written.
    workspace: Option<GuardedWorkspace>,
    path: Arc<str>,
    written: u64,
    total: u64,
    /// The end of what came.
    tail: VecDeque<u8>,
}

impl Log {
    pub(super) fn new(workspace: Option<GuardedWorkspace>, attempt: u32) -> Self {
        let path = format!("{LOGS}/attempt-{attempt}.stderr.log").into();
        Self { workspace, path, written: 0, total: 0, tail: VecDeque::new() }
    }

    /// Never fails: the log of a run is no reason for it to fail.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(length(bytes));
        let room = usize::try_from(HEAD.saturating_sub(self.written)).unwrap_or(0).min(bytes.len());
        if room > 0 {
            self.append(&bytes[..room]).await;
            self.written += length(&bytes[..room]);
        }
        let end = &bytes[bytes.len().saturating_sub(TAIL)..];
        let over = (self.tail.len() + end.len()).saturating_sub(TAIL);
        self.tail.drain(..over);
        self.tail.extend(end);
    }

    /// Writes the end, if it is not there yet.
    pub(super) async fn finish(&mut self) {
        let missing = self.total - self.written;
        if missing == 0 {
            return;
        }
        let kept = usize::try_from(missing).unwrap_or(usize::MAX).min(self.tail.len());
        let end: Vec<u8> = self.tail.iter().copied().skip(self.tail.len() - kept).collect();
        let left_out = missing - length(&end);
        if left_out > 0 {
            self.append(format!("\n[{left_out} bytes are left out here]\n").as_bytes()).await;
        }
        self.append(&end).await;
    }

    /// The last line that is not blank, for people.
    pub(super) fn last_line(&self) -> Option<String> {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        let shown = line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
        Some(shown.take(MOST_SHOWN).collect())
    }

    async fn append(&mut self, bytes: &[u8]) {
        let Some(workspace) = &self.workspace else { return };
        let (path, bytes): (_, Vec<u8>) = (Arc::clone(&self.path), bytes.to_vec());
        match workspace.blocking(move |workspace| workspace.append(&path, &bytes)).await {
            // It may be told again when the store answers; what is missing until then stays missing.
            Ok(()) | Err(WorkspaceError::AuthorityLost { .. }) => {}
            Err(error) => {
                tracing::warn!(path = &*self.path, %error, "the log of a program is not written any further");
                self.workspace = None;
            }
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_line_is_shown_and_memory_holds_only_the_end() {
        let mut log = Log::new(None, 1);
        assert_eq!(log.last_line(), None);
        for _ in 0..100 {
            log.write(&[b'x'; 100_000]).await;
            assert!(log.tail.len() <= TAIL);
        }
        log.write(b"\nfirst\n\x1b[31mno \xff such file\r\n \n").await;
        assert_eq!(log.last_line().as_deref(), Some("\u{fffd}[31mno \u{fffd} such file"));
    }
}
