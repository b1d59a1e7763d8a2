//! The one writer: whatever waits in its mailbox goes to the server at once, and the answers come back in order.
//! While the server works on one flight of calls a second one may follow, if it is worth it: then the server goes on
//! with that while the answers of the first are taken apart here. What one call decides never depends on what another
//! does that is under way; a claim that repeats one whose steps may be under way waits for it (L17).
//!
//! A claim takes two steps. The script names runs that can be had; the rule writes their grants here; and these go
//! with the next writes, as decisions that hold only if each run can still be had. So the rule is written once, and
//! what two processes grant at one moment is decided where everything is decided: in the script, run by run (I1).

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc, oneshot};

use super::answer::{self, Commons, List};
use super::batch::{Batch, Commits};
use super::claims::{Group, MOST_NAMED};
use super::fault::{Fault, Step};
use super::link::{Link, Standing};
use crate::model::{AgentId, InstanceId, Run};
use crate::store::{
    ClaimRequest, Decision, Hint, PruneRequest, Pruned, Refusal, RefusedKind, RenewRequest, Renewal,
    StoreError,
};

/// The most calls that go at once.
const MOST_CALLS: usize = 1024;

/// The most flights that are under way: the server has one to go on with.
const MOST_FLIGHTS: usize = 2;
/// From so many records on a flight is worth it beside another. Fewer wait for more: each costs the server a call.
const WORTH: usize = 64;

/// Where an answer goes. Who waits for it counts among those who wait, until it is given.
pub(super) struct Reply<T> {
    to: oneshot::Sender<Result<T, StoreError>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<T> Reply<T> {
    pub(super) fn new(to: oneshot::Sender<Result<T, StoreError>>, permit: OwnedSemaphorePermit) -> Self {
        Self { to, _permit: Some(permit) }
    }

    /// For who closes: the end waits for no place.
    pub(super) fn at_the_end(to: oneshot::Sender<Result<T, StoreError>>) -> Self {
        Self { to, _permit: None }
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
    PutAgent(AgentId, Option<Arc<str>>, Reply<()>),
    Repair(Reply<Vec<String>>),
    Close(Reply<()>),
}

impl Command {
    /// How many records it is about.
    fn records(&self) -> usize {
        match self {
            Self::Commit(decisions, _) => decisions.len(),
            Self::Claim(request, _) => request.limit.min(MOST_NAMED),
            Self::Renew(request, _) => request.leases.len(),
            Self::Prune(request, _) => request.limit.min(MOST_PRUNED),
            Self::PutAgent(..) | Self::Repair(_) | Self::Close(_) => 1,
        }
    }
}

/// What an answer of the server is an answer to.
pub(super) enum Asked {
    Commits(Commits),
    Renew(Reply<Vec<Renewal>>),
    Prune(Reply<Pruned>),
    PutAgent(Reply<()>),
    Repair(Reply<Vec<String>>),
    /// What a claim was granted before.
    Granted {
        group: usize,
        request: usize,
    },
    /// Who can be had by the claims of a group.
    Pick {
        group: usize,
    },
}

/// The writer.
pub(super) struct Writer {
    link: Link,
    mailbox: mpsc::UnboundedReceiver<Command>,
    hints: broadcast::Sender<Hint>,
    sender: String,
    name: String,
    commons: Commons,
    /// Calls that are not under way, in order, and how many records they are about.
    waiting: VecDeque<Command>,
    records: usize,
    /// Claims that take more than one step, and whose next one is not under way.
    groups: Vec<Group>,
    /// The claims that are not answered, whose steps may be under way.
    claiming: Vec<(InstanceId, u64)>,
    /// Claims that ask again for what one of these is about to be granted (L17).
    again: Vec<(ClaimRequest, Reply<Vec<Run>>)>,
}

/// Calls under way: what was sent, and who asked.
struct Flight {
    over: Step<Standing>,
    pipe: Pipeline,
    asked: Vec<Asked>,
    groups: Vec<Group>,
}

/// A flight that has its answers.
struct Landed {
    over: Step<Standing>,
    answers: Step<Vec<Step<Value>>>,
    asked: Vec<Asked>,
    groups: Vec<Group>,
}

impl Flight {
    async fn land(self) -> Landed {
        let Self { over, pipe, asked, groups } = self;
        let answers = match &over {
            Ok(standing) => standing.clone().exchange(&pipe).await,
            Err(fault) => Err(fault.clone()),
        };
        Landed { over, answers, asked, groups }
    }
}

impl Writer {
    pub(super) fn new(
        link: Link,
        mailbox: mpsc::UnboundedReceiver<Command>,
        hints: broadcast::Sender<Hint>,
        sender: String,
        name: String,
    ) -> Self {
        let (waiting, groups, commons) = (VecDeque::new(), Vec::new(), Commons::default());
        let (claiming, again) = (Vec::new(), Vec::new());
        Self { link, mailbox, hints, sender, name, commons, waiting, records: 0, groups, claiming, again }
    }

    /// Until it is closed, or everybody has gone and the mailbox is empty.
    pub(super) async fn run(mut self) {
        let mut flights = FuturesOrdered::new();
        let (mut calls, mut anybody) = (Vec::new(), true);
        loop {
            while let Some(over) = self.way(flights.len()).await {
                flights.extend(self.depart(over).map(Flight::land));
            }
            if flights.is_empty() && matches!(self.waiting.front(), Some(Command::Close(_))) {
                return self.end();
            }
            let room = MOST_CALLS.saturating_sub(self.waiting.len());
            tokio::select! {
                Some(landed) = flights.next() => self.land(landed),
                // Not asked again when nobody is left: it would say so at once each time, while the server works.
                many = self.mailbox.recv_many(&mut calls, room), if anybody && room > 0 => {
                    anybody = many > 0;
                    calls.drain(..).for_each(|call| self.wait(call));
                }
                else => return,
            }
        }
    }

    fn wait(&mut self, call: Command) {
        self.records += call.records();
        self.waiting.push_back(call);
    }

    /// The connection for what waits, if that goes now: what comes after the call that closes goes never.
    async fn way(&mut self, under_way: usize) -> Option<Step<Standing>> {
        if self.groups.is_empty() && matches!(self.waiting.front(), None | Some(Command::Close(_))) {
            return None;
        }
        if under_way == 0 {
            return Some(self.link.standing().await);
        }
        let records = self.groups.iter().map(Group::missing).fold(self.records, usize::saturating_add);
        let is_worth_it = under_way < MOST_FLIGHTS && records >= WORTH;
        // Another connection is not waited for while somebody waits for an answer.
        self.link.in_use().filter(|_| is_worth_it).map(Ok)
    }

    /// The end: who comes after it is told so.
    fn end(mut self) {
        if let Some(Command::Close(reply)) = self.waiting.pop_front() {
            reply.send(Ok(()));
        }
        while let Some(call) = self.waiting.pop_front().or_else(|| self.mailbox.try_recv().ok()) {
            self.refuse_closed(call);
        }
    }

    fn refuse_closed(&self, call: Command) {
        let closed = || {
            StoreError::refused(RefusedKind::Closed, format!("\"{}\" was closed by this program", self.name))
        };
        match call {
            Command::Commit(_, reply) => reply.send(Err(closed())),
            Command::Claim(_, reply) => reply.send(Err(closed())),
            Command::Renew(_, reply) => reply.send(Err(closed())),
            Command::Prune(_, reply) => reply.send(Err(closed())),
            Command::PutAgent(_, _, reply) => reply.send(Err(closed())),
            Command::Repair(reply) => reply.send(Err(closed())),
            Command::Close(reply) => reply.send(Ok(())),
        }
    }

    /// Sends what is there; nothing if all of it makes no sense.
    fn depart(&mut self, over: Step<Standing>) -> Option<Flight> {
        let mut calls = Vec::with_capacity(self.waiting.len());
        while !matches!(self.waiting.front(), Some(Command::Close(_)))
            && let Some(call) = self.waiting.pop_front()
        {
            self.records -= call.records();
            calls.push(call);
        }
        let mut groups = std::mem::take(&mut self.groups);
        let (pipe, asked, errors) = self.batch(calls, &mut groups);
        for (reply, error) in errors {
            reply.send(Err(error.of_write(&self.name)));
        }
        if asked.is_empty() {
            self.go_on(groups);
            return None;
        }
        Some(Flight { over, pipe, asked, groups })
    }

    /// Hands out what was answered.
    fn land(&mut self, landed: Landed) {
        let Landed { over, answers, asked, mut groups } = landed;
        if let Ok(over) = &over {
            self.link.was_used(over, &answers);
        }
        let answers = self.reached(answers, asked.len());
        let mut hint: Option<Hint> = None;
        let mut after: Vec<Box<dyn FnOnce() + Send>> = Vec::with_capacity(asked.len());
        for (asked, answer) in asked.into_iter().zip(answers) {
            match self.take(asked, answer, &mut groups, &mut after) {
                Some(told) if hint.is_none() => hint = Some(told),
                Some(told) => {
                    if let Some(hint) = &mut hint {
                        join(hint, told);
                    }
                }
                None => {}
            }
        }
        // Before the answers: who begins to watch after one hears nothing of what it was told.
        if let Some(hint) = hint {
            // Nobody watches: fine.
            let _ = self.hints.send(hint);
        }
        after.into_iter().for_each(|answer| answer());
        self.go_on(groups);
    }

    /// Claims that have come to their end are answered, the others wait for their next step.
    fn go_on(&mut self, groups: Vec<Group>) {
        for group in groups {
            let asked = group.asked();
            match group.unless_done(&self.name) {
                Some(open) => self.groups.push(open),
                None => self.claiming.retain(|claim| !asked.contains(claim)),
            }
        }
        // Who asks for what another is still about to be granted does not wait for a flight: it would go with none.
        for (request, reply) in std::mem::take(&mut self.again) {
            if self.claiming.contains(&(request.instance, request.nonce)) {
                self.again.push((request, reply));
            } else {
                self.wait(Command::Claim(request, reply));
            }
        }
    }

    /// The answers, if as many replicas have what was written as are wanted.
    fn reached(&self, answers: Step<Vec<Step<Value>>>, count: usize) -> Vec<Step<Value>> {
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(fault) => return vec![Err(fault); count],
        };
        let wanted = self.link.shared.options.replicas;
        if wanted == 0 {
            return answers;
        }
        let reached = answers.pop();
        match reached {
            Some(Ok(Value::Int(reached))) if reached >= i64::from(wanted) => answers,
            Some(Err(fault)) => {
                vec![Err(Fault::Lost(format!("it did not wait for replicas: {fault:?}"))); count]
            }
            _ => vec![Err(Fault::Lost(format!("fewer than {wanted} replicas have it in time"))); count],
        }
    }

    /// Everything that goes at once: what writes first, and then who asks what can be had.
    #[allow(clippy::type_complexity, reason = "a batch, what it asks, and who asked nonsense")]
    fn batch(
        &mut self,
        calls: Vec<Command>,
        groups: &mut Vec<Group>,
    ) -> (Pipeline, Vec<Asked>, Vec<(Reply<Vec<Result<(), Refusal>>>, Fault)>) {
        let shared = Arc::clone(&self.link.shared);
        let mut batch = Batch::new(&shared, &self.sender);
        for (number, group) in groups.iter_mut().enumerate() {
            batch.grants(number, group);
        }
        for call in calls {
            match call {
                Command::Commit(decisions, reply) => batch.commit(decisions, reply),
                Command::Renew(request, reply) => {
                    batch.ask(renew(shared.write("renew"), &request), Asked::Renew(reply))
                }
                Command::Prune(request, reply) => {
                    batch.ask(prune(shared.tidy("prune"), &self.sender, request), Asked::Prune(reply));
                }
                Command::PutAgent(agent_id, said, reply) => {
                    let mut cmd = shared.write("put_agent");
                    cmd.arg(&self.sender).arg(agent_id.as_str()).arg(u8::from(said.is_some()));
                    cmd.arg(said.as_deref().unwrap_or_default());
                    batch.ask(cmd, Asked::PutAgent(reply));
                }
                Command::Repair(reply) => {
                    let mut cmd = shared.tidy("check");
                    cmd.arg(&self.sender).arg(1);
                    batch.ask(cmd, Asked::Repair(reply));
                }
                Command::Claim(request, reply) => {
                    let asked = (request.instance, request.nonce);
                    if request.repeat && self.claiming.contains(&asked) {
                        self.again.push((request, reply));
                    } else {
                        self.claiming.push(asked);
                        join_group(groups, request, reply);
                    }
                }
                Command::Close(reply) => reply.send(Ok(())),
            }
        }
        for (number, group) in groups.iter_mut().enumerate() {
            batch.questions(number, group);
        }
        batch.done()
    }

    /// Takes an answer apart. What is told to callers waits until the watchers were told.
    fn take(
        &mut self,
        asked: Asked,
        answer: Step<Value>,
        groups: &mut [Group],
        after: &mut Vec<Box<dyn FnOnce() + Send>>,
    ) -> Option<Hint> {
        let name = self.name.clone();
        match asked {
            Asked::Commits(commits) => return self.take_commits(commits, answer, groups, after),
            Asked::Renew(reply) => {
                let renewals = answer.and_then(renewals).map_err(|fault| fault.of_write(&name));
                after.push(Box::new(move || reply.send(renewals)));
            }
            Asked::Prune(reply) => {
                let pruned = answer.and_then(|value| pruned(value, &mut self.commons));
                let pruned = pruned.map_err(|fault| fault.of_write(&name));
                after.push(Box::new(move || reply.send(pruned)));
            }
            Asked::Repair(reply) => {
                let found = answer.and_then(messages).map_err(|fault| fault.of_write(&name));
                after.push(Box::new(move || reply.send(found)));
            }
            Asked::PutAgent(reply) => {
                let told = answer.and_then(|value| answer::hint(List::of(value)?.next()?));
                let (hint, done) = match told {
                    Ok(hint) => (hint, Ok(())),
                    Err(fault) => (None, Err(fault.of_write(&name))),
                };
                after.push(Box::new(move || reply.send(done)));
                return hint;
            }
            Asked::Granted { group, request } => {
                let runs = answer.and_then(|value| granted(value, &mut self.commons));
                if let Some(group) = groups.get_mut(group) {
                    group.granted_before(request, runs);
                }
            }
            Asked::Pick { group } => {
                let picked = answer.and_then(|value| picked(value, &mut self.commons));
                let (hint, picked) = match picked {
                    Ok((hint, picked)) => (hint, Ok(picked)),
                    Err(fault) => (None, Err(fault)),
                };
                if let Some(group) = groups.get_mut(group) {
                    group.picked(picked);
                }
                return hint;
            }
        }
        None
    }

    fn take_commits(
        &mut self,
        commits: Commits,
        answer: Step<Value>,
        groups: &mut [Group],
        after: &mut Vec<Box<dyn FnOnce() + Send>>,
    ) -> Option<Hint> {
        let taken = answer.and_then(|value| {
            let mut list = List::of(value)?;
            Ok((answer::hint(list.next()?)?, list.list()?))
        });
        let (hint, verdicts) = match taken {
            Ok((hint, verdicts)) => (hint, Ok(verdicts)),
            Err(fault) => (None, Err(fault)),
        };
        commits.answer(verdicts, groups, &self.name, after);
        hint
    }
}

/// Claims of the same agents share the search, if it has not begun.
fn join_group(groups: &mut Vec<Group>, request: ClaimRequest, reply: Reply<Vec<Run>>) {
    match groups.iter_mut().find(|group| group.takes(&request)) {
        Some(group) => group.add(request, reply),
        None => groups.push(Group::new(request, reply)),
    }
}

/// One hint of two.
fn join(hint: &mut Hint, other: Hint) {
    hint.ready |= other.ready;
    hint.agenda |= other.agenda;
    hint.agents |= other.agents;
    hint.cursor = hint.cursor.max(other.cursor);
    hint.cancels.extend(other.cancels);
}

fn renew(mut cmd: Cmd, request: &RenewRequest) -> Cmd {
    cmd.arg("").arg(request.lease.as_millis().to_string()).arg(request.leases.len());
    let mut tokens = super::bytes::Put::default();
    for (_, token) in &request.leases {
        tokens.u64(token.fence).u64(token.nonce);
    }
    cmd.arg(&tokens.0[..]);
    for (run_id, _) in &request.leases {
        cmd.arg(super::record::kept_name(run_id.as_str()));
    }
    cmd
}

fn renewals(value: Value) -> Step<Vec<Renewal>> {
    let mut list = List::of(value)?;
    let mut found = Vec::with_capacity(list.len());
    while !list.is_empty() {
        let mut one = list.list()?;
        found.push(match one.number::<u8>()? {
            0 => {
                let expires_at = super::bytes::Get(&one.bytes()?).i64()?;
                let cancel = one.maybe()?.map(|own| super::record::Own::read(&own)).transpose()?;
                let expires_at = crate::model::Timestamp::from_ms(expires_at);
                Renewal::Renewed { expires_at, cancel: cancel.and_then(|own| own.cancel) }
            }
            1 => {
                let fence = answer::eight(&one.bytes()?)?;
                Renewal::Fenced { fence, status: super::record::status(one.number()?)? }
            }
            _ => Renewal::Gone,
        });
    }
    Ok(found)
}

/// The most runs that one call removes: the server does nothing else meanwhile.
const MOST_PRUNED: usize = 1000;

fn prune(mut cmd: Cmd, sender: &str, request: PruneRequest) -> Cmd {
    cmd.arg(sender).arg(request.before.ms()).arg(request.keep).arg(request.limit.min(MOST_PRUNED));
    cmd
}

fn pruned(value: Value, commons: &mut Commons) -> Step<Pruned> {
    let mut list = List::of(value)?;
    let removed = commons.runs(list.next()?)?;
    let runs = removed.len() as u64;
    let readable = removed.into_iter().filter_map(|answered| answered.run.ok());
    let workspaces = readable.map(|run| Arc::clone(&run.spec.workspace_path)).collect();
    Ok(Pruned { runs, workspaces, occurrences: list.number()?, more: list.number::<u8>()? == 1 })
}

pub(super) fn messages(value: Value) -> Step<Vec<String>> {
    let mut list = List::of(value)?;
    let mut found = Vec::new();
    while !list.is_empty() {
        found.push(String::from_utf8_lossy(&list.bytes()?).into_owned());
    }
    Ok(found)
}

/// In the order of claims. One that cannot be read was never handed out: its lease ends by itself.
fn granted(value: Value, commons: &mut Commons) -> Step<Vec<Run>> {
    let mut found = commons.runs(value)?;
    found.retain(|answered| answered.run.is_ok());
    found.sort_by_key(|answered| {
        let of = |run: &Run| (std::cmp::Reverse(run.spec.priority), run.due_at);
        (answered.run.as_ref().ok().map(of), answered.number)
    });
    found.into_iter().map(|answered| answered.run).collect()
}

fn picked(value: Value, commons: &mut Commons) -> Step<(Option<Hint>, super::claims::Picked)> {
    let mut list = List::of(value)?;
    let hint = answer::hint(list.next()?)?;
    let (mut runs, mut unreadable) = (Vec::new(), Vec::new());
    for answered in commons.runs(list.next()?)? {
        match answered.run {
            Ok(run) => runs.push(run),
            Err(Fault::Unreadable(why)) => {
                tracing::error!(run = answered.name, why, "a run cannot be read");
                unreadable.push(answered.number.to_be_bytes()[2..].to_vec());
            }
            Err(fault) => return Err(fault),
        }
    }
    let again = list.number::<u8>()? == 1;
    let now = answer::score(&list.bytes()?)?;
    Ok((hint, super::claims::Picked { runs, unreadable, again, now }))
}
