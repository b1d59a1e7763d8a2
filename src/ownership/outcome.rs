//! What owned work came to: bytes with their media type, an error with its class, and the snapshot of a child
//! session from which the work can be continued anywhere.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::blobs::Blob;
use super::token_text;
use crate::model::{Payload, Run, RunError, RunResult, RunStatus, Timestamp};
use crate::rules;
use crate::store::{RefusedKind, StoreError};

/// The media type of what is kept when it is more than a result.
const KEPT: &str = "application/vnd.tenure.kept";

/// How owned work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With what was asked for.
    Completed,
    /// With an error.
    Failed,
    /// On request; with what there was so far (P7).
    Cancelled,
}

/// What owned work came to, as its owner publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// What it answered.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "token_text::payload")]
    pub result: Option<Payload>,
    /// Why it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// The child session, as its agent can go on from it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "token_text::payload")]
    pub snapshot: Option<Payload>,
}

impl Outcome {
    /// Completed, with this text.
    #[must_use]
    pub fn completed(text: impl AsRef<str>) -> Self {
        Self { end: End::Completed, result: Some(Payload::text(text)), error: None, snapshot: None }
    }

    /// Failed, with an error of a class.
    #[must_use]
    pub fn failed(class: impl Into<Arc<str>>, message: impl Into<Arc<str>>) -> Self {
        let error = Some(RunError::new(class.into(), message));
        Self { end: End::Failed, result: None, error, snapshot: None }
    }

    /// Stopped on request.
    #[must_use]
    pub fn cancelled() -> Self {
        Self { end: End::Cancelled, result: None, error: None, snapshot: None }
    }

    /// What the rules of runs were told, as far as it is an outcome.
    pub(super) fn of(ruled: &rules::Outcome) -> Option<Self> {
        let kept = |result: &RunResult| Kept::read(result).unwrap_or_default();
        let (end, kept, error) = match ruled {
            rules::Outcome::Completed(result) => (End::Completed, kept(result), None),
            rules::Outcome::Cancelled(partial) => {
                (End::Cancelled, partial.as_ref().map(kept).unwrap_or_default(), None)
            }
            rules::Outcome::Failed(error)
            | rules::Outcome::TimedOut(error)
            | rules::Outcome::PastDeadline(error)
            | rules::Outcome::Interrupted(error) => (End::Failed, Kept::default(), Some(error.clone())),
            rules::Outcome::AwaitingApproval { .. } => return None,
        };
        Some(Self { end, result: kept.result, error, snapshot: kept.snapshot })
    }

    /// The same, with a child session from which it can be continued.
    #[must_use]
    pub fn with_snapshot(self, snapshot: Payload) -> Self {
        Self { snapshot: Some(snapshot), ..self }
    }

    /// How many bytes it is.
    #[must_use]
    pub fn size(&self) -> usize {
        let payload = |payload: &Option<Payload>| payload.as_ref().map_or(0, |payload| payload.bytes.len());
        let error = self.error.as_ref().map_or(0, |error| error.message.len() + error.class.len());
        payload(&self.result) + payload(&self.snapshot) + error
    }
}

/// What a run came to, as everybody sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// `completed`, `failed`, `timeout` or `cancelled`.
    pub status: RunStatus,
    /// What it answered.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "token_text::payload")]
    pub result: Option<Payload>,
    /// The child session, if it was stored.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "token_text::payload")]
    pub snapshot: Option<Payload>,
    /// Where result and snapshot are when they were too large to be kept with the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
    /// Why it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// When it ended.
    pub finished_at: Timestamp,
    /// It was declared lost, and given back to its owner before it ended (S2.3).
    pub recovered: bool,
    /// It completed though somebody had asked to cancel it (X3).
    pub cancel_requested: bool,
}

impl Finished {
    /// Whether starting the work again makes sense: it was interrupted by the shutdown of its host.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.error.as_ref().is_some_and(|error| matches!(&*error.class, "interrupted" | "lost"))
    }

    /// Whether the shutdown of its host ended it. Any replica may go on, from its snapshot if it left one.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.error.as_ref().is_some_and(|error| &*error.class == "interrupted")
    }

    pub(super) fn of(run: &Run) -> Result<Self, StoreError> {
        let unreadable =
            |why: String| StoreError::refused(RefusedKind::Corrupt, format!("run \"{}\": {why}", run.run_id));
        let kept = run.result.as_ref().map(Kept::read).transpose().map_err(unreadable)?.unwrap_or_default();
        let given_up = run.error.as_ref().is_some_and(|error| &*error.class == "lost");
        let published = run.status != RunStatus::Cancelled && !given_up;
        Ok(Self {
            status: run.status,
            result: kept.result,
            snapshot: kept.snapshot,
            blob: kept.blob,
            error: run.error.clone(),
            finished_at: run.finished_at.unwrap_or(run.spec.queued_at),
            recovered: published && run.interruptions > 0,
            cancel_requested: run.status == RunStatus::Completed && run.cancel.is_some(),
        })
    }

    /// Whether this is what was published of an outcome: the same is not published twice (P1, P4).
    /// What is elsewhere is compared by who keeps it there.
    pub(super) fn is_of(&self, outcome: &Outcome) -> bool {
        let status = match outcome.end {
            End::Completed => RunStatus::Completed,
            End::Failed => RunStatus::Failed,
            End::Cancelled => RunStatus::Cancelled,
        };
        // A failure that came after a cancel request counts as cancelled (T43).
        let ended =
            self.status == status || (status == RunStatus::Failed && self.status == RunStatus::Cancelled);
        let kept = match &self.blob {
            Some(blob) => blob.size == outcome.size() as u64,
            None => self.result == outcome.result && self.snapshot == outcome.snapshot,
        };
        ended && kept && (self.error == outcome.error || self.status == RunStatus::Cancelled)
    }
}

/// What is kept with a run: a result as it is, or a result and more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Kept {
    pub(super) result: Option<Payload>,
    pub(super) snapshot: Option<Payload>,
    pub(super) blob: Option<Blob>,
    /// Of what is elsewhere: derived from the grant and from what it came to. None of what an earlier version kept.
    pub(super) number: Option<u64>,
}

/// A snapshot as it is kept with a run that has no result.
pub(crate) fn kept_snapshot(snapshot: Payload) -> Option<RunResult> {
    Kept { snapshot: Some(snapshot), ..Kept::default() }.write()
}

/// What lies behind the bytes of result and snapshot, as JSON, its length in the last four bytes.
#[derive(Serialize, Deserialize)]
struct Trailer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<Blob>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Part {
    media_type: Arc<str>,
    bytes: usize,
}

impl Kept {
    /// As it is kept: the result comes first, so that its first characters are those that are shown.
    pub(super) fn write(self) -> Option<RunResult> {
        let Self { result, snapshot, blob, number } = self;
        // A result that calls itself kept is none of ours, and is not read as one.
        let plain = result.as_ref().is_none_or(|result| &*result.media_type != KEPT);
        if plain && snapshot.is_none() && blob.is_none() {
            return result.map(RunResult::Inline);
        }
        let part = |payload: &Payload| Part {
            media_type: Arc::clone(&payload.media_type),
            bytes: payload.bytes.len(),
        };
        let (result_part, snapshot_part) = (result.as_ref().map(part), snapshot.as_ref().map(part));
        let trailer = Trailer { result: result_part, snapshot: snapshot_part, blob, number };
        let mut bytes = Vec::new();
        for payload in result.iter().chain(&snapshot) {
            bytes.extend_from_slice(&payload.bytes);
        }
        // Text and numbers: it can always be written.
        let trailer = serde_json::to_vec(&trailer).unwrap_or_default();
        bytes.extend_from_slice(&trailer);
        bytes.extend_from_slice(&u32::try_from(trailer.len()).unwrap_or(u32::MAX).to_be_bytes());
        Some(RunResult::Inline(Payload { media_type: KEPT.into(), bytes: bytes.into() }))
    }

    pub(super) fn read(result: &RunResult) -> Result<Self, String> {
        match result {
            RunResult::Inline(payload) if &*payload.media_type == KEPT => {
                Self::read_parts(&payload.bytes).ok_or_else(|| "what is kept of it cannot be read".to_owned())
            }
            RunResult::Inline(payload) => Ok(Self { result: Some(payload.clone()), ..Self::default() }),
            RunResult::File { size, path, preview, .. } => {
                let (location, preview) = (Arc::clone(path), Arc::clone(preview));
                Ok(Self { blob: Some(Blob { location, size: *size, preview }), ..Self::default() })
            }
        }
    }

    fn read_parts(bytes: &[u8]) -> Option<Self> {
        let (rest, length) = bytes.split_last_chunk::<4>()?;
        let at = rest.len().checked_sub(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        let (mut payloads, trailer) = rest.split_at(at);
        let Trailer { result, snapshot, blob, number } = serde_json::from_slice(trailer).ok()?;
        let mut take = |part: Option<Part>| match part {
            None => Some(None),
            Some(Part { media_type, bytes }) => {
                let (taken, left) = payloads.split_at_checked(bytes)?;
                payloads = left;
                Some(Some(Payload { media_type, bytes: taken.into() }))
            }
        };
        Some(Self { result: take(result)?, snapshot: take(snapshot)?, blob, number })
    }
}

/// The outcome as the rules of runs take it.
pub(super) fn ruled(outcome: &Outcome, kept: Option<RunResult>) -> rules::Outcome {
    let nothing = || RunResult::Inline(Payload::text(""));
    match outcome.end {
        End::Completed => rules::Outcome::Completed(kept.unwrap_or_else(nothing)),
        End::Cancelled => rules::Outcome::Cancelled(kept),
        End::Failed => rules::Outcome::Failed(
            outcome.error.clone().unwrap_or_else(|| RunError::new("exception", "it failed without a reason")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(kept: &Kept) -> Kept {
        Kept::read(&kept.clone().write().unwrap()).unwrap()
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let result = Some(Payload { media_type: "text/plain".into(), bytes: [0xFF, 0, b'x'][..].into() });
        let snapshot = Some(Payload::text("{\"turns\":3}"));
        let blob = Some(Blob { location: "s3:x".into(), size: 5, preview: "ab".into() });
        for (result, snapshot, blob, number) in [
            (result.clone(), None, None, None),
            (result.clone(), snapshot.clone(), None, None),
            (None, snapshot.clone(), None, None),
            (None, None, blob.clone(), None),
            (None, None, blob.clone(), Some(u64::MAX)),
            (Some(Payload { media_type: KEPT.into(), bytes: b"no trailer"[..].into() }), None, None, None),
            (result, snapshot, blob, Some(7)),
        ] {
            let one = Kept { result, snapshot, blob, number };
            assert_eq!(kept(&one), one);
        }
        assert_eq!(Kept::default().write(), None);
    }

    #[test]
    fn what_cannot_be_read_is_no_panic() {
        let whole = Kept { snapshot: Some(Payload::text("abc")), ..Kept::default() }.write().unwrap();
        let RunResult::Inline(Payload { media_type, bytes }) = whole else { panic!("kept elsewhere") };
        for end in 0..bytes.len() {
            let cut = Payload { media_type: Arc::clone(&media_type), bytes: bytes[..end].into() };
            assert!(Kept::read(&RunResult::Inline(cut)).is_err(), "{end}");
        }
    }
}
