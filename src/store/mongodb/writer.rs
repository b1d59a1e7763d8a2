//! The one task that writes: everything in its mailbox in one transaction, the answers after its commit.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::Instant;

use super::batch::{Done, Own, Worth, transact};
use super::link::{Db, Failed};
use crate::model::{AgentId, Run};
use crate::store::{
    ClaimRequest, Decision, Hint, PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal,
    StoreError,
};

/// The most calls of one transaction, and the most decisions and leases in them.
const MOST_CALLS: usize = 1024;
const MOST_WORK: usize = 2048;
/// How long a transaction that was in somebody's way waits, at first and at most, before it is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(40);
/// How often a transaction is tried again because something went wrong within the server.
const MOST_FAILURES: u32 = 5;

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A call.
pub(super) enum Command {
    Commit(Vec<Decision>, Reply<Vec<Result<(), Refusal>>>),
    Claim(ClaimRequest, Reply<Vec<Run>>),
    Renew(RenewRequest, Reply<Vec<Renewal>>),
    Prune(PruneRequest, Reply<Pruned>),
    PutAgent(AgentId, Option<Arc<str>>, Reply<()>),
    /// Compares, and repairs if that is asked for.
    Check(bool, Reply<Vec<String>>),
    Close(Reply<()>),
}

/// Who asked may have gone: then it may have happened, as the port says.
fn give<T>(reply: Reply<T>, answer: Result<T, StoreError>) {
    let _ = reply.send(answer);
}

impl Command {
    fn work(&self) -> usize {
        match self {
            Self::Commit(decisions, _) => decisions.len(),
            Self::Claim(request, _) => request.limit.min(MOST_WORK),
            Self::Renew(request, _) => request.leases.len(),
            Self::PutAgent(..) => 1,
            Self::Prune(..) | Self::Check(..) | Self::Close(_) => MOST_WORK,
        }
    }

    /// Whether it shares no transaction.
    fn is_alone(&self) -> bool {
        matches!(self, Self::Prune(..) | Self::Check(..) | Self::Close(_))
    }

    /// Whether it may have written.
    fn writes(&self) -> bool {
        !matches!(self, Self::Check(false, _))
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Commit(_, reply) => give(reply, Err(error)),
            Self::Claim(_, reply) => give(reply, Err(error)),
            Self::Renew(_, reply) => give(reply, Err(error)),
            Self::Prune(_, reply) => give(reply, Err(error)),
            Self::PutAgent(.., reply) => give(reply, Err(error)),
            Self::Check(_, reply) => give(reply, Err(error)),
            Self::Close(reply) => give(reply, Err(error)),
        }
    }

    fn answer(self, worth: Worth) {
        match (self, worth) {
            (Self::Commit(_, reply), Worth::Commit(answer)) => give(reply, Ok(answer)),
            (Self::Claim(_, reply), Worth::Claim(answer)) => give(reply, Ok(answer)),
            (Self::Renew(_, reply), Worth::Renew(answer)) => give(reply, Ok(answer)),
            (Self::Prune(_, reply), Worth::Prune(answer)) => give(reply, Ok(answer)),
            (Self::PutAgent(.., reply), Worth::Nothing) => give(reply, Ok(())),
            (Self::Check(_, reply), Worth::Check(answer)) => give(reply, Ok(answer)),
            (command, _) => command.refuse(StoreError::unknown("the answer was lost within the store")),
        }
    }
}

/// The writer.
pub(super) struct Writer {
    db: Arc<Db>,
    mailbox: mpsc::Receiver<Command>,
    hints: broadcast::Sender<Hint>,
    own: String,
    /// How many transactions there were.
    turns: u64,
    /// A call that was taken and shares no transaction with those before it.
    next: Option<Command>,
}

impl Writer {
    pub(super) fn new(
        db: Arc<Db>,
        mailbox: mpsc::Receiver<Command>,
        hints: broadcast::Sender<Hint>,
        own: String,
    ) -> Self {
        Self { db, mailbox, hints, own, turns: 0, next: None }
    }

    /// Until it is closed, or everybody has gone and the mailbox is empty.
    pub(super) async fn run(mut self) {
        loop {
            let first = match self.next.take() {
                Some(next) => Some(next),
                None => self.mailbox.recv().await,
            };
            match first {
                None => return,
                Some(Command::Close(reply)) => {
                    self.mailbox.close();
                    while let Some(command) = self.mailbox.recv().await {
                        let message = format!("\"{}\" was closed by this program", self.db.place);
                        command.refuse(StoreError::refused(RefusedKind::Closed, message));
                    }
                    give(reply, Ok(()));
                    return;
                }
                Some(first) => {
                    let batch = self.batch(first);
                    self.serve(batch).await;
                }
            }
        }
    }

    /// A call with what waits behind it.
    fn batch(&mut self, first: Command) -> Vec<Command> {
        let mut work = first.work();
        let alone = first.is_alone();
        let mut batch = vec![first];
        while !alone && batch.len() < MOST_CALLS && work < MOST_WORK {
            let Ok(command) = self.mailbox.try_recv() else { break };
            if command.is_alone() {
                self.next = Some(command);
                break;
            }
            work += command.work();
            batch.push(command);
        }
        batch
    }

    async fn serve(&mut self, batch: Vec<Command>) {
        match self.persist(&batch).await {
            Ok((worth, hint)) => {
                // Before the answers: who begins to watch after one hears nothing of what it was told.
                if let Some(hint) = hint {
                    // Nobody watches: fine.
                    let _ = self.hints.send(hint);
                }
                for (command, worth) in batch.into_iter().zip(worth) {
                    command.answer(worth);
                }
            }
            Err(Failed::Before(fault)) if batch.len() > 1 && !fault.is_of_the_surroundings() => {
                for command in batch {
                    Box::pin(self.serve(vec![command])).await;
                }
            }
            Err(Failed::Before(fault)) => self.refuse(batch, &fault.refused(&self.db.place)),
            Err(Failed::AtCommit(fault)) => {
                let unknown = fault.unknown(&self.db.place);
                let refused = fault.refused(&self.db.place);
                for command in batch {
                    let error = if command.writes() { unknown.clone() } else { refused.clone() };
                    command.refuse(error);
                }
            }
        }
    }

    fn refuse(&self, batch: Vec<Command>, error: &StoreError) {
        for command in batch {
            command.refuse(error.clone());
        }
    }

    /// Makes the transaction; again, after a while, as long as others are in the way of it, and a few times when the
    /// server fails.
    async fn persist(&mut self, batch: &[Command]) -> Result<Done, Failed> {
        let until = Instant::now() + self.db.options.patience;
        let (mut pause, mut failures) = (FIRST_PAUSE, 0);
        loop {
            match self.within(batch).await {
                Err(Failed::Before(fault))
                    if fault.may_pass() && failures < MOST_FAILURES && Instant::now() < until =>
                {
                    failures += u32::from(fault.is_of_the_server());
                    tracing::debug!(%fault, "a transaction is tried again");
                    tokio::time::sleep(some_of(pause)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                outcome => return outcome,
            }
        }
    }

    async fn within(&mut self, batch: &[Command]) -> Result<Done, Failed> {
        self.turns += 1;
        transact(&self.db, batch, Own { name: &self.own, number: self.turns }).await
    }
}

/// A part of a pause, so that those who met do not meet again.
fn some_of(pause: Duration) -> Duration {
    let drawn = uuid::Uuid::new_v4().as_u128() & 1023;
    let part = u32::try_from(drawn).unwrap_or(0) + 1;
    pause * part / 1024
}
