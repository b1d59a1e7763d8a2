//! Stores the tasks of a file.

use tenure::model::{Schedule, TaskSpec};
use tenure::{Error, Tenure};

use crate::config::FileTask;

/// Stores a task as the file has it. One that was paused stays so, unless the file says otherwise.
pub(crate) async fn task(tenure: &Tenure, task: &FileTask) -> Result<(), Error> {
    let stored = stored(tenure, task).await?;
    put(tenure, task, stored.as_ref(), task.spec.schedule.clone()).await
}

/// The same for who runs it by hand: its schedule stays as it is stored. A host that serves is to fire it, and none
/// is promised by a run.
pub(crate) async fn task_by_hand(tenure: &Tenure, task: &FileTask) -> Result<(), Error> {
    let stored = stored(tenure, task).await?;
    let schedule = stored.as_ref().map_or_else(Schedule::default, |stored| stored.schedule.clone());
    put(tenure, task, stored.as_ref(), schedule).await
}

async fn stored(tenure: &Tenure, task: &FileTask) -> Result<Option<TaskSpec>, Error> {
    match tenure.task(&task.spec.task_id).await {
        Ok((stored, _)) => Ok(Some(stored.spec)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn put(
    tenure: &Tenure,
    task: &FileTask,
    stored: Option<&TaskSpec>,
    schedule: Schedule,
) -> Result<(), Error> {
    let kept = stored.filter(|_| !task.says_enabled);
    let enabled = kept.map_or(task.spec.enabled, |stored| stored.enabled);
    tenure.put_task(TaskSpec { schedule, enabled, ..task.spec.clone() }).await?;
    Ok(())
}
