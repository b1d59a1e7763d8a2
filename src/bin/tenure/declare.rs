//! Stores the tasks of a file.

use tenure::model::{Schedule, TaskSpec};
use tenure::{Error, Tenure};

use crate::config::FileTask;

/// Stores a task as the file has it. One that was paused stays so, unless the file says otherwise.
pub(crate) async fn task(tenure: &Tenure, task: &FileTask) -> Result<(), Error> {
    put(tenure, task, |_| task.spec.schedule.clone()).await
}

/// The same for who runs it by hand: its schedule stays as it is stored. A host that serves is to fire it, and none
/// is promised by a run.
pub(crate) async fn task_by_hand(tenure: &Tenure, task: &FileTask) -> Result<(), Error> {
    let schedule =
        |stored: Option<&TaskSpec>| stored.map_or_else(Schedule::default, |stored| stored.schedule.clone());
    put(tenure, task, schedule).await
}

/// What is kept is what stands when it is stored: a pause that comes at the same moment is not undone.
async fn put(
    tenure: &Tenure,
    task: &FileTask,
    schedule: impl Fn(Option<&TaskSpec>) -> Schedule,
) -> Result<(), Error> {
    let declared = |stored: Option<&TaskSpec>| {
        let kept = stored.filter(|_| !task.says_enabled);
        let enabled = kept.map_or(task.spec.enabled, |stored| stored.enabled);
        TaskSpec { schedule: schedule(stored), enabled, ..task.spec.clone() }
    };
    tenure.put_task_with(&task.spec.task_id, declared).await?;
    Ok(())
}
