//! What a process weighs. Each variant is weighed in a fresh copy of this program, which ends right after.

use std::process::Command;

use tenure_actors::ProcessSpec;

use crate::allocator;
use crate::baseline::{self, Parent};
use crate::flavour::Flavour;
use crate::life::settle;
use crate::measure::{Samples, interleave, number};
use crate::options::{Plan, WEIGH};
use crate::ours::{self, actor, function, object};
use crate::table::{Goal, Row, Table, Unit};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Idle,
    Job,
    Task,
    /// An object by hand, and a pair of actors.
    Kept,
    Pair,
    /// Functions of ours, by one caller and by many at once; objects, and actors.
    Ours,
    AtOnce,
    Object,
    Actor,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Job => "job",
            Self::Task => "task",
            Self::Kept => "kept",
            Self::Pair => "pair",
            Self::Ours => "ours",
            Self::AtOnce => "at-once",
            Self::Object => "object",
            Self::Actor => "actor",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let bare = [Self::Idle, Self::Job, Self::Task, Self::Kept, Self::Pair];
        let ours = [Self::Ours, Self::AtOnce, Self::Object, Self::Actor];
        bare.into_iter().chain(ours).find(|variant| variant.name() == name)
    }
}

/// What is to be weighed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) variant: Variant,
    pub(crate) flavour: Flavour,
    pub(crate) count: usize,
}

/// Bytes for one process: live in the allocator, and resident if the system tells.
#[derive(Debug, Clone, Copy)]
struct Weight {
    live: f64,
    resident: Option<f64>,
}

pub(crate) fn measure(plan: &Plan, table: &Table) {
    for flavour in Flavour::BOTH {
        let weigh = |variant| weigh_afresh(Load { variant, flavour, count: plan.many });
        let weights = interleave(
            plan.rounds,
            [&|| weigh(Variant::Idle), &|| weigh(Variant::Job), &|| weigh(Variant::Task), &|| {
                weigh(Variant::Ours)
            }],
        );
        let live = |of: &Vec<Weight>| Samples(of.iter().map(|weight| weight.live).collect());
        print(table, ("live bytes of a process", flavour), weights.each_ref().map(live));
        let resident =
            |of: &Vec<Weight>| of.iter().map(|weight| weight.resident).collect::<Option<Vec<f64>>>();
        if let [Some(idle), Some(jobs), Some(tasks), Some(own)] = weights.each_ref().map(resident) {
            print(table, ("resident bytes of a process", flavour), [idle, jobs, tasks, own].map(Samples));
        }
    }
}

fn print(table: &Table, (figure, flavour): (&str, Flavour), [idle, jobs, tasks, own]: [Samples; 4]) {
    let row = |name, baseline: &Samples| {
        Row::new(figure, flavour.name(), &own, Unit::Bytes)
            .beside(name, baseline, Unit::Bytes)
            .compared(&own.minus(baseline), Unit::MoreBytes)
    };
    table.print(row("bare", &idle).goal(Goal::AtMost(1024.0), &own.minus(&idle), Unit::MoreBytes));
    table.print(row("same job", &jobs));
    table.print(row("bare tasks", &tasks));
}

// --- in the fresh copy ------------------------------------------------------------------------------------

fn weigh_afresh(load: Load) -> Weight {
    let program = std::env::current_exe().expect("the path of this program");
    let arguments = [WEIGH, load.variant.name(), load.flavour.name(), &load.count.to_string()];
    let output = Command::new(program).args(arguments).output().expect("a copy of this program");
    let text = String::from_utf8(output.stdout).expect("numbers");
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
    let live = numbers.next().flatten().expect("the copy tells what it weighed");
    Weight { live, resident: numbers.next().flatten() }
}

/// Starts the load and answers what one of it weighs: live bytes, resident bytes.
pub(crate) fn weigh_here(load: Load) {
    let Load { variant, flavour, count } = load;
    flavour.run(async move {
        let total = match variant {
            Variant::Idle => weigh_bare(count, async |parent| drop(baseline::start_idle(parent).await)).await,
            Variant::Job => weigh_bare(count, async |parent| drop(baseline::start_job(parent).await)).await,
            Variant::Task => weigh_tasks(count).await,
            Variant::Kept => {
                weigh_bare(count, async |parent| drop(baseline::start_object(parent).await)).await
            }
            Variant::Pair => weigh_bare(count, async |parent| drop(baseline::start_pair(parent).await)).await,
            Variant::Ours | Variant::AtOnce => weigh_ours(count, function).await,
            Variant::Object => weigh_ours(count, object).await,
            Variant::Actor => weigh_ours(count, actor).await,
        };
        // Taking it down tells nothing; the system does it at once.
        println!("{}", total.each(count));
        std::process::exit(0)
    })
}

/// The handles are dropped, which stops nothing: a list of them would count against the baseline.
async fn weigh_bare(count: usize, start: impl AsyncFn(&Parent)) -> Scales {
    let mut parent = Parent::expecting(count).await;
    let empty = Scales::read_and_count();
    for _ in 0..count {
        start(&parent).await;
    }
    parent.all_started().await;
    settle().await;
    Scales::read().less(empty)
}

async fn weigh_tasks(count: usize) -> Scales {
    let empty = Scales::read_and_count();
    drop(baseline::start_tasks(count).await);
    settle().await;
    Scales::read().less(empty)
}

async fn weigh_ours(count: usize, spec: fn() -> ProcessSpec) -> Scales {
    let registry = ours::open().await.current().registry();
    let ids = ours::ids(count);
    let empty = Scales::read_and_count();
    ours::start_all(&registry, &ids, 1, spec).await;
    settle().await;
    Scales::read().less(empty)
}

/// Bytes in all.
#[derive(Debug, Clone, Copy)]
struct Scales {
    live: isize,
    resident: Option<isize>,
}

impl Scales {
    fn read_and_count() -> Self {
        allocator::start_counting();
        Self::read()
    }

    fn read() -> Self {
        Self { live: allocator::live_bytes(), resident: resident_bytes() }
    }

    fn less(self, empty: Self) -> Self {
        let resident = self.resident.zip(empty.resident).map(|(full, empty)| full - empty);
        Self { live: self.live - empty.live, resident }
    }

    /// What [`weigh_afresh`] reads.
    fn each(self, count: usize) -> String {
        let each = |total: isize| format!("{:.1}", signed_number(total) / number(count));
        format!("{} {}", each(self.live), self.resident.map(each).unwrap_or_default())
    }
}

#[allow(clippy::cast_precision_loss, reason = "no machine has 2^53 bytes")]
fn signed_number(bytes: isize) -> f64 {
    bytes as f64
}

/// As `/proc/self/statm` tells it, but in units that need no knowledge of the page size. Linux only.
fn resident_bytes() -> Option<isize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: isize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
