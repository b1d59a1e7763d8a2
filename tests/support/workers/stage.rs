//! The side that judges: it starts workers, hears what they do, holds them, pauses them and kills them.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tenure::clock::{Clock as _, SystemClock};
use tenure::model::{
    Event, EventKind, InstanceId, Run, RunId, RunStatus, Subject, TaskId, TaskSpec, Timestamp,
};
use tenure::ownership::Expected;
use tenure::store::faulty::Retrying;
use tenure::store::{Hint, PageRequest, RunFilter, Store};
use tenure::{Deletion, Settings, Tenure};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::ground::{Clocks, Ground, Kept, Manner};
use crate::proxy::Proxy;
use crate::servers::skew::{self, Dial};
use crate::sink::{Had, Sink};
use crate::wire::{At, Order, Setup, Told, WORKER, What, Window, line};

/// What reaches the stage.
#[derive(Debug, Clone)]
pub(crate) enum Heard {
    /// A worker told something.
    Told(usize, Told),
    /// A worker has ended.
    Gone(usize),
    /// An effect was tried.
    Sink(Had),
    /// Something changed in the store.
    Changed,
    /// Nothing of a worker reaches its server any more.
    Frozen(usize),
}

/// What becomes of a worker that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Go,
    Hold,
}

/// Decides about who waits.
type Policy = Box<dyn FnMut(usize, &At) -> Word>;

/// A worker, killed when it is dropped.
struct Worker {
    child: Child,
    orders: ChildStdin,
    instance: Option<InstanceId>,
    clock: Option<Timestamp>,
    /// What its clock is set by, if it steps.
    dial: Option<Dial>,
    /// Between it and its server, if somebody is.
    proxy: Option<Proxy>,
}

/// The stage of one test.
pub(crate) struct Stage {
    pub(crate) sink: Sink,
    /// Asked again when it fails and may yet answer.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) setup: Setup,
    /// Each worker reaches its server by way of a proxy of its own, whose tricks are drawn from this.
    pub(crate) proxies: Option<u64>,
    /// What the clocks of workers do.
    clocks: Clocks,
    heard: mpsc::UnboundedReceiver<Heard>,
    hear: mpsc::UnboundedSender<Heard>,
    hints: broadcast::Receiver<Hint>,
    workers: HashMap<usize, Worker>,
    held: Vec<(usize, u64, At)>,
    policy: Policy,
    ends: Instant,
    next: u64,
    /// How many workers there have been.
    started: usize,
    _folder: Option<TempDir>,
}

/// How long a test may take. Nothing in it waits for that.
const LIMIT: Duration = Duration::from_secs(180);

impl Stage {
    /// An empty store of this kind, with these tasks.
    pub(crate) async fn set(ground: Ground, tasks: &[&str]) -> Self {
        let (kept, folder) = ground.fresh();
        let mut stage = Self::on(kept, tasks).await;
        stage.clocks = ground.clocks;
        let Setup { lease_ms, heartbeat_ms, grace_ms, .. } = &mut stage.setup;
        // Renewals come in time also where a transaction takes its time.
        (*lease_ms, *heartbeat_ms, *grace_ms) = ground.pace((600, 200, 400), (2_000, 400, 1_000));
        stage._folder = folder;
        stage
    }

    /// This store, with these tasks.
    pub(crate) async fn on(kept: Kept, tasks: &[&str]) -> Self {
        let patience = Duration::from_secs(10);
        let manner = Manner { poll: Duration::from_millis(20), patience, look: None };
        let store = kept.open(manner).await.expect("a store");
        let store: Arc<dyn Store> = Arc::new(Retrying::new(store));
        let tenure = Tenure::open(Arc::clone(&store), Settings::default()).await.expect("a host");
        for task in tasks {
            tenure.put_task(TaskSpec::parse(task).expect("a task")).await.expect("a stored task");
        }
        tenure.shutdown().await.expect("a shutdown");
        let (hear, heard) = mpsc::unbounded_channel();
        let sink = Sink::open(hear.clone());
        let setup = Setup {
            store: kept,
            sink: sink.address,
            agents: vec!["agent".to_owned()],
            lease_ms: 600,
            heartbeat_ms: 200,
            grace_ms: 400,
            poll_ms: 50,
            drain_ms: 5_000,
            concurrency: 8,
            patience_ms: 10_000,
            windows: Vec::new(),
            waits_when_told: false,
        };
        let hints = store.watch();
        Self {
            sink,
            store,
            setup,
            proxies: None,
            clocks: Clocks::Right,
            heard,
            hear,
            hints,
            workers: HashMap::new(),
            held: Vec::new(),
            policy: Box::new(|_, _| Word::Go),
            ends: Instant::now() + LIMIT,
            next: 0,
            started: 0,
            _folder: None,
        }
    }

    /// Deletes a task, and lets its runs go on.
    pub(crate) async fn delete(&self, task: &str) {
        let store = Arc::clone(&self.store);
        let settings = Settings { sweep: Some(LIMIT), ..Settings::default() };
        let tenure = Tenure::open(store, settings).await.expect("a host");
        let task_id = TaskId::new(task).expect("an id");
        tenure.delete_task(&task_id, Deletion::Keep).await.expect("a deletion");
        tenure.shutdown().await.expect("a shutdown");
    }

    /// The test may take so long from now on.
    pub(crate) fn allow(&mut self, limit: Duration) {
        self.ends = Instant::now() + limit;
    }

    pub(crate) fn now() -> Timestamp {
        SystemClock.now()
    }

    /// What becomes from now on of workers that wait.
    pub(crate) fn policy(&mut self, policy: impl FnMut(usize, &At) -> Word + 'static) {
        self.policy = Box::new(policy);
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    // --- workers ----------------------------------------------------------------------------------------

    /// Starts a worker, and goes on.
    pub(crate) fn start(&mut self, setup: &Setup) -> usize {
        let n = usize::try_from(self.number()).expect("a small number");
        let mut setup = setup.clone();
        let proxy = self.proxies.zip(setup.store.port());
        let proxy = proxy.map(|(seed, port)| Proxy::before(port, seed.wrapping_add(n as u64)));
        if let Some(proxy) = &proxy {
            setup.store = setup.store.by_port(proxy.port);
        }
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(WORKER, serde_json::to_string(&setup).expect("plain data"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let dial = match self.clocks {
            Clocks::Right => None,
            Clocks::Apart => {
                skew::set(&mut command, if self.started.is_multiple_of(2) { "+3600" } else { "-3600" });
                None
            }
            Clocks::Stepped => Some(Dial::of(&mut command)),
        };
        self.started += 1;
        let mut child = command.spawn().expect("a worker");
        let (orders, told) =
            (child.stdin.take().expect("its input"), child.stdout.take().expect("its output"));
        let hear = self.hear.clone();
        std::thread::spawn(move || {
            for text in BufReader::new(told).lines().map_while(Result::ok) {
                // A line that a kill cut off was never said.
                let Ok(told) = serde_json::from_str(&text) else { break };
                let _ = hear.send(Heard::Told(n, told));
            }
            let _ = hear.send(Heard::Gone(n));
        });
        self.workers.insert(n, Worker { child, orders, instance: None, clock: None, dial, proxy });
        n
    }

    /// Starts a worker, and waits until it is a host.
    pub(crate) async fn worker(&mut self, setup: &Setup) -> usize {
        let n = self.start(setup);
        self.until("a worker is ready", |_, heard| {
            matches!(heard, Heard::Told(m, Told::Ready { .. }) if *m == n).then_some(())
        })
        .await;
        n
    }

    /// What stands between a worker and its server.
    pub(crate) fn proxy(&self, n: usize) -> &Proxy {
        self.workers[&n].proxy.as_ref().expect("a proxy")
    }

    /// So many pieces pass between a worker and its server, and then nothing; then that is heard.
    pub(crate) fn freeze(&self, n: usize, after: usize) {
        let hear = self.hear.clone();
        // The stage may have been left: fine.
        self.proxy(n).freeze(after, move || drop(hear.send(Heard::Frozen(n))));
    }

    /// Sets the clock of a worker's machine so many seconds off what it is.
    pub(crate) fn step(&self, n: usize, seconds: i64) {
        self.workers[&n].dial.as_ref().expect("a clock that steps").set(seconds);
    }

    /// What the clock of a worker's machine showed when it was ready, or said last how it is.
    pub(crate) fn clock(&self, n: usize) -> Option<Timestamp> {
        self.workers.get(&n).and_then(|worker| worker.clock)
    }

    /// Those that are there, in the order in which they came.
    pub(crate) fn workers(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.workers.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The number of a worker's OS process.
    pub(crate) fn id(&self, n: usize) -> u32 {
        self.workers[&n].child.id()
    }

    pub(crate) fn instance(&self, n: usize) -> Option<InstanceId> {
        self.workers.get(&n).and_then(|worker| worker.instance)
    }

    /// Says something to a worker. One that is gone hears nothing.
    pub(crate) fn say(&mut self, n: usize, order: &Order) {
        if let Some(worker) = self.workers.get_mut(&n) {
            let text = line(order);
            let _ = worker.orders.write_all(text.as_bytes()).and_then(|()| worker.orders.flush());
        }
    }

    /// Kills a worker with the signal that nobody can catch, and sees it dead.
    pub(crate) fn kill(&mut self, n: usize) {
        self.held.retain(|(worker, ..)| *worker != n);
        drop(self.workers.remove(&n));
    }

    pub(crate) fn pause(&self, n: usize) {
        self.signal(n, Signal::STOP);
    }

    pub(crate) fn wake(&self, n: usize) {
        self.signal(n, Signal::CONT);
    }

    pub(crate) fn signal(&self, n: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.workers[&n].child), signal).expect("a signal");
    }

    /// Asks a worker to end itself in order; answers how many attempts it interrupted.
    pub(crate) async fn shut_down(&mut self, n: usize) -> usize {
        self.say(n, &Order::Shutdown);
        let closed = self.until("a worker has shut down", |_, heard| match heard {
            Heard::Told(m, Told::Closed { interrupted, unstored }) if *m == n => {
                Some((*interrupted, *unstored))
            }
            _ => None,
        });
        let (interrupted, unstored) = closed.await;
        assert_eq!(unstored, 0, "every outcome was stored");
        let mut worker = self.workers.remove(&n).expect("a worker");
        assert!(worker.child.wait().expect("its end").success(), "it ends without an error");
        interrupted
    }

    // --- orders -----------------------------------------------------------------------------------------

    /// Asks a worker for a run; answers under which number.
    pub(crate) fn want(&mut self, n: usize, task: &str, query: Option<&str>, key: Option<&str>) -> u64 {
        let id = self.number();
        let (query, key) = (query.map(str::to_owned), key.map(str::to_owned));
        self.say(n, &Order::Want { id, task: task.to_owned(), query, key });
        id
    }

    /// Has a worker own a task, and do it.
    pub(crate) fn own(&mut self, n: usize, task: u64, expect: Expected, query: &str) {
        let id = self.number();
        self.say(n, &Order::Own { id, task, expect, query: query.to_owned() });
    }

    /// Asks for a run, and waits for the answer.
    pub(crate) async fn wanted(&mut self, n: usize, task: &str, query: Option<&str>) -> RunId {
        let id = self.want(n, task, query, None);
        self.answers(&[id]).await.remove(0).0
    }

    /// What was answered, in the order of the numbers.
    pub(crate) async fn answers(&mut self, ids: &[u64]) -> Vec<(RunId, RunStatus)> {
        let mut found: HashMap<u64, (RunId, RunStatus)> = HashMap::new();
        self.until("what was asked is answered", |_, heard| {
            if let Heard::Told(_, Told::Answered { id, answer }) = heard
                && ids.contains(id)
            {
                found.insert(*id, answer.clone().expect("a good answer"));
            }
            (found.len() == ids.len()).then_some(())
        })
        .await;
        ids.iter().map(|id| found[id].clone()).collect()
    }

    /// How a worker says that it is: what it says of its store, if that is not well, and how many outcomes wait.
    pub(crate) async fn probe(&mut self, n: usize) -> (Option<String>, usize) {
        let id = self.number();
        self.say(n, &Order::Probe { id });
        self.until("a worker says how it is", |_, heard| match heard {
            Heard::Told(_, Told::Probed { id: of, failing, unstored, .. }) if *of == id => {
                Some((failing.clone(), *unstored))
            }
            _ => None,
        })
        .await
    }

    /// Lets those go on who are held and meet this.
    pub(crate) fn release(&mut self, meets: impl Fn(usize, &At) -> bool) {
        let (go, held) = std::mem::take(&mut self.held).into_iter().partition(|(n, _, at)| meets(*n, at));
        self.held = held;
        for (n, id, _) in go {
            self.say(n, &Order::Go { id });
        }
    }

    /// The workers that are held in this window.
    pub(crate) fn held_in(&self, window: Window) -> Vec<usize> {
        self.held.iter().filter(|(.., at)| at.window == window).map(|(n, ..)| *n).collect()
    }

    // --- hearing ----------------------------------------------------------------------------------------

    /// The next thing that happens. Who waits is answered by the policy.
    pub(crate) async fn next(&mut self, what: &str) -> Heard {
        let next = async {
            tokio::select! {
                biased;
                heard = self.heard.recv() => heard.expect("the stage hears itself"),
                _ = self.hints.recv() => Heard::Changed,
            }
        };
        let Ok(heard) = timeout_at(self.ends, next).await else {
            panic!(
                "waited in vain until {what}; held: {:?}; the last effects: {:?}",
                self.held,
                self.last_effects()
            );
        };
        match &heard {
            Heard::Told(n, Told::Ready { instance, clock }) => {
                if let Some(worker) = self.workers.get_mut(n) {
                    worker.instance = Some(*instance);
                    worker.clock = Some(*clock);
                }
            }
            Heard::Told(n, Told::Probed { clock, .. }) => {
                if let Some(worker) = self.workers.get_mut(n) {
                    worker.clock = Some(*clock);
                }
            }
            Heard::Told(n, Told::At { id, at }) => match (self.policy)(*n, at) {
                Word::Go => self.say(*n, &Order::Go { id: *id }),
                Word::Hold if self.workers.contains_key(n) => self.held.push((*n, *id, at.clone())),
                Word::Hold => {}
            },
            // Who was killed or has shut down is not among them any more.
            Heard::Gone(n) => assert!(!self.workers.contains_key(n), "worker {n} has died of itself"),
            _ => {}
        }
        heard
    }

    fn last_effects(&self) -> Vec<Had> {
        let log = self.sink.log();
        log[log.len().saturating_sub(5)..].to_vec()
    }

    /// Goes on until something happens.
    pub(crate) async fn until<T>(
        &mut self,
        what: &str,
        mut happens: impl FnMut(&mut Self, &Heard) -> Option<T>,
    ) -> T {
        loop {
            let heard = self.next(what).await;
            if let Some(answer) = happens(self, &heard) {
                return answer;
            }
        }
    }

    /// Goes on until the run does this to the world; answers under which fence.
    pub(crate) async fn effect(&mut self, run_id: &RunId, what: What) -> Had {
        self.effect_after(run_id, what, 0).await
    }

    /// The same under a higher fence than this.
    pub(crate) async fn effect_after(&mut self, run_id: &RunId, what: What, fence: u64) -> Had {
        let meets =
            |had: &Had| had.effect.run_id == *run_id && had.effect.what == what && had.effect.fence > fence;
        if let Some(had) = self.sink.log().into_iter().find(|had| meets(had)) {
            return had;
        }
        let what = format!("run {run_id} does {what:?} above fence {fence}");
        self.until(&what, |_, heard| match heard {
            Heard::Sink(had) if meets(had) => Some(had.clone()),
            _ => None,
        })
        .await
    }

    /// Goes on until the run stands like this.
    pub(crate) async fn run_until(
        &mut self,
        run_id: &RunId,
        what: &str,
        stands: impl Fn(&Run) -> bool,
    ) -> Run {
        loop {
            let run = self.run(run_id).await;
            if stands(&run) {
                return run;
            }
            assert!(!run.status.is_terminal(), "waited until {what}, but run {run_id} is {}", run.status);
            self.next(what).await;
        }
    }

    /// Goes on until every run has ended.
    pub(crate) async fn until_all_ended(&mut self) {
        loop {
            let counts = self.store.counts(None).await.expect("counts");
            if counts.iter().all(|(status, count)| status.is_terminal() || *count == 0) {
                return;
            }
            self.next(&format!("every run has ended: {counts:?}")).await;
        }
    }

    /// The next thing that happens until an instant, if something does.
    pub(crate) async fn next_until(&mut self, then: Instant, what: &str) -> Option<Heard> {
        timeout_at(then, self.next(what)).await.ok()
    }

    /// Goes on until the store's clock has passed this. Who waits is answered; nothing else is heard meanwhile.
    pub(crate) async fn until_past(&mut self, instant: Timestamp) {
        while Self::now() <= instant {
            let then = Instant::now() + instant.since(Self::now()) + Duration::from_millis(1);
            drop(timeout_at(then, self.next("the clock has passed an instant")).await);
        }
    }

    // --- reading ----------------------------------------------------------------------------------------

    pub(crate) async fn run(&self, run_id: &RunId) -> Run {
        self.store.run(run_id).await.expect("an answer").expect("a run")
    }

    pub(crate) async fn runs(&self, filter: RunFilter) -> Vec<Run> {
        let mut page = PageRequest { limit: 1000, cursor: None };
        let mut runs = Vec::new();
        loop {
            let found = self.store.runs(filter.clone(), page.clone()).await.expect("a page");
            runs.extend(found.items);
            match found.next {
                Some(cursor) => page.cursor = Some(cursor),
                None => return runs,
            }
        }
    }

    pub(crate) async fn events(&self, run_id: &RunId) -> Vec<Event> {
        self.store.events(Subject::Run(run_id.clone()), 0, 100_000).await.expect("events")
    }

    /// What happened to the run, in order.
    pub(crate) async fn story(&self, run_id: &RunId) -> Vec<EventKind> {
        self.events(run_id).await.into_iter().map(|event| event.event).collect()
    }

    /// Every event of the store, in order.
    pub(crate) async fn all_events(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map_or(0, |event| event.cursor);
            let page = self.store.events(Subject::All, after, 5_000).await.expect("events");
            if page.is_empty() {
                return events;
            }
            events.extend(page);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
