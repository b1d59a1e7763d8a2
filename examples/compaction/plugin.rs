//! The plugin: its actions. Each answers at once; a later one finds by its id what an earlier one started.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tenure::actors::{
    Application, BoxError, OperationRegistration, OperationRequest, ProcessSpec, ReserveError,
};
use tokio::sync::mpsc;

use crate::process::{CompactionProcess, OnClose, Phase};
use crate::session::Session;

/// The owner of every operation that this plugin reserves.
const PLUGIN: &str = "compaction";

pub(crate) struct Plugin {
    pub(crate) application: Application,
    pub(crate) provider: SocketAddr,
    /// Where notices for the user go.
    pub(crate) notices: mpsc::UnboundedSender<String>,
}

pub(crate) enum Answer {
    Accepted,
    Busy(OperationRegistration),
    Status(Phase),
    CancellationRequested,
    NotFound,
}

impl Plugin {
    /// Starts to compact a session. The operation and the process share one id.
    pub(crate) async fn compact(
        &self,
        id: &str,
        session: &Arc<Session>,
        on_close: OnClose,
    ) -> Result<Answer, BoxError> {
        let generation = self.application.current();
        let request = OperationRequest::new(id, PLUGIN)?.on_session(&session.id)?;
        let lease = match generation.operations().reserve(request).await {
            Ok(lease) => lease,
            Err(ReserveError::Busy(blocking)) => return Ok(Answer::Busy(blocking)),
            Err(error) => return Err(error.into()),
        };
        let (session, notices) = (Arc::clone(session), self.notices.clone());
        let process = Arc::new(CompactionProcess::new(session, self.provider, notices, on_close));
        // The process takes the lease along: if it is not started the operation is released at once, and
        // otherwise after it has ended, in whatever way, and its id is free again.
        let process = ProcessSpec::object("compaction", process).holding(lease);
        generation.registry().start(id, process).await?;
        Ok(Answer::Accepted)
    }

    /// How far a compaction is.
    pub(crate) fn status(&self, id: &str) -> Answer {
        self.find(id).map_or(Answer::NotFound, |process| Answer::Status(process.snapshot()))
    }

    /// Asks a compaction to end without a result.
    pub(crate) fn cancel(&self, id: &str, reason: &str) -> Answer {
        self.find(id).map_or(Answer::NotFound, |process| {
            process.request_cancel(reason);
            Answer::CancellationRequested
        })
    }

    /// The very object that [`Plugin::compact`] started, or none.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<CompactionProcess>> {
        self.application.current().registry().get(id)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::Busy(blocking) => write!(f, "busy, {blocking} is active"),
            Self::Status(phase) => phase.fmt(f),
            Self::CancellationRequested => f.write_str("cancellation requested"),
            Self::NotFound => f.write_str("not found"),
        }
    }
}
