//! The one task that writes: everything in its mailbox in one transaction, the answers after its commit.
//!
//! It has an OS thread with a runtime of its own, as have the connections: leases are renewed, and answers come, also
//! while the runtime of the host is busy with work that blocks it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};

use super::conn::{Conn, Heard, Session, check_encoding};
use super::fault::{Fault, Step};
use super::flush::Failed;
use super::known::Memory;
use super::load::Needs;
use super::migrate::migrate;
use super::options::PostgresOptions;
use super::read;
use super::tx::Tx;
use crate::model::{AgentId, Run};
use crate::store::{
    ClaimRequest, Decision, Hint, PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal,
    StoreError, hint, sharing,
};

/// The most calls of one transaction, and the most decisions and leases in them.
const MOST_CALLS: usize = 1024;
const MOST_WORK: usize = 4096;
/// How often a transaction that was in somebody's way is tried.
const MOST_TRIES: u32 = 5;
/// How long after a lost connection the next one is tried, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A call.
pub(super) enum Command {
    Commit(Vec<Decision>, Reply<Vec<Result<(), Refusal>>>),
    Claim(ClaimRequest, Reply<Vec<Run>>),
    Renew(RenewRequest, Reply<Vec<Renewal>>),
    Prune(PruneRequest, Reply<Pruned>),
    PutAgent(AgentId, Option<Arc<str>>, Reply<()>),
    Repair(Reply<Vec<String>>),
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
            Self::Prune(..) | Self::Repair(_) | Self::Close(_) => MOST_WORK,
        }
    }

    /// Whether it shares no transaction.
    fn is_alone(&self) -> bool {
        matches!(self, Self::Prune(..) | Self::Repair(_) | Self::Close(_))
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Commit(_, reply) => give(reply, Err(error)),
            Self::Claim(_, reply) => give(reply, Err(error)),
            Self::Renew(_, reply) => give(reply, Err(error)),
            Self::Prune(_, reply) => give(reply, Err(error)),
            Self::PutAgent(.., reply) => give(reply, Err(error)),
            Self::Repair(reply) => give(reply, Err(error)),
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
            (Self::Repair(reply), Worth::Repair(answer)) => give(reply, Ok(answer)),
            (command, _) => command.refuse(StoreError::unknown("the answer was lost within the store")),
        }
    }
}

/// What a call comes to, if the transaction is committed.
enum Worth {
    Commit(Vec<Result<(), Refusal>>),
    Claim(Vec<Run>),
    Renew(Vec<Renewal>),
    Prune(Pruned),
    Repair(Vec<String>),
    Nothing,
}

/// The writer.
pub(super) struct Writer {
    options: PostgresOptions,
    place: String,
    mailbox: mpsc::Receiver<Command>,
    hints: broadcast::Sender<Hint>,
    told: mpsc::UnboundedSender<Heard>,
    heard: mpsc::UnboundedReceiver<Heard>,
    conn: Option<Conn>,
    memory: Memory,
    /// A call that was taken and shares no transaction with those before it.
    next: Option<Command>,
    pause: Duration,
}

impl Writer {
    /// Connects, and brings the schema up to date.
    pub(super) async fn open(
        options: PostgresOptions,
        mailbox: mpsc::Receiver<Command>,
        hints: broadcast::Sender<Hint>,
    ) -> Result<Self, StoreError> {
        let place = options.place();
        let (told, heard) = mpsc::unbounded_channel();
        let conn = Conn::open(&options, Session::Writer, Some(told.clone())).await;
        let conn = conn.map_err(|fault| fault.refused(&place))?;
        check_encoding(&conn, &place).await?;
        migrate(&conn, &options).await?;
        let (conn, memory, pause) = (Some(conn), Memory::default(), FIRST_PAUSE);
        Ok(Self { options, place, mailbox, hints, told, heard, conn, memory, next: None, pause })
    }

    /// Until it is closed, or everybody has gone and the mailbox is empty.
    pub(super) async fn run(mut self) {
        loop {
            let first = match self.next.take() {
                Some(next) => Some(next),
                None => self.wait().await,
            };
            match first {
                None => return,
                Some(Command::Close(reply)) => {
                    self.mailbox.close();
                    while let Some(command) = self.mailbox.recv().await {
                        let message = format!("\"{}\" was closed by this program", self.place);
                        command.refuse(StoreError::refused(RefusedKind::Closed, message));
                    }
                    drop(self.conn.take());
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

    /// Waits for a call. Meanwhile it listens, and finds its way back to a server that went away.
    async fn wait(&mut self) -> Option<Command> {
        loop {
            let lost = self.conn.as_ref().is_none_or(Conn::is_closed);
            tokio::select! {
                biased;
                command = self.mailbox.recv() => return command,
                Some(heard) = self.heard.recv() => self.pass_on(&heard),
                // Looked at often enough to hear of what others do soon after it is back.
                () = tokio::time::sleep(if lost { self.pause } else { LONGEST_PAUSE }) => {
                    if lost && self.connected().await.is_err() {
                        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                    }
                }
            }
        }
    }

    /// What another instance changed; one's own was told when it was committed.
    fn pass_on(&self, heard: &Heard) {
        if self.conn.as_ref().is_some_and(|conn| conn.pid() == heard.pid) {
            return;
        }
        if let Some(hint) = hint::read(&heard.payload) {
            // Nobody watches: fine.
            let _ = self.hints.send(hint);
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
            Err(Failed::Before(fault)) => refuse(batch, &fault.refused(&self.place)),
            Err(Failed::AtCommit(fault)) => refuse(batch, &fault.unknown(&self.place)),
        }
    }

    /// Makes the transaction; again, after a while, if others were in the way of it.
    async fn persist(&mut self, batch: &[Command]) -> Result<(Vec<Worth>, Option<Hint>), Failed> {
        let mut pause = Duration::from_millis(2);
        for _ in 1..MOST_TRIES {
            match self.transact(batch).await {
                Err(Failed::Before(fault)) if fault.was_in_the_way() => {
                    tracing::debug!(%fault, "a transaction is tried again");
                    tokio::time::sleep(pause).await;
                    pause *= 4;
                }
                outcome => return outcome,
            }
        }
        self.transact(batch).await
    }

    async fn transact(&mut self, batch: &[Command]) -> Result<(Vec<Worth>, Option<Hint>), Failed> {
        self.connected().await.map_err(Failed::Before)?;
        self.memory.trim();
        let Some(conn) = self.conn.take() else { return Err(Failed::Before(Fault::Silent)) };
        let outcome = self.within(&conn, batch).await;
        match &outcome {
            Ok(_) => self.conn = Some(conn),
            Err(Failed::Before(fault) | Failed::AtCommit(fault)) => {
                // Names that were given a number in it have none any more, and how runs stand is not known.
                self.memory = Memory::default();
                let usable = !fault.ends_the_connection() && !matches!(outcome, Err(Failed::AtCommit(_)));
                if usable && self.in_time(conn.word("ROLLBACK")).await.is_ok() {
                    self.conn = Some(conn);
                }
            }
        }
        outcome
    }

    async fn within(&mut self, conn: &Conn, batch: &[Command]) -> Result<(Vec<Worth>, Option<Hint>), Failed> {
        let patience = self.options.patience.saturating_mul(2);
        let work = work(conn, &mut self.memory, self.options.clock.as_ref(), batch);
        let Ok(done) = tokio::time::timeout(patience, work).await else {
            return Err(Failed::Before(Fault::Silent));
        };
        let (mut tx, worth) = done.map_err(Failed::Before)?;
        let hint = tx.take_hint();
        let told = hint.as_ref().map(|hint| (self.options.channel(), hint::written(hint)));
        let finished = tokio::time::timeout(patience, tx.finish(told)).await;
        finished.unwrap_or(Err(Failed::AtCommit(Fault::Silent))).map(|()| (worth, hint))
    }

    /// Waits no longer than the options say: who was connected to may fall silent.
    async fn in_time<T>(&self, asked: impl Future<Output = Step<T>>) -> Step<T> {
        tokio::time::timeout(self.options.patience, asked).await.unwrap_or(Err(Fault::Silent))
    }

    /// A connection that can be used. Who was away hears of everything at once.
    async fn connected(&mut self) -> Step<()> {
        if self.conn.as_ref().is_some_and(|conn| !conn.is_closed()) {
            return Ok(());
        }
        self.conn = None;
        let conn = Conn::open(&self.options, Session::Writer, Some(self.told.clone())).await?;
        let cursor = self.in_time(read::newest_cursor(&conn)).await?;
        self.conn = Some(conn);
        // What was committed may be gone with its server: numbers are asked for again (own L19).
        self.memory = Memory::default();
        self.pause = FIRST_PAUSE;
        // Nobody watches: fine.
        let _ =
            self.hints.send(Hint { ready: true, agenda: true, agents: true, cancels: Vec::new(), cursor });
        Ok(())
    }
}

fn refuse(batch: Vec<Command>, error: &StoreError) {
    for command in batch {
        command.refuse(error.clone());
    }
}

/// Does everything, the claims last: they see what was written before them, and share their search.
async fn work<'c>(
    conn: &'c Conn,
    memory: &'c mut Memory,
    clock: Option<&Arc<dyn crate::clock::Clock>>,
    batch: &[Command],
) -> Step<(Tx<'c>, Vec<Worth>)> {
    let mut needs = Needs::default();
    for command in batch {
        match command {
            Command::Commit(decisions, _) => {
                decisions.iter().for_each(|decision| needs.of_decision(decision))
            }
            Command::Renew(request, _) => needs.of_renewal(request),
            _ => {}
        }
    }
    let mut tx = Tx::begin(conn, memory, clock, &needs).await?;
    let mut worth = Vec::with_capacity(batch.len());
    let mut claims: Vec<sharing::Waiting<'_>> = Vec::new();
    for (n, command) in batch.iter().enumerate() {
        worth.push(match command {
            Command::Commit(decisions, _) => {
                let mut verdicts = Vec::with_capacity(decisions.len());
                for decision in decisions {
                    verdicts.push(tx.apply(decision).await?);
                    tx.send_ahead().await?;
                }
                Worth::Commit(verdicts)
            }
            Command::Renew(request, _) => Worth::Renew(tx.renew(request)?),
            Command::Prune(request, _) => Worth::Prune(tx.prune(request).await?),
            Command::PutAgent(agent_id, definition, _) => {
                tx.put_agent(agent_id, definition.as_deref()).await?;
                Worth::Nothing
            }
            Command::Repair(_) => Worth::Repair(tx.repair().await?),
            Command::Claim(request, _) => {
                claims.push((n, request));
                Worth::Nothing
            }
            Command::Close(_) => Worth::Nothing,
        });
    }
    while !claims.is_empty() {
        let (group, others) = sharing::with_first(claims);
        let requests: Vec<ClaimRequest> = group.iter().map(|(_, request)| (*request).clone()).collect();
        for ((n, _), granted) in group.into_iter().zip(tx.claim(&requests).await?) {
            worth[n] = Worth::Claim(granted);
        }
        claims = others;
    }
    Ok((tx, worth))
}
