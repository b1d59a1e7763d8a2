//! The files of runs: listed, read.

use std::sync::Arc;

use super::Tenure;
use crate::error::Error;
use crate::model::{Run, RunId};
use crate::view::FilesView;
use crate::workspace::{Listing, OpenFile, Workspace, WorkspaceError};

impl Tenure {
    /// What lies in the workspace of a run. `run.json` and `events.jsonl` are brought up to date first, so that
    /// they tell all that this call could have seen in the store.
    ///
    /// # Errors
    /// [`Error::NotFound`] also when this host keeps no files; [`Error::Elsewhere`] when the run was executed by
    /// another instance, which has its files; [`Error::Workspace`], [`Error::Store`].
    pub async fn workspace(&self, run_id: &RunId) -> Result<FilesView, Error> {
        let (run, workspace) = self.find_workspace(run_id).await?;
        let listing = match workspace {
            Some(workspace) => workspace.blocking(Workspace::list).await?,
            None => Listing { entries: Vec::new(), complete: true },
        };
        Ok(FilesView::new(&run, listing))
    }

    /// The bytes of a file of a run, as long as it is no larger than the workspace lets agents write.
    ///
    /// # Errors
    /// As [`Tenure::workspace`]; [`Error::NotFound`] when there is no such file; [`Error::Invalid`] when the path
    /// names none, or leads out of the workspace.
    pub async fn read_file(&self, run_id: &RunId, path: &str) -> Result<Vec<u8>, Error> {
        let limit = self.file_limit();
        self.on_file(run_id, path, move |workspace, path| workspace.read(path, limit)).await
    }

    /// A file of a run, to be read bit by bit.
    ///
    /// # Errors
    /// As [`Tenure::read_file`].
    pub async fn open_file(&self, run_id: &RunId, path: &str) -> Result<OpenFile, Error> {
        self.on_file(run_id, path, Workspace::open).await
    }

    fn file_limit(&self) -> u64 {
        let files = self.instance.files.as_ref();
        files.map_or(0, |files| files.root.settings().limits.max_file_bytes)
    }

    async fn on_file<T: Send + 'static>(
        &self,
        run_id: &RunId,
        path: &str,
        work: impl FnOnce(&Workspace, &str) -> Result<T, WorkspaceError> + Send + 'static,
    ) -> Result<T, Error> {
        let missing = || Error::NotFound { kind: "file", id: path.to_owned() };
        let (_, workspace) = self.find_workspace(run_id).await?;
        let path = path.to_owned();
        let workspace = workspace.ok_or_else(missing)?;
        Ok(workspace.blocking(move |workspace| work(workspace, &path)).await?)
    }

    /// The workspace of a run, if there is one, with its mirror up to date.
    async fn find_workspace(&self, run_id: &RunId) -> Result<(Run, Option<Workspace>), Error> {
        let run = self.run(run_id).await?;
        let Some(files) = &self.instance.files else {
            return Err(Error::NotFound { kind: "workspace of run", id: run_id.to_string() });
        };
        if let Some(instance) = self.instance.mirror_now(files, &run).await? {
            return Err(Error::Elsewhere { run_id: run_id.clone(), instance });
        }
        let (root, found) = (files.root.clone(), run.clone());
        let find = move || root.find(&found.run_id, &found.spec.workspace_path);
        let found = crate::tasks::blocking(find).await;
        let found = found.map_err(|ended| WorkspaceError::ended(&run.spec.workspace_path, ended)).flatten();
        Ok((run, found.map_err(|error| Error::Workspace(Arc::new(error)))?))
    }
}
