//! Stores the tasks of a file.

use tenure::{Error, Tenure};

use crate::config::FileTask;

/// Stores a task as the file has it. One that was paused stays so, unless the file says otherwise.
pub(crate) async fn task(tenure: &Tenure, task: &FileTask) -> Result<(), Error> {
    let mut spec = task.spec.clone();
    if !task.says_enabled {
        match tenure.task(&spec.task_id).await {
            Ok((stored, _)) => spec.enabled = stored.spec.enabled,
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    tenure.put_task(spec).await?;
    Ok(())
}
