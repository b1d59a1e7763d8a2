//! Stores to measure, each fresh, and what is done with them through the port.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tenure::clock::SystemClock;
use tenure::model::{
    AgentId, InstanceId, Payload, Run, RunId, RunResult, RunStatus, Task, TaskSpec, Timestamp, Trigger,
};
use tenure::rules::{self, Moment, Outcome, Wanted};
use tenure::store::{
    ClaimRequest, Decision, MemoryStore, RunWrite, ScheduleWrite, SqliteOptions, SqliteStore, Store,
    Synchronous, TaskChange, TaskWrite,
};

use crate::reached;

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Full,
    Normal,
    Postgres,
    Redis,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Memory, Self::Full, Self::Normal, Self::Postgres, Self::Redis];

    /// Its word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Full => "full",
            Self::Normal => "normal",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Full => "SQLite, FULL",
            Self::Normal => "SQLite, NORMAL",
            Self::Postgres => "PostgreSQL",
            Self::Redis => "Redis",
        }
    }

    /// Whether this machine has what it needs.
    pub(crate) fn is_there(self) -> bool {
        match self {
            Self::Memory | Self::Full | Self::Normal => true,
            Self::Postgres => reached::postgres().is_some(),
            Self::Redis => reached::redis().is_some(),
        }
    }
}

/// A store of its own, gone with it.
pub(crate) struct Bench {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) task: Task,
    pub(crate) instance: InstanceId,
    agents: Arc<[AgentId]>,
    draws: AtomicU64,
    kind: Kind,
    path: PathBuf,
    folder: Option<TempDir>,
}

async fn store(kind: Kind, path: &Path) -> Arc<dyn Store> {
    let clock = Arc::new(SystemClock);
    match kind {
        Kind::Memory => Arc::new(MemoryStore::new(clock)),
        Kind::Full | Kind::Normal => {
            let synchronous = if kind == Kind::Full { Synchronous::Full } else { Synchronous::Normal };
            let options = SqliteOptions { synchronous, ..SqliteOptions::new(path, clock) };
            Arc::new(SqliteStore::open(options).expect("a store"))
        }
        Kind::Postgres => reached::postgres_store().await,
        Kind::Redis => reached::redis_store().await,
    }
}

pub(crate) const SPEC: &str =
    r#"{"task_id":"t","agent_id":"noop","query":"do nothing","overlap_policy":"allow_parallel"}"#;

const ONE_AT_A_TIME: &str =
    r#"{"task_id":"one","agent_id":"noop","query":"do nothing","overlap_policy":"queue_next"}"#;

/// A lease that lasts longer than anything here.
const LONG: Duration = Duration::from_secs(86_400);

pub(crate) fn task(spec: &str, now: Timestamp) -> Task {
    let spec = TaskSpec::parse(spec).expect("a task");
    Task { spec, created_at: now, updated_at: now, revision: 1, last_event: 0 }
}

impl Bench {
    pub(crate) async fn open(kind: Kind) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let bench = Self::at(kind, &folder.path().join("bench.db")).await;
        Self { folder: Some(folder), ..bench }
    }

    /// In a file that stays; on a server in what every sample uses in turn.
    pub(crate) async fn at(kind: Kind, path: &Path) -> Self {
        match kind {
            Kind::Postgres => reached::empty_postgres().await,
            Kind::Redis => reached::empty_redis().await,
            Kind::Memory | Kind::Full | Kind::Normal => {}
        }
        let store = store(kind, path).await;
        let task = task(SPEC, store.now().await.expect("the time"));
        let agents = [task.spec.agent_id.clone()].into();
        let (instance, draws) = (InstanceId::generate(), AtomicU64::new(1));
        let bench = Self { store, task, instance, agents, draws, kind, path: path.to_owned(), folder: None };
        bench.put_task(&bench.task).await;
        bench
    }

    /// The same records, through a store of its own: as another OS process has it.
    pub(crate) async fn another(&self) -> Arc<dyn Store> {
        store(self.kind, &self.path).await
    }

    /// Writes what waits, and lets go: what comes after finds no session of this one.
    pub(crate) async fn end(&self) {
        self.store.close().await.expect("a close");
    }

    /// Does what the server does by itself about once a minute.
    pub(crate) async fn tidy(&self) {
        if self.kind == Kind::Postgres {
            reached::vacuum_postgres().await;
        }
    }

    /// Stores another task.
    pub(crate) async fn put_task(&self, task: &Task) {
        let task_id = task.spec.task_id.clone();
        let state = rules::begin(&task.spec.schedule, &task_id, 1, task.created_at).expect("a schedule");
        let change = TaskChange::Put(Box::new(task.clone()));
        let task = Some(TaskWrite { task_id, expect: None, change, events: Vec::new() });
        let schedule = Some(ScheduleWrite { expect: None, state });
        self.commit(vec![Decision { task, schedule, ..Decision::default() }]).await;
    }

    pub(crate) fn moment(&self, now: Timestamp) -> Moment {
        Moment { now, stamp: self.draws.fetch_add(1, Ordering::Relaxed) }
    }

    pub(crate) async fn commit(&self, decisions: Vec<Decision>) {
        for answer in self.store.commit(decisions).await.expect("an answer") {
            answer.expect("applied");
        }
    }

    pub(crate) async fn now(&self) -> Timestamp {
        self.store.now().await.expect("the time")
    }

    pub(crate) fn queued(&self, now: Timestamp, after: Duration) -> RunWrite {
        self.queued_of(&self.task, now, after)
    }

    fn queued_of(&self, task: &Task, now: Timestamp, after: Duration) -> RunWrite {
        let due_at = now.plus(after);
        let wanted = Wanted {
            trigger: Trigger::Manual,
            due_at,
            not_before: due_at,
            ..Wanted::now(RunId::generate(), now)
        };
        rules::enqueue(task, wanted, self.moment(now))
    }

    /// Runs that wait, in batches.
    pub(crate) async fn enqueue(&self, count: usize, batch: usize, after: Duration) {
        self.enqueue_of(&self.task, count, batch, after).await;
    }

    async fn enqueue_of(&self, task: &Task, count: usize, batch: usize, after: Duration) {
        let mut left = count;
        while left > 0 {
            let now = self.now().await;
            let many = left.min(batch);
            self.commit((0..many).map(|_| self.queued_of(task, now, after).into()).collect()).await;
            left -= many;
        }
    }

    /// Runs that somebody executes for longer than anything here takes, in batches.
    pub(crate) async fn held(&self, count: usize, batch: usize) {
        self.enqueue(count, batch, Duration::ZERO).await;
        self.hold(count, batch).await;
    }

    /// Runs of a task that executes one at a time, behind one that is held.
    pub(crate) async fn blocked(&self, count: usize, batch: usize) {
        let task = task(ONE_AT_A_TIME, self.now().await);
        self.put_task(&task).await;
        self.enqueue_of(&task, 1, 1, Duration::ZERO).await;
        self.hold(1, 1).await;
        self.enqueue_of(&task, count, batch, Duration::ZERO).await;
    }

    /// Claims and begins so many of those that are ready.
    async fn hold(&self, count: usize, batch: usize) {
        let mut left = count;
        while left > 0 {
            let claimed = self.claim_for(left.min(batch), LONG).await;
            left -= claimed.len();
            self.begin(&claimed, self.now().await).await;
        }
    }

    /// Runs that have ended, as they are stored then, in batches.
    pub(crate) async fn finished(&self, count: usize, batch: usize) {
        let mut left = count;
        while left > 0 {
            let now = self.now().await;
            let many = left.min(batch);
            let ended = |_| {
                let mut write = self.queued(now, Duration::ZERO);
                write.run.status = RunStatus::Completed;
                write.run.finished_at = Some(now);
                write.into()
            };
            self.commit((0..many).map(ended).collect()).await;
            left -= many;
        }
    }

    pub(crate) async fn claim(&self, limit: usize) -> Vec<Run> {
        self.claim_for(limit, Duration::from_secs(600)).await
    }

    pub(crate) async fn claim_for(&self, limit: usize, lease: Duration) -> Vec<Run> {
        let request = ClaimRequest {
            instance: self.instance,
            nonce: self.draws.fetch_add(1, Ordering::Relaxed),
            agents: Arc::clone(&self.agents),
            limit,
            lease,
            repeat: false,
        };
        self.store.claim(request).await.expect("a claim")
    }

    fn starts(&self, runs: &[Run], now: Timestamp) -> Vec<RunWrite> {
        let start =
            |run: &Run| rules::start(run, run.token().expect("a token"), self.moment(now)).expect("claimed");
        runs.iter().map(start).collect()
    }

    pub(crate) fn finishes(&self, started: &[RunWrite], now: Timestamp) -> Vec<Decision> {
        let finish = |write: &RunWrite| {
            let token = write.run.token().expect("a token");
            let outcome = Outcome::Completed(RunResult::Inline(Payload::text("")));
            rules::finish(&write.run, token, outcome, 0, self.moment(now)).expect("running").into()
        };
        started.iter().map(finish).collect()
    }

    /// Claims, starts and finishes up to so many. Answers how many there were.
    pub(crate) async fn cycle(&self, limit: usize) -> usize {
        let claimed = self.claim(limit).await;
        self.carry_out(&claimed).await;
        claimed.len()
    }

    /// Starts and finishes what was claimed.
    pub(crate) async fn carry_out(&self, claimed: &[Run]) {
        let now = self.now().await;
        let starts = self.begin(claimed, now).await;
        self.commit(self.finishes(&starts, now)).await;
    }

    /// Starts what was claimed.
    pub(crate) async fn begin(&self, claimed: &[Run], now: Timestamp) -> Vec<RunWrite> {
        let starts = self.starts(claimed, now);
        self.commit(starts.iter().cloned().map(Decision::from).collect()).await;
        starts
    }
}
