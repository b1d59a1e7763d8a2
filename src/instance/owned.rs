//! Work that a host executes itself: an attempt like any other, but that its run begins with its grant.

use std::sync::Arc;
use std::time::Duration;

use tenure_actors::{Generation, StartError};
use tokio::time::Instant;

use super::Instance;
use super::attempt::{Job, Work};
use super::live::LiveRun;
use crate::model::{Run, Token};

impl Instance {
    /// Executes work under its grant, as a managed process of the generation. `asked` is when the grant was asked
    /// for, `left` how long its lease was then at least. What it comes to is stored by the recorder, also when the
    /// process could not be started.
    ///
    /// Answers whether it is executed under this grant: by this call, or by another that was made at the same time with
    /// the same request.
    ///
    /// # Errors
    /// [`StartError`] when the process was not started: the run is on its way to its end.
    pub(crate) async fn execute_owned(
        self: &Arc<Self>,
        generation: &Generation,
        run: Run,
        token: Token,
        (asked, left): (Instant, Duration),
        work: Work,
    ) -> Result<bool, StartError> {
        let id = format!("owned:{}:{}", run.run_id, token.fence);
        let reliance = self.reliance().min(left.saturating_sub(self.settings().margin()));
        let live = LiveRun::new(run, token, asked, reliance);
        let job = match Job::owned(self, Arc::clone(&live), work) {
            Ok(job) => job,
            Err(before) => return Ok(before.begins().await),
        };
        live.executes_in(generation.registry().start(id, job.process(None)).await?);
        Ok(true)
    }
}
