//! What the tests of services share: a world per test, and parts whose life the test directs.
//!
//! Tests wait for facts: a line of the diary, a state of a service. `World::until` looks again after each
//! virtual millisecond; the paused clock moves only when nothing else can happen, so this takes no real time
//! and sees every state that lasts.

#![allow(dead_code, reason = "each of the test files that share it uses a part")]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use tenure_actors::rules::{Backoff, BackoffSettings, Intensity, Patience, Restart, Strategy};
use tenure_actors::{
    Application, ApplicationSpec, CloseReport, Event, Generation, GenerationSpec, ManagedProcess,
    ProcessContext, ProcessResult, ProcessSpec, Recorder, ServiceInfo, ServiceSpec, ServiceState, Services,
    Verb,
};
use tokio::sync::{Notify, Semaphore};

/// How an incarnation ends by itself.
#[derive(Debug, Clone, Copy)]
pub enum End {
    Normal,
    Error,
    Panic,
}

/// How a start goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Start {
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
pub enum Stop {
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
pub enum Kind {
    Actor,
    Function,
    Object,
}

pub const KINDS: [Kind; 3] = [Kind::Actor, Kind::Function, Kind::Object];

/// A service under the test's direction, over all its incarnations.
#[derive(Clone)]
pub struct Part {
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
pub struct Diary {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Diary {
    pub fn note(&self, line: impl Into<String>) {
        self.lines.lock().unwrap().push(line.into());
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The lines since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    /// The names of those lines that begin with this word, in order.
    pub fn of(&self, word: &str) -> Vec<String> {
        let lines = self.lines();
        lines
            .iter()
            .filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '))
            .map(str::to_owned)
            .collect()
    }
}

impl Part {
    pub fn new(name: &str, kind: Kind, diary: &Diary) -> Self {
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
    pub fn spec(&self) -> ServiceSpec {
        let script = Arc::clone(&self.script);
        ServiceSpec::new(self.name(), move || script.make()).backoff(Backoff::none())
    }

    pub fn transient(&self) -> ServiceSpec {
        self.spec().restart(Restart::Transient)
    }

    pub fn temporary(&self) -> ServiceSpec {
        self.spec().restart(Restart::Temporary)
    }

    /// The same part as a process of the registry.
    pub fn process(&self) -> ProcessSpec {
        self.script.make()
    }

    pub fn name(&self) -> &str {
        &self.script.name
    }

    /// The next starts go like this, one after the other; those after them as usual.
    pub fn next_starts(&self, starts: impl IntoIterator<Item = Start>) {
        self.script.starts.lock().unwrap().extend(starts);
    }

    /// All starts without a plan of their own go like this.
    pub fn start(&self, start: Start) -> &Self {
        *self.script.start.lock().unwrap() = start;
        self
    }

    pub fn stop(&self, stop: Stop) -> &Self {
        *self.script.stop.lock().unwrap() = stop;
        self
    }

    /// The next so many calls of its `make` panic.
    pub fn make_panics(&self, times: usize) {
        self.script.make_panics.store(times, Ordering::SeqCst);
    }

    pub fn open_start(&self) {
        self.script.start_gate.add_permits(1);
    }

    pub fn open_stop(&self) {
        self.script.stop_gate.add_permits(1);
    }

    /// Ends the current incarnation, or the next one as soon as it is up.
    pub fn end(&self, end: End) {
        self.script.ends.lock().unwrap().push_back(end);
        self.script.ended.notify_one();
    }

    pub fn crash(&self) {
        self.end(End::Error);
    }

    /// How many processes were made for it.
    pub fn made(&self) -> usize {
        self.script.made.load(Ordering::SeqCst)
    }

    /// How many of its incarnations live at this moment.
    pub fn alive(&self) -> usize {
        self.script.alive.load(Ordering::SeqCst)
    }

    /// How often an incarnation came up while another lived.
    pub fn overlaps(&self) -> usize {
        self.script.overlaps.load(Ordering::SeqCst)
    }

    /// The authority of every incarnation so far, oldest first.
    pub fn contexts(&self) -> Vec<ProcessContext> {
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
            Kind::Actor => ProcessSpec::actor(self.name.as_str(), Player { script }, |context| context),
            Kind::Function => ProcessSpec::function(self.name.as_str(), |context| async move {
                let life = Life::begin(&script, &context);
                life.up();
                tokio::select! {
                    end = script.next_end() => finish(end),
                    () = context.cancelled() => script.wind_down(&life.name).await,
                }
            }),
            Kind::Object => {
                let prop = Prop { script, life: Mutex::default() };
                ProcessSpec::object(self.name.as_str(), Arc::new(prop))
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
                tokio::time::sleep(Duration::from_millis(ms)).await;
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

/// An application, the diary of its parts, and everything that its journal said.
pub struct World {
    pub application: Application,
    pub diary: Diary,
    recorder: Arc<Recorder>,
    parts: HashMap<String, Part>,
}

/// Describes a world before it is opened.
pub struct Plot {
    pub spec: ApplicationSpec,
    diary: Diary,
    parts: HashMap<String, Part>,
}

impl Plot {
    /// A generation of this strategy that bears any number of restarts.
    pub fn new(strategy: Strategy) -> Self {
        let generation = GenerationSpec::default().strategy(strategy).intensity(Intensity::Unlimited);
        let spec = ApplicationSpec { generation, backoff: Backoff::none(), ..ApplicationSpec::default() };
        Self { spec, diary: Diary::default(), parts: HashMap::new() }
    }

    pub fn limited(mut self, restarts: u32, period_ms: u64) -> Self {
        self.spec.generation.intensity = limited(restarts, period_ms);
        self
    }

    /// The application gives up at the first failure of a generation.
    pub fn once(mut self) -> Self {
        self.spec.intensity = limited(0, 1);
        self
    }

    pub fn part(&mut self, name: &str, kind: Kind) -> Part {
        let part = Part::new(name, kind, &self.diary);
        self.parts.insert(name.to_owned(), part.clone());
        part
    }

    /// Actors of these names, permanent, in this order.
    pub fn cast<const N: usize>(mut self, names: [&str; N]) -> (Self, [Part; N]) {
        let parts = names.map(|name| self.part(name, Kind::Actor));
        for part in &parts {
            self = self.with(part.spec());
        }
        (self, parts)
    }

    pub fn with(mut self, service: ServiceSpec) -> Self {
        self.spec.generation = self.spec.generation.service(service);
        self
    }

    /// The service of this name waits so long before each restart.
    pub fn with_backoff(mut self, name: &str, delay_ms: u64) -> Self {
        let services = std::mem::take(&mut self.spec.generation.services);
        let change = |service: ServiceSpec| {
            if service.name() == name { service.backoff(after_ms(delay_ms)) } else { service }
        };
        self.spec.generation.services = services.into_iter().map(change).collect();
        self
    }

    pub fn limits(mut self, change: impl FnOnce(&mut tenure_actors::Limits)) -> Self {
        change(&mut self.spec.generation.limits);
        self
    }

    pub async fn open(self) -> World {
        let application = Application::open(self.spec).await.expect("the application opens");
        let recorder = application.journal().record();
        World { application, diary: self.diary, recorder, parts: self.parts }
    }
}

pub fn limited(restarts: u32, period_ms: u64) -> Intensity {
    Intensity::limited(restarts, period_ms).expect("a period")
}

/// Always this delay.
pub fn after_ms(delay_ms: u64) -> Backoff {
    let settings = BackoffSettings {
        min_ms: delay_ms,
        max_ms: delay_ms,
        factor: 1.0,
        jitter: 0.0,
        ..Default::default()
    };
    Backoff::new(settings).expect("a back-off")
}

pub fn soon(patience_ms: u64) -> Patience {
    Patience::Time(patience_ms)
}

/// Lets everything happen that can happen without the clock: the paused clock moves on only then.
pub async fn quiet() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

impl World {
    pub fn generation(&self) -> Generation {
        self.application.current()
    }

    pub fn services(&self) -> Services {
        self.generation().services()
    }

    pub fn get(&self, name: &str) -> Option<ServiceInfo> {
        self.services().get(name)
    }

    pub fn state(&self, name: &str) -> Option<ServiceState> {
        self.get(name).map(|service| service.state)
    }

    /// The current incarnation: `a#2`.
    pub fn incarnation(&self, name: &str) -> Option<String> {
        self.get(name)?.incarnation
    }

    /// Every service with its state and incarnation, in start order: `a running a#1`.
    pub fn cast(&self) -> Vec<String> {
        let line = |service: ServiceInfo| {
            let incarnation = service.incarnation.map(|name| format!(" {name}")).unwrap_or_default();
            format!("{} {}{incarnation}", service.name, service.state)
        };
        self.services().list().into_iter().map(line).collect()
    }

    /// Waits for a fact.
    pub async fn until(&self, fact: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 {
            if holds(self) {
                return;
            }
            quiet().await;
        }
        panic!("not within a virtual minute: {fact}\n{:#?}\n{:#?}", self.cast(), self.diary.lines());
    }

    pub async fn until_running(&self, incarnation: &str) {
        let name = incarnation.split('#').next().unwrap();
        self.until(&format!("{incarnation} runs"), |world| {
            world.state(name) == Some(ServiceState::Running)
                && world.incarnation(name).as_deref() == Some(incarnation)
        })
        .await;
    }

    pub async fn until_state(&self, name: &str, state: ServiceState) {
        self.until(&format!("{name} is {state}"), |world| world.state(name) == Some(state)).await;
    }

    pub async fn until_gone(&self, name: &str) {
        self.until(&format!("{name} is forgotten"), |world| world.get(name).is_none()).await;
    }

    /// Waits until this line is in the diary.
    pub async fn until_line(&self, line: &str) {
        self.until(line, |world| world.diary.lines().iter().any(|seen| seen == line)).await;
    }

    pub async fn until_epoch(&self, epoch: u64) {
        self.until(&format!("epoch {epoch}"), |world| world.generation().epoch().get() == epoch).await;
    }

    pub fn events(&self) -> Vec<Arc<Event>> {
        self.recorder.events()
    }

    /// The details of all events of this verb, as a transcript shows them.
    pub fn said(&self, verb: Verb) -> Vec<String> {
        let of_verb = |event: &Arc<Event>| (event.kind.verb() == verb).then(|| event.kind.to_string());
        self.events().iter().filter_map(of_verb).collect()
    }

    /// Closes everything and checks what must hold in every world; answers the last report.
    pub async fn end(self) -> Arc<CloseReport> {
        let report = self.application.close().await.expect("the application closes");
        assert_eq!(report.imbalance(), None);
        self.assert_deserted();
        report
    }

    /// Nothing of any part lives, and no two incarnations of one ever lived at once.
    pub fn assert_deserted(&self) {
        assert_eq!(self.services().list().len(), 0, "a closed generation shows no services");
        for (name, part) in &self.parts {
            assert_eq!(part.alive(), 0, "{name} still lives: {:?}", self.diary.lines());
            assert_eq!(part.overlaps(), 0, "two of {name} at once: {:?}", self.diary.lines());
            for context in part.contexts() {
                assert!(context.commit(|| ()).is_err(), "{name} can still commit");
            }
        }
    }
}
