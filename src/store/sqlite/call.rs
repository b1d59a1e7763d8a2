//! Calls to the writer, what they come to, and where their answers go.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::model::{AgentId, Run};
use crate::store::{
    ClaimRequest, Decision, PruneRequest, Pruned, Refusal, RenewRequest, Renewal, StoreError,
};

/// The most decisions and leases in the calls of one transaction.
pub(super) const MOST_WORK: usize = 4096;

/// Where an answer goes. Who waits for it counts among those who wait, until it is given.
pub(super) struct Reply<T> {
    to: oneshot::Sender<Result<T, StoreError>>,
    _permit: OwnedSemaphorePermit,
}

impl<T> Reply<T> {
    pub(super) fn new(to: oneshot::Sender<Result<T, StoreError>>, permit: OwnedSemaphorePermit) -> Self {
        Self { to, _permit: permit }
    }

    pub(super) fn send(self, answer: Result<T, StoreError>) {
        // Who asked has gone: it may have happened, as the port says.
        let _ = self.to.send(answer);
    }
}

/// A call.
pub(super) enum Command {
    Commit(Vec<Decision>, Reply<Vec<Result<(), Refusal>>>),
    Claim(ClaimRequest, Reply<Vec<Run>>),
    Renew(RenewRequest, Reply<Vec<Renewal>>),
    Prune(PruneRequest, Reply<Pruned>),
    Repair(Reply<Vec<String>>),
    PutAgent(AgentId, Option<Arc<str>>, Reply<()>),
    Close(Reply<()>),
}

impl Command {
    pub(super) fn work(&self) -> usize {
        match self {
            Self::Commit(decisions, _) => decisions.len(),
            Self::Claim(request, _) => request.limit.min(MOST_WORK),
            Self::Renew(request, _) => request.leases.len(),
            Self::Prune(request, _) => request.limit.min(MOST_WORK),
            Self::PutAgent(..) => 1,
            Self::Repair(_) | Self::Close(_) => MOST_WORK,
        }
    }

    /// A grant and a renewal need not outlast the machine: nothing is done under them before the start of the attempt
    /// is on the disk, and who held the lease is gone with the machine. They do not wait for the disk.
    pub(super) fn is_brief(&self) -> bool {
        matches!(self, Self::Claim(..) | Self::Renew(..))
    }

    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Commit(_, reply) => reply.send(Err(error)),
            Self::Claim(_, reply) => reply.send(Err(error)),
            Self::Renew(_, reply) => reply.send(Err(error)),
            Self::Prune(_, reply) => reply.send(Err(error)),
            Self::Repair(reply) => reply.send(Err(error)),
            Self::PutAgent(_, _, reply) => reply.send(Err(error)),
            Self::Close(reply) => reply.send(Err(error)),
        }
    }

    pub(super) fn answer(self, worth: Worth) {
        match (self, worth) {
            (Self::Commit(_, reply), Worth::Commit(answer)) => reply.send(Ok(answer)),
            (Self::Claim(_, reply), Worth::Claim(answer)) => reply.send(Ok(answer)),
            (Self::Renew(_, reply), Worth::Renew(answer)) => reply.send(Ok(answer)),
            (Self::Prune(_, reply), Worth::Prune(answer)) => reply.send(Ok(answer)),
            (Self::Repair(reply), Worth::Repair(answer)) => reply.send(Ok(answer)),
            (Self::PutAgent(_, _, reply), Worth::PutAgent) => reply.send(Ok(())),
            (command, _) => command.refuse(StoreError::unknown("the answer was lost within the store")),
        }
    }
}

/// What a call comes to, if the transaction is committed.
pub(super) enum Worth {
    Commit(Vec<Result<(), Refusal>>),
    Claim(Vec<Run>),
    Renew(Vec<Renewal>),
    Prune(Pruned),
    Repair(Vec<String>),
    PutAgent,
    Nothing,
}
