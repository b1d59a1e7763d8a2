//! Writing under authority: what a fenced-out attempt still tries to write changes nothing.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_actors::ProcessContext;

use super::{Action, Listing, OpenFile, Workspace, WorkspaceError, WorkspaceLimits};
use crate::tasks;

/// Decides whether an effect may still happen, atomically with losing the right to it: once the authority was
/// revoked, no effect begins.
pub trait Authority: Send + Sync {
    /// Runs `effect`, once, while the authority stands.
    ///
    /// # Errors
    /// [`AuthorityLost`] when it does not; `effect` was not run.
    fn commit(&self, effect: &mut dyn FnMut()) -> Result<(), AuthorityLost>;
}

/// Why an effect was not run, in the words of who refused it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct AuthorityLost(Arc<dyn Error + Send + Sync>);

impl AuthorityLost {
    /// Refused for this reason.
    pub fn new(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::from(reason.into()))
    }
}

/// A managed process writes while its gate is open.
impl Authority for ProcessContext {
    fn commit(&self, effect: &mut dyn FnMut()) -> Result<(), AuthorityLost> {
        ProcessContext::commit(self, effect).map_err(AuthorityLost::new)
    }
}

/// The host itself, whose writes nobody revokes.
pub(super) struct Host;

impl Authority for Host {
    fn commit(&self, effect: &mut dyn FnMut()) -> Result<(), AuthorityLost> {
        effect();
        Ok(())
    }
}

/// Runs an effect that answers something.
pub(super) fn under<T>(
    authority: &dyn Authority,
    path: &str,
    mut effect: impl FnMut() -> Result<T, WorkspaceError>,
) -> Result<T, WorkspaceError> {
    let lost = |reason: String| WorkspaceError::AuthorityLost { path: super::error::shown(path), reason };
    let mut answer = None;
    authority.commit(&mut || answer = Some(effect())).map_err(|refused| lost(refused.to_string()))?;
    answer.unwrap_or_else(|| Err(lost("the authority let it pass and did not run it".to_owned())))
}

/// The workspace as an agent has it. Every write passes the authority of its attempt at the moment in which it
/// takes effect; reads need none. A cheap clone.
///
/// What an OS process writes by itself passes by this handle: such a process is ended with its attempt.
#[derive(Clone)]
pub struct GuardedWorkspace {
    workspace: Workspace,
    authority: Arc<dyn Authority>,
}

impl GuardedWorkspace {
    /// The workspace under this authority.
    pub fn new(workspace: Workspace, authority: impl Authority + 'static) -> Self {
        Self { workspace, authority: Arc::new(authority) }
    }

    /// The folder of the run below the workspace root.
    #[must_use]
    pub fn path(&self) -> &str {
        self.workspace.path()
    }

    /// Where the folder is on this machine. See [`Workspace::folder`].
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.workspace.folder()
    }

    /// What the run may fill.
    #[must_use]
    pub fn limits(&self) -> WorkspaceLimits {
        self.workspace.limits()
    }

    /// Replaces a file as a whole, making the folders above it. See [`Workspace::write`].
    ///
    /// # Errors
    /// [`WorkspaceError::AuthorityLost`] and as [`Workspace::write`]; the file is as it was.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<(), WorkspaceError> {
        self.workspace.write_under(&*self.authority, path, bytes)
    }

    /// Adds to the end of a file. See [`Workspace::append`].
    ///
    /// # Errors
    /// [`WorkspaceError::AuthorityLost`] and as [`Workspace::append`].
    pub fn append(&self, path: &str, bytes: &[u8]) -> Result<(), WorkspaceError> {
        self.workspace.append_under(&*self.authority, path, bytes)
    }

    /// Removes a file. See [`Workspace::remove_file`].
    ///
    /// # Errors
    /// [`WorkspaceError::AuthorityLost`] and as [`Workspace::remove_file`].
    pub fn remove_file(&self, path: &str) -> Result<(), WorkspaceError> {
        self.workspace.remove_file_under(&*self.authority, path)
    }

    /// The bytes of a file. See [`Workspace::read`].
    ///
    /// # Errors
    /// As [`Workspace::read`].
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, WorkspaceError> {
        self.workspace.read(path, limit)
    }

    /// A file, to read bit by bit. See [`Workspace::open`].
    ///
    /// # Errors
    /// As [`Workspace::open`].
    pub fn open(&self, path: &str) -> Result<OpenFile, WorkspaceError> {
        self.workspace.open(path)
    }

    /// What lies in the folder. See [`Workspace::list`].
    ///
    /// # Errors
    /// As [`Workspace::list`].
    pub fn list(&self) -> Result<Listing, WorkspaceError> {
        self.workspace.list()
    }

    /// Does something with it on a thread that may block, for callers that may not.
    ///
    /// # Errors
    /// Those of `work`, and [`WorkspaceError::Io`] when the runtime shuts down first.
    ///
    /// Cancel safety: dropping the future does not stop work that has begun; its writes still pass the authority.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, WorkspaceError> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let this = self.clone();
        match tasks::blocking(move || work(&this)).await {
            Ok(answer) => answer,
            Err(ended) => Err(WorkspaceError::of(Action::Opened, self.path(), ended)),
        }
    }
}

impl fmt::Debug for GuardedWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuardedWorkspace({:?})", self.path())
    }
}
