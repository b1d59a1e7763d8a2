//! Starting processes, and closing them. Every sample is one life: so many started, then closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tenure_actors::ProcessId;
use tokio::sync::Notify;

use crate::baseline;
use crate::flavour::Flavour;
use crate::measure::{Samples, interleave, number, per_second};
use crate::memory::{Load, Variant};
use crate::options::{Group, Plan};
use crate::ours::{self, actor, function, object};
use crate::table::{Goal, Row, Table, Unit, show};

/// Callers at once where it is not one.
const CALLERS: usize = 64;

/// How long it took to start all, and to close all.
pub(crate) struct Life {
    pub(crate) start: Duration,
    pub(crate) close: Duration,
}

/// A clock whose two readings a profiler finds by name, to count what lies between them alone.
pub(crate) struct Clock(Instant);

impl Clock {
    #[inline(never)]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline(never)]
    pub(crate) fn read(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Lets what goes on beside come to its end: what supervisors do after starts, and an application after its
/// close, so that the next clock pays for what it times alone.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(30)).await;
}

/// Counts those that have had their first turn: to there a start is measured, whoever starts.
pub(crate) struct Begun {
    missing: AtomicUsize,
    all: Notify,
}

impl Begun {
    pub(crate) const fn new() -> Self {
        Self { missing: AtomicUsize::new(usize::MAX), all: Notify::const_new() }
    }

    pub(crate) fn expect(&self, count: usize) {
        self.missing.store(count, Ordering::Release);
    }

    pub(crate) fn one_more(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all.notify_one();
        }
    }

    pub(crate) async fn all(&self) {
        self.all.notified().await;
    }
}

/// One round: every kind of life once, each beside its baseline.
struct Round {
    idle: Life,
    jobs: Life,
    kept: Life,
    pairs: Life,
    tasks: Life,
    functions: Life,
    functions_at_once: Life,
    objects: Life,
    actors: Life,
}

/// The counted rounds of one population.
struct Lives {
    count: usize,
    rounds: Vec<Round>,
}

impl Lives {
    fn starts_per_second(&self, of: fn(&Round) -> &Life) -> Samples {
        Samples(self.rounds.iter().map(|round| per_second(self.count, of(round).start)).collect())
    }

    fn closes_in_milliseconds(&self, of: fn(&Round) -> &Life) -> Samples {
        Samples(self.rounds.iter().map(|round| of(round).close.as_secs_f64() * 1e3).collect())
    }
}

pub(crate) fn measure(plan: &Plan, table: &Table) {
    let ids: Arc<[ProcessId]> = ours::ids(plan.many);
    let few: Arc<[ProcessId]> = ids[..plan.few].into();
    for flavour in Flavour::BOTH {
        let [few, many] = interleave(plan.rounds, [&|| live(flavour, &few), &|| live(flavour, &ids)]);
        let (few, many) = (Lives { count: plan.few, rounds: few }, Lives { count: plan.many, rounds: many });
        if plan.wants(Group::Start) {
            print_starts(table, flavour, &many);
        }
        if plan.wants(Group::Close) {
            print_closes(table, flavour, &few, 40.0);
            print_closes(table, flavour, &many, 450.0);
            print_growth(table, flavour, &few, &many);
        }
    }
}

/// Lives of one variant, start and close, and nothing beside.
pub(crate) fn live_here(load: Load) {
    let Load { variant, flavour, count } = load;
    let ours = |callers, spec| flavour.run(ours::life(ours::ids(count), callers, spec));
    let _ = match variant {
        Variant::Idle => flavour.run(baseline::life_of_idle(count)),
        Variant::Job => flavour.run(baseline::life_of_jobs(count)),
        Variant::Task => flavour.run(baseline::life_of_tasks(count)),
        Variant::Kept => flavour.run(baseline::life_of_objects(count)),
        Variant::Pair => flavour.run(baseline::life_of_pairs(count)),
        Variant::Ours => ours(1, function),
        Variant::AtOnce => ours(CALLERS, function),
        Variant::Object => ours(CALLERS, object),
        Variant::Actor => ours(CALLERS, actor),
    };
}

fn live(flavour: Flavour, ids: &Arc<[ProcessId]>) -> Round {
    let ours = |callers, spec| flavour.run(ours::life(Arc::clone(ids), callers, spec));
    Round {
        idle: flavour.run(baseline::life_of_idle(ids.len())),
        jobs: flavour.run(baseline::life_of_jobs(ids.len())),
        kept: flavour.run(baseline::life_of_objects(ids.len())),
        pairs: flavour.run(baseline::life_of_pairs(ids.len())),
        tasks: flavour.run(baseline::life_of_tasks(ids.len())),
        functions: ours(1, function),
        functions_at_once: ours(CALLERS, function),
        objects: ours(CALLERS, object),
        actors: ours(CALLERS, actor),
    }
}

// --- starts -----------------------------------------------------------------------------------------------

fn print_starts(table: &Table, flavour: Flavour, lives: &Lives) {
    let idle = lives.starts_per_second(|round| &round.idle);
    let jobs = lives.starts_per_second(|round| &round.jobs);
    let tasks = lives.starts_per_second(|round| &round.tasks);
    let modes = [
        ("by one caller", lives.starts_per_second(|round| &round.functions)),
        ("by 64 callers", lives.starts_per_second(|round| &round.functions_at_once)),
    ];
    for (mode, own) in modes {
        let figure = format!("start {} functions {mode}", show(lives.count));
        let row = |name, baseline| {
            Row::new(&*figure, flavour.name(), &own, Unit::PerSecond).beside(name, baseline, Unit::PerSecond)
        };
        table.print(row("bare", &idle).ratio_goal(Goal::AtLeast(0.7), &own.over(&idle)));
        table.print(row("same job", &jobs).compared(&own.over(&jobs), Unit::Times));
        table.print(row("bare tasks", &tasks).compared(&own.over(&tasks), Unit::Times));
    }
}

// --- closes -----------------------------------------------------------------------------------------------

fn print_closes(table: &Table, flavour: Flavour, lives: &Lives, aim: f64) {
    let idle = lives.closes_in_milliseconds(|round| &round.idle);
    let jobs = lives.closes_in_milliseconds(|round| &round.jobs);
    let tasks = lives.closes_in_milliseconds(|round| &round.tasks);
    let functions = lives.closes_in_milliseconds(|round| &round.functions);
    let objects = lives.closes_in_milliseconds(|round| &round.objects);
    let actors = lives.closes_in_milliseconds(|round| &round.actors);
    let row = |kind, own: &Samples, name, baseline: &Samples| {
        Row::new(format!("close {} {kind}", show(lives.count)), flavour.name(), own, Unit::Milliseconds)
            .beside(name, baseline, Unit::Milliseconds)
            .compared(&own.over(baseline), Unit::Times)
    };
    let beside_jobs = row("functions", &functions, "same job", &jobs);
    table.print(beside_jobs.goal(Goal::AtMost(1.2), &functions.over(&jobs), Unit::Times));
    let beside_idle = row("functions", &functions, "idle actors", &idle);
    table.print(beside_idle.aim(Goal::AtMost(aim), &functions, Unit::Milliseconds));
    table.print(row("functions", &functions, "bare tasks", &tasks));
    let kept = lives.closes_in_milliseconds(|round| &round.kept);
    let beside_kept = row("objects", &objects, "same job", &kept);
    table.print(beside_kept.goal(Goal::AtMost(1.2), &objects.over(&kept), Unit::Times));
    table.print(row("objects", &objects, "idle actors", &idle));
    let pairs = lives.closes_in_milliseconds(|round| &round.pairs);
    let beside_pairs = row("actors", &actors, "pairs of actors", &pairs);
    table.print(beside_pairs.goal(Goal::AtMost(1.2), &actors.over(&pairs), Unit::Times));
    table.print(row("actors", &actors, "idle actors", &idle));
}

/// How much dearer one process of many is than one of few: 1 is linear.
fn print_growth(table: &Table, flavour: Flavour, few: &Lives, many: &Lives) {
    let sizes = number(many.count) / number(few.count);
    let growth = |of: fn(&Round) -> &Life| {
        let times = many.closes_in_milliseconds(of).over(&few.closes_in_milliseconds(of));
        times.map(|ratio| ratio / sizes)
    };
    let own = growth(|round| &round.functions);
    let baseline = growth(|round| &round.jobs);
    let figure = format!("close: one of {} to one of {}", show(many.count), show(few.count));
    table.print(
        Row::new(figure, flavour.name(), &own, Unit::Times)
            .beside("same job", &baseline, Unit::Times)
            .compared(&own.over(&baseline), Unit::Times)
            .goal(Goal::AtMost(1.5), &own, Unit::Times),
    );
}
