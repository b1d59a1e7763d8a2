//! Reads what a batch depends on, and puts it into a [`Part`]: decisions are made there, by the code of the memory
//! store.
//! Runs are found by their names and keys, by whose turn it is, and by what became due; the lanes of all of them are
//! read, and who comes next in those that matter. Whoever needs more than was read says so, and more is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mongodb::bson::{Document, doc};

use super::doc::{self, Fields as _, Numbered, queue};
use super::fault::{Fault, Step};
use super::link::{Ask, Tx, Word, Write, name};
use super::told;
use crate::model::{AgentId, Occurrence, Place, Run, RunId, RunSpec, ScheduleState, Task, Timestamp};
use crate::store::memory::part::{LaneRow, Numbers, Order, Part, Short, Waiters};
use crate::store::{ClaimRequest, Decision, Expect, RenewRequest, TaskChange};

/// How many runs that became due one claim makes ready (G6).
const PROMOTED: usize = 1000;
/// How many of those who wait for a lane are read at first.
const WAITERS: usize = 16;
/// The most ready runs that are read at first, and how many more when many of them turn out not to be had.
const READY: usize = 1000;
/// Of how many agents, or lanes, those who wait are read with one query: it looks at the beginning of each.
const AT_ONCE: usize = 100;

/// What has to be read.
#[derive(Debug, Default)]
pub(super) struct Needs {
    runs: BTreeSet<String>,
    keys: BTreeSet<String>,
    tasks: BTreeSet<String>,
    /// Tasks whose runs go on if they were paused.
    resumed: BTreeSet<String>,
    occurrences: BTreeSet<String>,
    lanes: BTreeSet<Arc<str>>,
    /// What claims ask for again.
    grants: BTreeSet<String>,
    agents: BTreeSet<AgentId>,
    claimed: usize,
    /// The tasks of runs that are written: a claim beside them may be granted one.
    of_runs: BTreeSet<String>,
}

impl Needs {
    pub(super) fn of_decision(&mut self, decision: &Decision) {
        for write in &decision.runs {
            let spec = &write.run.spec;
            self.runs.insert(write.run.run_id.to_string());
            self.lanes.extend(spec.lanes.iter().map(|lane| Arc::clone(&lane.name)));
            self.of_runs.insert(spec.task_id.to_string());
            if let (Expect::Absent, Some(idempotency)) = (write.expect, &spec.idempotency) {
                self.keys.insert(doc::key(spec.task_id.as_str(), &idempotency.key));
            }
        }
        self.runs.extend(decision.forget.iter().map(RunId::to_string));
        if let Some(write) = &decision.task {
            self.tasks.insert(write.task_id.to_string());
            let goes_on = match &write.change {
                TaskChange::Keep => false,
                TaskChange::Put(task) => task.spec.enabled,
                TaskChange::Delete => true,
            };
            self.resumed.extend(goes_on.then(|| write.task_id.to_string()));
        }
        self.tasks.extend(decision.schedule.iter().map(|write| write.state.task_id.to_string()));
        self.lanes.extend(decision.lanes.iter().map(|lane| Arc::clone(&lane.name)));
        let occurrences = decision.occurrences.iter();
        self.occurrences.extend(occurrences.map(|one| told::occurrence_id(&one.task_id, one.due_at)));
    }

    pub(super) fn of_renewal(&mut self, request: &RenewRequest) {
        self.runs.extend(request.leases.iter().map(|(run_id, _)| run_id.to_string()));
    }

    pub(super) fn of_claim(&mut self, request: &ClaimRequest) {
        self.agents.extend(request.agents.iter().cloned());
        self.claimed = self.claimed.saturating_add(request.limit);
        self.grants.extend(request.repeat.then(|| doc::grant(request.instance, request.nonce)));
    }

    fn claims(&self) -> bool {
        !self.agents.is_empty()
    }
}

/// How many runs are in each lane that take no room in it and do not wait for it.
type Idle = BTreeMap<Arc<str>, u64>;

/// Who waits for a lane: how many were read, and what that says.
#[derive(Debug, Default)]
struct Read {
    most: usize,
    waiters: Waiters,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Cache {
    runs: BTreeMap<u64, Run>,
    tasks: BTreeMap<String, Option<(Task, ScheduleState)>>,
    occurrences: Vec<Occurrence>,
    lanes: BTreeMap<Arc<str>, Option<LaneRow>>,
    waiters: BTreeMap<Arc<str>, Read>,
    ready: BTreeMap<AgentId, Option<Order>>,
    most_ready: usize,
    /// The lanes of runs that could not be read and were put aside.
    aside: BTreeSet<Arc<str>>,
}

impl Cache {
    /// Reads what is needed as far as that is known beforehand.
    pub(super) async fn read(tx: &mut Tx, needs: &Needs, now: Timestamp) -> Step<Self> {
        let mut cache = Self::default();
        cache.named(tx, needs).await?;
        if needs.claims() {
            let come = doc! { "$lt": now.ms().saturating_add(1) };
            let due = doc! { "w.q": queue::FUTURE, "w.a": "", "w.p": 0_i64, "w.d": come };
            let due = cache.waiting(tx, due, doc! { "w.d": 1, "w.n": 1 }, PROMOTED).await?;
            cache.keep(due);
            cache.most_ready = needs.claimed.clamp(1, READY);
            cache.read_ready(tx, needs).await?;
        }
        let mut wanted = needs.lanes.clone();
        wanted.extend(cache.runs.values().flat_map(|run| lanes_of(&run.spec)));
        wanted.extend(cache.aside.iter().cloned());
        cache.read_lanes(tx, wanted.clone()).await?;
        cache.read_waiters(tx, wanted.into_iter().map(|lane| (lane, WAITERS)).collect()).await?;
        cache.complete(tx, needs).await?;
        Ok(cache)
    }

    /// Reads on, where more was needed.
    pub(super) async fn read_on(&mut self, tx: &mut Tx, needs: &Needs, short: Short) -> Step<()> {
        if short.ready {
            // A claim looks at so many in vain at most.
            let enough = needs.claimed.saturating_add(READY);
            self.most_ready =
                if self.most_ready < enough { enough } else { self.most_ready.saturating_mul(4) };
            self.read_ready(tx, needs).await?;
        }
        self.read_lanes(tx, short.lanes.clone()).await?;
        let more =
            |lane: &Arc<str>| self.waiters.get(lane).map_or(WAITERS, |read| read.most.saturating_mul(4));
        let lanes = short.lanes.into_iter().map(|lane| (Arc::clone(&lane), more(&lane))).collect();
        self.read_waiters(tx, lanes).await?;
        self.complete(tx, needs).await
    }

    /// All that was read, to decide on.
    pub(super) fn part(&self, numbers: Numbers, now: Timestamp) -> Part {
        let mut part = Part::new(numbers, now);
        let (idle, nobody) = (self.idle(), Waiters::default());
        for (name, row) in &self.lanes {
            let Some(row) = row else { continue };
            let read = self.waiters.get(name).map(|read| &read.waiters);
            let read = read.or_else(|| (others(row, idle.get(name)) == 0).then_some(&nobody));
            part.put_lane(name, *row, read);
        }
        for (number, run) in &self.runs {
            part.put_run(*number, run.clone());
        }
        for (agent_id, last) in &self.ready {
            if let Some(last) = last {
                part.more_ready(agent_id.clone(), *last);
            }
        }
        for (task, schedule) in self.tasks.values().flatten() {
            part.put_task(task.clone(), schedule.clone());
        }
        for occurrence in &self.occurrences {
            part.put_occurrence(occurrence.clone());
        }
        part.let_go(&self.aside);
        part
    }

    /// What calls name.
    async fn named(&mut self, tx: &mut Tx, needs: &Needs) -> Step<()> {
        for (field, names) in [("_id", &needs.runs), ("key", &needs.keys), ("g", &needs.grants)] {
            let found = tx.find_in(name::RUNS, field, names.iter().cloned()).await?;
            let runs: Vec<Numbered> = found.iter().map(doc::to_run).collect::<Step<_>>()?;
            self.keep(runs);
        }
        for document in &tx.find_in(name::TASKS, "_id", needs.tasks.iter().cloned()).await? {
            let task = told::to_task(document)?;
            self.tasks.insert(task.0.spec.task_id.to_string(), Some(task));
        }
        for document in &tx.find_in(name::OCCURRENCES, "_id", needs.occurrences.iter().cloned()).await? {
            self.occurrences.push(told::to_occurrence(document)?);
        }
        for task_id in &needs.resumed {
            let paused = doc! { "w.q": format!("{}{task_id}", queue::PAUSED), "w.a": "" };
            let paused = self.waiting(tx, paused, doc! { "w.n": 1 }, usize::MAX).await?;
            self.keep(paused);
        }
        Ok(())
    }

    /// The lanes of all runs that were read; for claims, their tasks as well, which may be paused.
    async fn complete(&mut self, tx: &mut Tx, needs: &Needs) -> Step<()> {
        let lanes: BTreeSet<Arc<str>> = self.runs.values().flat_map(|run| lanes_of(&run.spec)).collect();
        self.read_lanes(tx, lanes).await?;
        if !needs.claims() {
            return Ok(());
        }
        let mut tasks: BTreeSet<String> =
            self.runs.values().map(|run| run.spec.task_id.to_string()).collect();
        tasks.extend(needs.of_runs.iter().cloned());
        let new: Vec<String> = tasks.into_iter().filter(|name| !self.tasks.contains_key(name)).collect();
        let found = tx.find_in(name::TASKS, "_id", new.clone()).await?;
        self.tasks.extend(new.into_iter().map(|name| (name, None)));
        for document in &found {
            match told::to_task(document) {
                Ok(task) => drop(self.tasks.insert(task.0.spec.task_id.to_string(), Some(task))),
                // Nothing says that it is paused.
                Err(Fault::Unreadable(why)) => tracing::error!(why, "a task of a ready run cannot be read"),
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    async fn read_lanes(&mut self, tx: &mut Tx, names: BTreeSet<Arc<str>>) -> Step<()> {
        let new: Vec<Arc<str>> = names.into_iter().filter(|name| !self.lanes.contains_key(name)).collect();
        let found = tx.find_in(name::LANES, "_id", new.iter().map(|name| name.to_string())).await?;
        self.lanes.extend(new.into_iter().map(|name| (name, None)));
        for document in &found {
            let row = lane(document)?;
            self.lanes.insert(document.word("_id")?.into(), Some(row));
        }
        Ok(())
    }

    /// Who waits for lanes, at most so many of each at first. Lanes with fewer are read together, each of the others by
    /// itself.
    async fn read_waiters(&mut self, tx: &mut Tx, lanes: Vec<(Arc<str>, usize)>) -> Step<()> {
        let (idle, mut short) = (self.idle(), Vec::new());
        for (lane, most) in lanes {
            let row = self.lanes.get(&lane).copied().flatten();
            let others = row.map_or(0, |row| others(&row, idle.get(&lane)));
            if others > most as u64 {
                self.read_long(tx, lane, most).await?;
                continue;
            }
            self.waiters.insert(Arc::clone(&lane), Read { most, waiters: Waiters::default() });
            short.extend((others > 0).then_some(lane));
        }
        for part in short.chunks(AT_ONCE) {
            let queues: Vec<String> = part.iter().map(|lane| format!("{}{lane}", queue::LANE)).collect();
            let all =
                self.waiting(tx, doc! { "w.q": { "$in": queues } }, doc! { "w.q": 1 }, usize::MAX).await?;
            self.keep(all);
        }
        Ok(())
    }

    /// Who waits for a lane, by agent, in the order of claims.
    async fn read_long(&mut self, tx: &mut Tx, lane: Arc<str>, most: usize) -> Step<()> {
        let mut read = Read { most, waiters: Waiters::default() };
        let mut after = String::new();
        loop {
            let filter = doc! { "w.q": format!("{}{lane}", queue::LANE), "w.a": { "$gt": after.as_str() } };
            let sort = doc! { "w.a": 1, "w.p": 1, "w.d": 1, "w.n": 1 };
            let found = self.waiting(tx, filter, sort, most).await?;
            // Of the last agent there may be more.
            let last = found.last().map(|(number, run)| (run.spec.agent_id.clone(), Order::of(*number, run)));
            let all = found.len() < most;
            self.keep(found);
            let Some((agent_id, order)) = last.filter(|_| !all) else { break };
            after = agent_id.to_string();
            read.waiters.behind.insert(agent_id, order);
        }
        self.waiters.insert(lane, read);
        Ok(())
    }

    /// The ready runs that come first, of whatever agent.
    async fn read_ready(&mut self, tx: &mut Tx, needs: &Needs) -> Step<()> {
        let agents: Vec<&AgentId> = needs.agents.iter().collect();
        for part in agents.chunks(AT_ONCE) {
            let names: Vec<&str> = part.iter().map(|agent_id| agent_id.as_str()).collect();
            let ready = doc! { "w.q": queue::READY, "w.a": { "$in": names } };
            let sort = doc! { "w.p": 1, "w.d": 1, "w.n": 1 };
            let found = self.waiting(tx, ready, sort, self.most_ready).await?;
            // Of each agent there may be more behind the last.
            let last = found.last().map(|(number, run)| Order::of(*number, run));
            let last = last.filter(|_| found.len() >= self.most_ready);
            self.ready.extend(part.iter().map(|agent_id| ((*agent_id).clone(), last)));
            self.keep(found);
        }
        Ok(())
    }

    /// Runs that wait. One that cannot be read is put aside, out of the way of the others.
    async fn waiting(
        &mut self,
        tx: &mut Tx,
        filter: Document,
        sort: Document,
        most: usize,
    ) -> Step<Vec<Numbered>> {
        loop {
            let found = tx.find(name::RUNS, filter.clone(), Ask::sort(sort.clone()).limit(most)).await?;
            let (mut runs, mut aside) = (Vec::with_capacity(found.len()), Vec::new());
            for document in &found {
                match doc::to_run(document) {
                    Ok(run) => runs.push(run),
                    Err(Fault::Unreadable(why)) => {
                        tracing::error!(why, "a run that waits cannot be read; it is put aside");
                        aside.push(doc! {
                            "q": { "_id": document.word("_id")? }, "u": { "$set": { "w.q": queue::UNREADABLE } }
                        });
                        let lanes = document.get_document("l").and_then(|lanes| lanes.get_array("in"));
                        let lanes = lanes.into_iter().flatten().filter_map(|lane| lane.as_str());
                        self.aside.extend(lanes.map(Arc::from));
                    }
                    Err(fault) => return Err(fault),
                }
            }
            if aside.is_empty() {
                return Ok(runs);
            }
            tx.write(Write::exact(Word::Update, name::RUNS, aside)).await?;
        }
    }

    /// How many of the runs that were read are in each lane without taking room, and do not wait for it.
    fn idle(&self) -> Idle {
        let mut idle = Idle::new();
        for run in self.runs.values().filter(|run| run.status.is_active() && !run.status.takes_room()) {
            for lane in lanes_of(&run.spec).collect::<BTreeSet<_>>() {
                if !matches!(&run.place, Place::Lane { lane: waits } if *waits == lane) {
                    *idle.entry(lane).or_default() += 1;
                }
            }
        }
        idle
    }

    fn keep(&mut self, runs: Vec<Numbered>) {
        self.runs.extend(runs);
    }
}

/// A lane as it is kept.
pub(super) fn lane(document: &Document) -> Step<LaneRow> {
    Ok(LaneRow {
        version: document.unsigned("v")?,
        held: document.unsigned("held")?,
        total: document.unsigned("total")?,
    })
}

/// How many may wait for a lane: nobody if all who take no room in it were read, and wait for something else.
fn others(row: &LaneRow, idle: Option<&u64>) -> u64 {
    row.total.saturating_sub(row.held).saturating_sub(idle.copied().unwrap_or(0))
}

fn lanes_of(spec: &RunSpec) -> impl Iterator<Item = Arc<str>> {
    spec.lanes.iter().map(|lane| Arc::clone(&lane.name))
}
