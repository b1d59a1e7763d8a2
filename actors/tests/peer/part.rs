//! Parts: services and processes of every kind whose life the test directs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tenure_actors::rules::{Backoff, Restart};
use tenure_actors::{ManagedProcess, ProcessContext, ProcessResult, ProcessSpec, ServiceSpec};
use tokio::sync::{Notify, Semaphore};

/// How an incarnation ends by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Normal,
    Error,
    Panic,
}

/// How a start goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Start {
    Works,
    Fails,
    Panics,
    /// Until the process is killed or its start bound is reached.
    Hangs,
    /// Until [`Part::open_start`].
    Gated,
}

/// How a part behaves when it is told to stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Stop {
    Obeys,
    /// Until [`Part::open_stop`].
    Gated,
    Never,
    Fails,
    /// Obeys after so many virtual milliseconds.
    After(u64),
}

/// Of which kind the processes of a part are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Actor,
    Function,
    Object,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Actor, Kind::Function, Kind::Object];

/// A service under the test's direction, over all its incarnations.
#[derive(Clone)]
pub(crate) struct Part {
    script: Arc<Script>,
}

struct Script {
    name: String,
    kind: Kind,
    diary: Diary,
    starts: Mutex<VecDeque<Start>>,
    start: Mutex<Start>,
    stop: Mutex<Stop>,
    ends: Mutex<VecDeque<End>>,
    ended: Notify,
    start_gate: Semaphore,
    stop_gate: Semaphore,
    made: AtomicUsize,
    make_panics: AtomicUsize,
    alive: AtomicUsize,
    overlaps: AtomicUsize,
    contexts: Mutex<Vec<ProcessContext>>,
}

/// What happened, in order: `start a#1`, `up a#1`, `down a#1`, `gone a#1`.
#[derive(Clone, Default)]
pub(crate) struct Diary {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Diary {
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.lines.lock().unwrap().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The lines since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    /// The names of those lines that begin with this word, in order.
    pub(crate) fn of(&self, word: &str) -> Vec<String> {
        let lines = self.lines();
        lines
            .iter()
            .filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '))
            .map(str::to_owned)
            .collect()
    }
}

impl Part {
    pub(crate) fn new(name: &str, kind: Kind, diary: &Diary) -> Self {
        Self {
            script: Arc::new(Script {
                name: name.to_owned(),
                kind,
                diary: diary.clone(),
                starts: Mutex::default(),
                start: Mutex::new(Start::Works),
                stop: Mutex::new(Stop::Obeys),
                ends: Mutex::default(),
                ended: Notify::new(),
                start_gate: Semaphore::new(0),
                stop_gate: Semaphore::new(0),
                made: AtomicUsize::new(0),
                make_panics: AtomicUsize::new(0),
                alive: AtomicUsize::new(0),
                overlaps: AtomicUsize::new(0),
                contexts: Mutex::default(),
            }),
        }
    }

    /// A permanent service that is restarted without delay.
    pub(crate) fn spec(&self) -> ServiceSpec {
        let script = Arc::clone(&self.script);
        ServiceSpec::new(self.name(), move || script.make()).backoff(Backoff::none())
    }

    pub(crate) fn transient(&self) -> ServiceSpec {
        self.spec().restart(Restart::Transient)
    }

    pub(crate) fn temporary(&self) -> ServiceSpec {
        self.spec().restart(Restart::Temporary)
    }

    /// The same part as a process of the registry.
    pub(crate) fn process(&self) -> ProcessSpec {
        self.script.make()
    }

    pub(crate) fn name(&self) -> &str {
        &self.script.name
    }

    /// The next starts go like this, one after the other; those after them as usual.
    pub(crate) fn next_starts(&self, starts: impl IntoIterator<Item = Start>) {
        self.script.starts.lock().unwrap().extend(starts);
    }

    /// All starts without a plan of their own go like this.
    pub(crate) fn start(&self, start: Start) -> &Self {
        *self.script.start.lock().unwrap() = start;
        self
    }

    pub(crate) fn stop(&self, stop: Stop) -> &Self {
        *self.script.stop.lock().unwrap() = stop;
        self
    }

    /// The next so many calls of its `make` panic.
    pub(crate) fn make_panics(&self, times: usize) {
        self.script.make_panics.store(times, Ordering::SeqCst);
    }

    pub(crate) fn open_start(&self) {
        self.script.start_gate.add_permits(1);
    }

    pub(crate) fn open_stop(&self) {
        self.script.stop_gate.add_permits(1);
    }

    /// Ends the current incarnation, or the next one as soon as it is up.
    pub(crate) fn end(&self, end: End) {
        self.script.ends.lock().unwrap().push_back(end);
        self.script.ended.notify_one();
    }

    pub(crate) fn crash(&self) {
        self.end(End::Error);
    }

    /// How many processes were made for it.
    pub(crate) fn made(&self) -> usize {
        self.script.made.load(Ordering::SeqCst)
    }

    /// How many of its incarnations live at this moment.
    pub(crate) fn alive(&self) -> usize {
        self.script.alive.load(Ordering::SeqCst)
    }

    /// How often an incarnation came up while another lived.
    pub(crate) fn overlaps(&self) -> usize {
        self.script.overlaps.load(Ordering::SeqCst)
    }

    /// The authority of every incarnation so far, oldest first.
    pub(crate) fn contexts(&self) -> Vec<ProcessContext> {
        self.script.contexts.lock().unwrap().clone()
    }
}

impl Script {
    fn make(self: &Arc<Self>) -> ProcessSpec {
        self.made.fetch_add(1, Ordering::SeqCst);
        let panics =
            self.make_panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(panics.is_err(), "make panics");
        let script = Arc::clone(self);
        match self.kind {
            Kind::Actor => {
                ProcessSpec::actor(self.name.as_str().to_owned(), Player { script }, |context| context)
            }
            Kind::Function => ProcessSpec::function(self.name.as_str().to_owned(), |context| async move {
                let life = Life::begin(&script, &context);
                life.up();
                tokio::select! {
                    end = script.next_end() => finish(end),
                    () = context.cancelled() => script.wind_down(&life.name).await,
                }
            }),
            Kind::Object => {
                let prop = Prop { script, life: Mutex::default() };
                ProcessSpec::object(self.name.as_str().to_owned(), Arc::new(prop))
            }
        }
    }

    async fn run_start(&self) -> ProcessResult {
        let start = self.starts.lock().unwrap().pop_front().unwrap_or_else(|| *self.start.lock().unwrap());
        match start {
            Start::Works => Ok(()),
            Start::Fails => Err("no start".into()),
            Start::Panics => panic!("start panics"),
            Start::Hangs => std::future::pending().await,
            Start::Gated => {
                self.start_gate.acquire().await.unwrap().forget();
                Ok(())
            }
        }
    }

    async fn next_end(&self) -> End {
        loop {
            let end = self.ends.lock().unwrap().pop_front();
            match end {
                Some(end) => return end,
                None => self.ended.notified().await,
            }
        }
    }

    async fn wind_down(&self, name: &str) -> ProcessResult {
        self.diary.note(format!("down {name}"));
        let stop = *self.stop.lock().unwrap();
        match stop {
            Stop::Obeys => Ok(()),
            Stop::Fails => Err("no stop".into()),
            Stop::Never => std::future::pending().await,
            Stop::Gated => {
                self.stop_gate.acquire().await.unwrap().forget();
                Ok(())
            }
            Stop::After(ms) => {
                super::elapse(Duration::from_millis(ms)).await;
                Ok(())
            }
        }
    }
}

fn finish(end: End) -> ProcessResult {
    match end {
        End::Normal => Ok(()),
        End::Error => Err("crash".into()),
        End::Panic => panic!("crash"),
    }
}

/// One incarnation, from the first line of its start until nothing of it is left.
struct Life {
    script: Arc<Script>,
    name: String,
}

impl Life {
    fn begin(script: &Arc<Script>, context: &ProcessContext) -> Self {
        let name = context.handle().name();
        script.diary.note(format!("start {name}"));
        script.contexts.lock().unwrap().push(context.clone());
        if script.alive.fetch_add(1, Ordering::SeqCst) > 0 {
            script.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        Self { script: Arc::clone(script), name }
    }

    fn up(&self) {
        self.script.diary.note(format!("up {}", self.name));
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.script.diary.note(format!("gone {}", self.name));
        self.script.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Player {
    script: Arc<Script>,
}

struct Scene {
    life: Life,
    prompter: tokio::task::JoinHandle<()>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.prompter.abort();
    }
}

impl Actor for Player {
    type Msg = ();
    type State = Scene;
    type Arguments = ProcessContext;

    async fn pre_start(
        &self,
        myself: ActorRef<()>,
        context: ProcessContext,
    ) -> Result<Scene, ActorProcessingErr> {
        let life = Life::begin(&self.script, &context);
        self.script.run_start().await?;
        life.up();
        // The end of an actor is a message, so that it is told when there is an end to come.
        let script = Arc::clone(&self.script);
        let prompter = tokio::spawn(async move {
            let end = script.next_end().await;
            script.ends.lock().unwrap().push_front(end);
            let _ = myself.cast(());
        });
        Ok(Scene { life, prompter })
    }

    async fn handle(&self, myself: ActorRef<()>, _: (), _: &mut Scene) -> Result<(), ActorProcessingErr> {
        let end = self.script.next_end().await;
        finish(end)?;
        myself.stop(None);
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<()>, scene: &mut Scene) -> Result<(), ActorProcessingErr> {
        self.script.wind_down(&scene.life.name).await
    }
}

struct Prop {
    script: Arc<Script>,
    life: Mutex<Option<Arc<Life>>>,
}

impl ManagedProcess for Prop {
    async fn start(self: Arc<Self>, context: ProcessContext) -> ProcessResult {
        let life = Arc::new(Life::begin(&self.script, &context));
        *self.life.lock().unwrap() = Some(Arc::clone(&life));
        self.script.run_start().await?;
        life.up();
        Ok(())
    }

    async fn close(self: Arc<Self>) -> ProcessResult {
        let life = self.life.lock().unwrap().take();
        match life {
            Some(life) => self.script.wind_down(&life.name).await,
            None => Ok(()),
        }
    }
}
