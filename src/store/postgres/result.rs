//! Results of few bytes, in the row of their run.

use super::fault::Step;
use super::row::{text, unreadable};
use crate::model::{Payload, RunResult};

/// Results of up to this many bytes are kept in the row.
const SMALL: usize = 256;

/// The bytes of a result that is kept in the row of its run: the length of its media type, that, and the rest.
pub(super) fn small(result: &RunResult) -> Option<Vec<u8>> {
    let RunResult::Inline(Payload { media_type, bytes }) = result else { return None };
    let length = u8::try_from(media_type.len()).ok()?;
    (media_type.len() + bytes.len() <= SMALL).then(|| {
        let mut packed = Vec::with_capacity(1 + media_type.len() + bytes.len());
        packed.push(length);
        packed.extend_from_slice(media_type.as_bytes());
        packed.extend_from_slice(bytes);
        packed
    })
}

/// What is kept in a row.
pub(super) fn unpacked(packed: &[u8]) -> Step<RunResult> {
    let cut = || unreadable("the result cannot be read: its bytes are not in the form of this program");
    let (length, rest) = packed.split_first().ok_or_else(cut)?;
    let (media_type, bytes) = rest.split_at_checked(usize::from(*length)).ok_or_else(cut)?;
    Ok(RunResult::Inline(Payload { media_type: text(media_type)?.into(), bytes: bytes.into() }))
}
