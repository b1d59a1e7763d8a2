//! A run that asked a person goes on once it is answered.

use std::io;
use std::sync::Arc;

use serde_json::{Value, json};

use super::attempt::Outcome;
use super::change::{Change, Moment, Moved};
use crate::model::{Approval, ApprovalAnswer, EventKind, Invalid, Run, RunError, RunStatus};
use crate::store::RunWrite;

/// What an attempt comes to that asks this: a question past its limits is a failure, for it is kept with the run and
/// told with its events.
#[must_use]
pub fn ask(question: Arc<str>, data: Value) -> Outcome {
    let too_large = |message: String| Outcome::Failed(RunError::new("output_too_large", message));
    let (found, most) = (question.len(), Approval::MOST_QUESTION_BYTES);
    if found > most {
        return too_large(format!(
            "the question has {found} bytes, expected at most {most}; write what belongs to it to the workspace"
        ));
    }
    if !fits(&data) {
        let most = Approval::MOST_DATA_BYTES;
        return too_large(format!(
            "the data of the question has more than {most} bytes as JSON; write it to the workspace"
        ));
    }
    Outcome::AwaitingApproval { question, data }
}

/// Whether an answer can be given to any agent.
///
/// # Errors
/// [`Invalid`] when it is longer than [`Approval::MOST_DATA_BYTES`].
pub fn check_answer(answer: &ApprovalAnswer) -> Result<(), Invalid> {
    if fits(&answer.answer) {
        return Ok(());
    }
    let most = Approval::MOST_DATA_BYTES;
    Err(Invalid::one(
        "answer",
        format!("at most {most} bytes as JSON, found more; say where it lies instead"),
    ))
}

fn fits(value: &Value) -> bool {
    serde_json::to_writer(Room(Approval::MOST_DATA_BYTES), value).is_ok()
}

/// Takes so many bytes and keeps none.
struct Room(usize);

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Queues a run that waits for a person, with the answer for its next attempt. It obeys its overlap policy
/// again (T24): it waits like any other until there is room in its lanes.
///
/// # Errors
/// [`Moved`] when the run does not wait for a person.
pub fn resume(run: &Run, answer: ApprovalAnswer, moment: Moment) -> Result<RunWrite, Moved> {
    if run.status != RunStatus::AwaitingApproval {
        return Err(Moved(run.status));
    }
    let mut change = Change::of(run, None, moment);
    let data = json!({ "resumed": true, "approved": answer.approved });
    let resumed = change.run();
    resumed.due_at = moment.now;
    if let Some(approval) = &mut resumed.approval {
        approval.answer = Some(answer);
    }
    change.to(RunStatus::Queued).event_with(EventKind::Queued, None, data);
    Ok(change.done())
}
