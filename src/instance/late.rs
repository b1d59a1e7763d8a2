//! What came too late to count.

use serde_json::json;

use super::Instance;
use crate::model::{RunId, Token};
use crate::rules::{self, Outcome};
use crate::store::{Decision, StoreError, TaskChange, TaskWrite};

impl Instance {
    /// Tells in the history of its task that an outcome was refused: the run has gone on without it, and may have ended
    /// (field L16). What cannot be told is left to the log.
    pub(super) async fn tell_refused(&self, run_id: &RunId, token: Token, outcome: &Outcome) {
        let told = match outcome {
            Outcome::Completed(result) => json!({ "end": "completed", "result_preview": result.preview() }),
            Outcome::Failed(error) => json!({ "end": "failed", "error": error }),
            Outcome::TimedOut(error) | Outcome::PastDeadline(error) => {
                json!({ "end": "timeout", "error": error })
            }
            // Nothing is lost with these: whoever was granted the run has taken over already.
            Outcome::Cancelled(_) | Outcome::Interrupted(_) | Outcome::AwaitingApproval { .. } => return,
        };
        if let Err(error) = self.try_tell(run_id, token, &told).await {
            tracing::warn!(run = %run_id, %error, "that a late result was refused is told here only");
        }
    }

    async fn try_tell(
        &self,
        run_id: &RunId,
        token: Token,
        told: &serde_json::Value,
    ) -> Result<(), StoreError> {
        let Some(run) = self.vitals.watch(self.store.run(run_id)).await? else { return Ok(()) };
        let Some((task, _)) = self.vitals.watch(self.store.task(&run.spec.task_id)).await? else {
            return Ok(());
        };
        let moment = self.moment().await?;
        let write = TaskWrite {
            task_id: run.spec.task_id.clone(),
            expect: Some(task.revision),
            change: TaskChange::Keep,
            events: vec![rules::archive(task.last_event + 1, &run, token, told, moment)],
        };
        let told = self.commit_one(Decision { task: Some(write), ..Decision::default() }).await?;
        if let Err(refusal) = told {
            tracing::debug!(%refusal, "the task was changed meanwhile");
        }
        Ok(())
    }
}
