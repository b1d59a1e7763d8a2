//! `run.json`: the run as it stands.

use std::io::Read;

use cap_std::fs::OpenOptions;
use serde::Deserialize;

use super::staging::open_own;
use super::{Action, RUN_JSON, Workspace, WorkspaceError};
use crate::model::RunId;
use crate::view::RunView;

/// A record of more bytes than this is none of ours.
const MOST_BYTES: u64 = 64 << 20;

/// As much of a record as says how old it is.
#[derive(Deserialize)]
struct Kept {
    run_id: RunId,
    version: u64,
    #[serde(default)]
    attempt: u32,
}

impl Workspace {
    /// Replaces `run.json` as a whole. False if what is there is newer: whoever is late, another instance too,
    /// does not undo it.
    ///
    /// # Errors
    /// When the view or what is there is of another run, or the file cannot be written.
    pub fn write_run(&self, view: &RunView) -> Result<bool, WorkspaceError> {
        if view.run_id != *self.run_id() {
            return Err(self.other_run(Some(view.run_id.clone())));
        }
        let failed = |error| WorkspaceError::of(Action::Written, RUN_JSON, error);
        let mut bytes = serde_json::to_vec_pretty(view).map_err(|error| failed(error.into()))?;
        bytes.push(b'\n');
        let root = &self.shared.root;
        let _lock = root.staging.lock(self.path()).map_err(failed)?;
        match self.kept() {
            Some(kept) if kept.run_id != view.run_id => return Err(self.other_run(Some(kept.run_id))),
            Some(kept) if kept.version > view.version => return Ok(false),
            _ => {}
        }
        let mut staged = root.staging.stage(&bytes, root.settings.sync).map_err(failed)?;
        staged.put(&self.shared.dir, RUN_JSON).map_err(failed)?;
        Ok(true)
    }

    /// The attempts begun by what the record says; 0 if there is none.
    pub(crate) fn kept_attempt(&self) -> u32 {
        self.kept().map_or(0, |kept| kept.attempt)
    }

    /// None if there is no record, or none that can be read: it is replaced then.
    fn kept(&self) -> Option<Kept> {
        let file = open_own(&self.shared.dir, RUN_JSON, OpenOptions::new().read(true)).ok()??;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn other_run(&self, found: Option<RunId>) -> WorkspaceError {
        WorkspaceError::OtherRun { run_id: self.run_id().clone(), found }
    }
}
