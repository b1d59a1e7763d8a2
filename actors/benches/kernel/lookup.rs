//! Finding an object in the registry.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use foldhash::fast::RandomState;
use tenure_actors::{ProcessHandle, ProcessId, Registry, RegistryMessage};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::flavour::Flavour;
use crate::measure::{Samples, interleave_numbers, per_second, rate, rate_of_two};
use crate::options::Plan;
use crate::ours::{self, Plain, object};
use crate::table::{Goal, Row, Table, Unit};

/// Registered objects. A power of two, so that going round them costs no division.
const OBJECTS: usize = 1_024;
/// Processes that the writer starts before it removes them.
const CHURNED: usize = 64;

/// The registry and a bare map with the same entries.
struct Shelf {
    registry: Registry,
    map: papaya::HashMap<ProcessId, Arc<Plain>, RandomState>,
    ids: Arc<[ProcessId]>,
    runtime: Handle,
}

pub(crate) fn measure(plan: &Plan, table: &Table) {
    for flavour in Flavour::BOTH {
        let host = Host::on(flavour);
        beside_a_writer(plan, table, flavour, &host.shelf);
        if flavour == Flavour::TwoWorkers {
            by_two_readers(plan, table, &host.shelf);
        }
        host.end();
    }
}

/// A thread that has the runtime, and with it the application, the shelf and the writer: a runtime of one thread runs
/// nothing unless somebody lends it theirs, and the others here only read.
struct Host {
    shelf: Arc<Shelf>,
    end: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Host {
    fn on(flavour: Flavour) -> Self {
        let (filled, shelf) = std::sync::mpsc::channel();
        let (end, told_to_end) = oneshot::channel();
        let work = async move {
            let application = ours::open().await;
            let shelf = Shelf::filled(application.current().registry()).await;
            filled.send(Arc::new(shelf)).expect("the reader waits for it");
            told_to_end.await.expect("the reader tells when it has read");
            ours::shut(&application).await;
        };
        let thread = std::thread::spawn(move || flavour.run(work));
        let shelf = shelf.recv().expect("a shelf");
        Self { shelf, end, thread }
    }

    fn end(self) {
        self.end.send(()).expect("it waits for that");
        self.thread.join().expect("it ends");
    }
}

impl Shelf {
    async fn filled(registry: Registry) -> Self {
        let (map, ids) = (papaya::HashMap::default(), ours::ids(OBJECTS));
        ours::start_all(&registry, &ids, 1, object).await;
        for id in ids.iter() {
            map.pin().insert(id.clone(), registry.get::<Plain>(id.as_str()).expect("a started object"));
        }
        Self { registry, map, ids, runtime: Handle::current() }
    }

    fn id(&self, number: usize) -> &ProcessId {
        &self.ids[number % OBJECTS]
    }

    fn ask_registry(&self, number: usize) {
        let found = self.registry.get::<Plain>(black_box(self.id(number).as_str()));
        drop(black_box(found).expect("it is registered"));
    }

    fn ask_map(&self, number: usize) {
        let found = self.map.pin().get(black_box(self.id(number).as_str())).cloned();
        drop(black_box(found).expect("it is in the map"));
    }

    /// The same question as a message to the registry's actor.
    fn call_registry(&self, number: usize) {
        let id = self.id(number).clone();
        let actor = self.registry.actor_ref().expect("an open registry");
        let asked = actor.call(|reply| RegistryMessage::Get { id, reply }, None);
        let found = self.runtime.block_on(asked).expect("the actor runs").expect("the actor answers");
        drop(black_box(found.and_then(|process| process.object::<Plain>())).expect("it is registered"));
    }
}

// --- one reader beside a writer ---------------------------------------------------------------------------

fn beside_a_writer(plan: &Plan, table: &Table, flavour: Flavour, shelf: &Arc<Shelf>) {
    let writer = Writer::start(shelf);
    let read = |ask: fn(&Shelf, usize)| on_a_thread(|| rate(plan.span, |number| ask(shelf, number)));
    let [map, calls, own] = interleave_numbers(
        plan.rounds,
        [&|| read(Shelf::ask_map), &|| read(Shelf::call_registry), &|| read(Shelf::ask_registry)],
    );
    let written = writer.stop(&shelf.runtime);
    let row = |name, baseline: &Samples| {
        Row::new("get beside a writer", flavour.name(), &own, Unit::PerSecond)
            .beside(name, baseline, Unit::PerSecond)
            .compared(&own.over(baseline), Unit::Times)
    };
    table.print(row("papaya", &map).goal(Goal::AtLeast(5e6), &own, Unit::PerSecond));
    table.print(row("call of the actor", &calls));
    // What is asked of the actor waits for what was asked before it, and not for all that ended meanwhile.
    let asked = Row::new("the same asked of the actor", flavour.name(), &calls, Unit::PerSecond);
    table.print(asked.goal(Goal::AtLeast(1e3), &calls, Unit::PerSecond));
    let figure = "the writer meanwhile: starts and removals";
    table.print(Row::new(figure, flavour.name(), &written, Unit::PerSecond));
}

fn on_a_thread(measure: impl FnOnce() -> f64 + Send) -> f64 {
    std::thread::scope(|scope| scope.spawn(measure).join().expect("the reader ends"))
}

/// A task that starts and removes processes, and does the same in the bare map, so that whoever reads either
/// has the same beside him.
struct Writer {
    shared: Arc<Written>,
    began: Instant,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Written {
    stop: AtomicBool,
    started: AtomicUsize,
}

impl Writer {
    fn start(shelf: &Arc<Shelf>) -> Self {
        let shared = Arc::new(Written::default());
        let task = shelf.runtime.spawn(write(Arc::clone(shelf), Arc::clone(&shared)));
        Self { shared, began: Instant::now(), task }
    }

    /// Answers how many processes it started and removed per second.
    fn stop(self, runtime: &Handle) -> Samples {
        self.shared.stop.store(true, Ordering::Relaxed);
        runtime.block_on(self.task).expect("the writer ends");
        Samples(vec![per_second(self.shared.started.load(Ordering::Relaxed), self.began.elapsed())])
    }
}

async fn write(shelf: Arc<Shelf>, shared: Arc<Written>) {
    let id = |number| ProcessId::new(format!("churned:{number}")).expect("a valid id");
    let ids: Vec<ProcessId> = (0..CHURNED).map(id).collect();
    while !shared.stop.load(Ordering::Relaxed) {
        let mut started: Vec<ProcessHandle> = Vec::with_capacity(CHURNED);
        for id in &ids {
            let process = shelf.registry.start(id, object()).await.expect("a start");
            shelf.map.pin().insert(id.clone(), process.object().expect("an object"));
            started.push(process);
        }
        for process in started {
            assert!(process.remove(), "nobody else removes it");
            shelf.map.pin().remove(process.id());
        }
        shared.started.fetch_add(CHURNED, Ordering::Relaxed);
    }
}

// --- two readers ------------------------------------------------------------------------------------------

fn by_two_readers(plan: &Plan, table: &Table, shelf: &Shelf) {
    // Each its own half of the processes; and both all of them, half the way round from each other: then what
    // they share is the counter of references in every object they are given, which goes to and fro.
    two_readers(plan, table, shelf, ("its own processes", |number, which| number % HALF + which * HALF));
    two_readers(plan, table, shelf, ("the same processes", |number, which| number + which * HALF));
}

const HALF: usize = OBJECTS / 2;

fn two_readers(plan: &Plan, table: &Table, shelf: &Shelf, (whose, place): (&str, fn(usize, usize) -> usize)) {
    let read =
        |ask: fn(&Shelf, usize), which: usize| rate(plan.span, |number| ask(shelf, place(number, which)));
    let one = |ask| on_a_thread(|| read(ask, 0));
    let two = |ask| rate_of_two(|which| read(ask, which));
    let [map_one, map_two, own_one, own_two] = interleave_numbers(
        plan.rounds,
        [&|| one(Shelf::ask_map), &|| two(Shelf::ask_map), &|| one(Shelf::ask_registry), &|| {
            two(Shelf::ask_registry)
        }],
    );
    let row = |figure: &str, own, baseline| {
        Row::new(format!("get {whose}, {figure}"), "threads", own, Unit::PerSecond).beside(
            "papaya",
            baseline,
            Unit::PerSecond,
        )
    };
    table.print(row("one reader", &own_one, &map_one).compared(&own_one.over(&map_one), Unit::Times));
    table.print(row("two readers", &own_two, &map_two).compared(&own_two.over(&map_two), Unit::Times));
    let [own, map] = [own_two.over(&own_one), map_two.over(&map_one)];
    let row = Row::new(format!("get {whose}: two readers to one"), "threads", &own, Unit::Times)
        .beside("papaya", &map, Unit::Times)
        .compared(&own.over(&map), Unit::Times);
    table.print(if whose.starts_with("its own") {
        row.goal(Goal::AtLeast(1.7), &own, Unit::Times)
    } else {
        row
    });
}
