//! The files of runs on this instance: what attempts write, under their authority, and what retention removes.

use std::sync::Arc;

use tokio::sync::RwLock;
use tokio::time::timeout;

use super::Instance;
use super::context::Held;
use super::mirror::Queue;
use crate::error::Error;
use crate::model::{Payload, Run, RunResult};
use crate::settings::Settings;
use crate::tasks;
use crate::workspace::{GuardedWorkspace, OUTPUT_MD, Workspace, WorkspaceError, WorkspaceRoot};

/// Where this instance keeps the files of runs.
pub(crate) struct Files {
    pub(crate) root: WorkspaceRoot,
    /// The runs whose mirrors are behind.
    pub(super) queue: Queue,
    /// Shared by who mirrors a run, from the look at the store to the last write. Retention takes it alone, so
    /// that no folder is made again of a run that was just removed.
    pub(super) removing: RwLock<()>,
}

impl Files {
    /// None if this host is to keep no files.
    pub(crate) async fn open(settings: &Settings) -> Result<Option<Self>, Error> {
        let Some(folder) = settings.workspace.clone() else { return Ok(None) };
        let shown = folder.root.to_string_lossy().into_owned();
        let opened = tasks::blocking(move || WorkspaceRoot::open(folder.root, folder.settings)).await;
        let root = opened.map_err(|ended| WorkspaceError::ended(&shown, ended)).flatten();
        let root = root.map_err(|error| Error::Workspace(Arc::new(error)))?;
        Ok(Some(Self { root, queue: Queue::default(), removing: RwLock::default() }))
    }
}

impl Held {
    /// The workspace of the attempt, made if it is not there. Blocks.
    pub(super) fn workspace(&self, root: &WorkspaceRoot) -> Result<GuardedWorkspace, WorkspaceError> {
        let workspace = match self.live.workspace.get() {
            Some(workspace) => workspace.clone(),
            None => {
                let made = self.make(root)?;
                self.live.workspace.get_or_init(|| made).clone()
            }
        };
        Ok(GuardedWorkspace::new(workspace, self.clone()))
    }

    /// Made under the process's gate, so that no attempt of the past makes the folder of a run that is gone.
    fn make(&self, root: &WorkspaceRoot) -> Result<Workspace, WorkspaceError> {
        let run = self.live.run();
        let path = &run.spec.workspace_path;
        let lost = |reason: &dyn std::fmt::Display| WorkspaceError::AuthorityLost {
            path: path.to_string(),
            reason: reason.to_string(),
        };
        self.process.commit(|| root.run(&run.run_id, path)).map_err(|refused| lost(&refused))?
    }
}

impl Instance {
    /// Writes what the agent answered into its workspace, if there is one. False if that failed, which is told:
    /// the run does not suffer from it. Bounded: a disk that hangs holds up no outcome for longer.
    pub(super) async fn write_output(&self, held: Held, payload: &Payload) -> bool {
        // An agent that answers nothing may have written the file itself.
        let Some(files) = self.files.as_ref().filter(|_| !payload.bytes.is_empty()) else { return false };
        let (root, bytes) = (files.root.clone(), Arc::clone(&payload.bytes));
        let live = Arc::clone(&held.live);
        let write = tasks::blocking(move || held.workspace(&root)?.write(OUTPUT_MD, &bytes));
        let failed: String = match timeout(self.settings().patience, write).await {
            Ok(Ok(Ok(()))) => return true,
            // Whoever is replaced or cancelled has nothing to answer any more, and nobody has anything to do about it.
            Ok(Ok(Err(error @ WorkspaceError::AuthorityLost { .. }))) => {
                tracing::debug!(run = %live.run_id, %error, "an answer came too late to be written");
                return false;
            }
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(ended)) => ended.to_string(),
            Err(_) => "the disk did not answer within the patience".to_owned(),
        };
        tracing::warn!(run = %live.run_id, error = failed, "an answer was not written to its workspace");
        false
    }

    /// Removes the folders of runs that are gone.
    pub(crate) async fn remove_folders(&self, folders: Vec<Arc<str>>) {
        let Some(files) = self.files.as_ref().filter(|_| !folders.is_empty()) else { return };
        let _alone = files.removing.write().await;
        let root = files.root.clone();
        let removed = tasks::blocking(move || {
            let failed = folders.iter().filter_map(|path| root.remove(path).err());
            failed.map(|error| error.to_string()).collect::<Vec<_>>()
        });
        match removed.await {
            Ok(failed) => {
                if let Some(first) = failed.first() {
                    tracing::warn!(
                        count = failed.len(),
                        error = first,
                        "files of removed runs are left behind"
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "files of removed runs are left behind"),
        }
    }
}

/// A result in the file that was written of it.
pub(super) fn by_reference(payload: &Payload) -> RunResult {
    RunResult::File {
        media_type: Arc::clone(&payload.media_type),
        size: u64::try_from(payload.bytes.len()).unwrap_or(u64::MAX),
        path: OUTPUT_MD.into(),
        preview: payload.preview().into(),
    }
}

/// Whether anything of the run is mirrored, by the policy of its task.
pub(super) fn is_mirrored(run: &Run) -> bool {
    run.spec.write_run_json || run.spec.write_events_jsonl
}
