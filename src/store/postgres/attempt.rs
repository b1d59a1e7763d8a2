//! The latest attempt of a run, in the row of the run: most runs have one attempt, and it moves with them.

use super::fault::{Fault, Step};
use super::row::{json, parsed, unreadable};
use crate::model::{Attempt, AttemptStatus, InstanceId, RunError, RunId, Timestamp};

/// Number, status, instance, fence, start, end; then the error as it is.
const FRONT: usize = 4 + 1 + 16 + 8 + 8 + 8;

/// Stands for an end that has not come.
const NEVER: i64 = i64::MIN;

/// As bytes.
pub(super) fn packed(attempt: &Attempt) -> Step<Vec<u8>> {
    let mut bytes = Vec::with_capacity(FRONT);
    bytes.extend_from_slice(&attempt.number.to_be_bytes());
    bytes.push(attempt.status.number());
    bytes.extend_from_slice(&attempt.instance.bits().to_be_bytes());
    bytes.extend_from_slice(&attempt.fence.to_be_bytes());
    bytes.extend_from_slice(&attempt.started_at.ms().to_be_bytes());
    bytes.extend_from_slice(&attempt.finished_at.map_or(NEVER, Timestamp::ms).to_be_bytes());
    if let Some(error) = &attempt.error {
        bytes.extend_from_slice(json::<RunError>(error)?.as_bytes());
    }
    Ok(bytes)
}

/// Its number.
pub(super) fn number(bytes: &[u8]) -> Step<u32> {
    bytes.first_chunk().map(|number| u32::from_be_bytes(*number)).ok_or_else(cut)
}

/// From its bytes.
pub(super) fn unpacked(run_id: &RunId, bytes: &[u8]) -> Step<Attempt> {
    let mut rest = bytes;
    let number = u32::from_be_bytes(take(&mut rest)?);
    let [how] = take(&mut rest)?;
    let instance = InstanceId::from_bits(u128::from_be_bytes(take(&mut rest)?));
    let fence = u64::from_be_bytes(take(&mut rest)?);
    let (started_at, finished_at) =
        (i64::from_be_bytes(take(&mut rest)?), i64::from_be_bytes(take(&mut rest)?));
    let status = AttemptStatus::from_number(how);
    let error = std::str::from_utf8(rest).map_err(|error| unreadable(error.to_string()))?;
    Ok(Attempt {
        attempt_id: run_id.attempt(number),
        number,
        status: status
            .ok_or_else(|| unreadable(format!("{how} is the number of no status of an attempt")))?,
        instance,
        fence,
        started_at: Timestamp::from_ms(started_at),
        finished_at: (finished_at != NEVER).then(|| Timestamp::from_ms(finished_at)),
        error: if error.is_empty() { None } else { Some(parsed("the error", error)?) },
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Step<[u8; N]> {
    let (taken, left) = rest.split_first_chunk().ok_or_else(cut)?;
    *rest = left;
    Ok(*taken)
}

fn cut() -> Fault {
    unreadable("the latest attempt cannot be read: its bytes are not in the form of this program")
}
