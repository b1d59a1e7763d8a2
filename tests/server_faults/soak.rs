//! Three hosts on one store, killed and paused at random while runs are wanted of them.
//!
//! What happens is drawn from a seed: which host, where in its work, whether it is killed or paused. A host that is
//! paused wakes when its runs are somebody else's, so that it writes late. `TENURE_SOAK=full` is the long form.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use rustix::process::Signal;
use tenure::model::{RunId, RunStatus};
use tenure::store::RunFilter;
use tokio::time::Instant;

use crate::dice::{self, Dice};
use crate::ground::Ground;
use crate::stage::{Heard, Stage, Word};
use crate::wire::{At, Order, Point, Setup, Told, Window};

const TASKS: &[&str] = &[
    r#"{"task_id":"many","agent_id":"agent","query":"linger","overlap_policy":"allow_parallel",
        "retry_policy":{"max_retries":8,"initial_delay_seconds":0.05,"max_interruptions":100}}"#,
    r#"{"task_id":"next","agent_id":"agent","query":"fail once","overlap_policy":"queue_next",
        "retry_policy":{"max_retries":8,"initial_delay_seconds":0.02,"max_interruptions":100}}"#,
    r#"{"task_id":"skip","agent_id":"agent","query":"plain","overlap_policy":"skip_if_running",
        "retry_policy":{"max_retries":8,"initial_delay_seconds":0.05,"max_interruptions":100}}"#,
    r#"{"task_id":"fail","agent_id":"agent","query":"fail","overlap_policy":"allow_parallel",
        "retry_policy":{"max_retries":2,"initial_delay_seconds":0.02,"max_interruptions":100}}"#,
];

const HOSTS: usize = 3;
/// Of which task a run is wanted: most of the first, few of that of which one run waits for the other.
fn task_of(number: usize) -> &'static str {
    match number {
        n if n % 50 == 10 => "next",
        n if n % 6 == 3 => "skip",
        n if n % 12 == 11 => "fail",
        _ => "many",
    }
}

/// How many requests of a host wait for an answer at once.
const ASKED: usize = 6;
/// Where hosts are hit.
const WINDOWS: [Window; 7] = [
    Window::Enqueue,
    Window::Claim,
    Window::Start,
    Window::Progress,
    Window::Renew,
    Window::Outcome,
    Window::Recover,
];

pub(crate) fn is_full() -> bool {
    std::env::var("TENURE_SOAK").is_ok_and(|how| how == "full")
}

/// How much of it there is.
struct Measure {
    runs: usize,
    length: Duration,
    /// How often a host is hit, on average.
    hit_every: Duration,
    /// How long a host is waited for where it is to be hit; then it is hit wherever it is.
    waited_for: Duration,
}

impl Measure {
    fn of(ground: Ground, is_full: bool) -> Self {
        let (seconds, millis) = (Duration::from_secs, Duration::from_millis);
        let waited_for = ground.pace(millis(1_500), seconds(4));
        if is_full {
            let runs = ground.amount(5_000, 600);
            Self { runs, length: seconds(120), hit_every: millis(1_800), waited_for }
        } else {
            let runs = ground.amount(400, 100);
            Self { runs, length: seconds(10), hit_every: millis(800), waited_for }
        }
    }
}

/// What happens to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    Kill,
    Pause,
}

/// A host that is to be hit, or is paused.
struct Fate {
    blow: Blow,
    at: (Window, Point),
    /// When it is hit wherever it is, or woken though nobody took its runs.
    until: Instant,
    /// The number it waits under, if it was hit where it was to be.
    waits: Option<u64>,
    paused: Option<Paused>,
}

/// A host that is paused, and what it held, each with its fence: it is woken when another was granted one of them.
struct Paused {
    held: Vec<(RunId, u64)>,
    is_overtaken: bool,
    look_at: Instant,
}

/// How often it is looked who holds what.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// What was done and seen.
#[derive(Default)]
struct Count {
    kills: usize,
    pauses: usize,
    /// Kills where they were to be.
    hits: BTreeMap<String, usize>,
    /// Late writes that the store refused.
    fenced: usize,
}

struct Soak {
    stage: Stage,
    dice: Dice,
    measure: Measure,
    setup: Setup,
    began: Instant,
    next_blow: Instant,
    fates: HashMap<usize, Fate>,
    /// How many were chosen to be hit.
    chosen: usize,
    ready: HashSet<usize>,
    asked: HashMap<u64, (usize, usize)>,
    unanswered: Vec<usize>,
    /// How many runs were wanted, each by its number.
    wanted: usize,
    accepted: BTreeMap<usize, RunId>,
    count: Count,
}

pub(crate) async fn task_t45_hosts_killed_and_paused_at_random_lose_nothing_and_complete_nothing_twice(
    ground: Ground,
) {
    let seed = dice::seed("TENURE_SOAK_SEED", &format!("a soak of {}", ground.name));
    let mut soak = Soak::begin(ground, seed).await;
    while !soak.is_over() {
        soak.step().await;
    }
    soak.end(ground, seed).await;
}

impl Soak {
    async fn begin(ground: Ground, seed: u64) -> Self {
        let measure = Measure::of(ground, is_full());
        let mut stage = Stage::set(ground, TASKS).await;
        // Nothing in it waits for that: a busy machine may take longer to bring all of them to their ends.
        stage.allow(measure.length + Duration::from_secs(480));
        let setup = Setup {
            lease_ms: 1_500,
            heartbeat_ms: 300,
            grace_ms: 1_000,
            patience_ms: 3_000,
            windows: WINDOWS.to_vec(),
            waits_when_told: true,
            ..stage.setup.clone()
        };
        stage.policy(|_, _| Word::Hold);
        for _ in 0..HOSTS {
            stage.start(&setup);
        }
        let began = Instant::now();
        Self {
            stage,
            dice: Dice(seed),
            next_blow: began + measure.hit_every,
            measure,
            setup,
            began,
            fates: HashMap::new(),
            chosen: 0,
            ready: HashSet::new(),
            asked: HashMap::new(),
            unanswered: Vec::new(),
            wanted: 0,
            accepted: BTreeMap::new(),
            count: Count::default(),
        }
    }

    /// Whether everything was wanted and accepted, for as long as it is to last, and nobody is paused.
    fn is_over(&self) -> bool {
        self.accepted.len() == self.measure.runs
            && self.began.elapsed() >= self.measure.length
            && self.fates.is_empty()
    }

    async fn step(&mut self) {
        self.ask();
        self.look().await;
        self.strike().await;
        let ticks = Instant::now() + Duration::from_millis(20);
        if let Some(Heard::Told(n, told)) = self.stage.next_until(ticks, "every run is accepted").await {
            self.told(n, told).await;
        }
    }

    async fn told(&mut self, n: usize, told: Told) {
        match told {
            Told::Ready { .. } => drop(self.ready.insert(n)),
            Told::At { id, at } => self.at(n, id, &at).await,
            Told::Refused { refused, .. } => {
                self.count.fenced += refused.iter().filter(|why| why.starts_with("Fenced")).count();
            }
            Told::Answered { id, answer } => {
                if let Some((_, number)) = self.asked.remove(&id) {
                    match answer {
                        Ok((run_id, _)) => self.accept(number, run_id),
                        Err(_) => self.unanswered.push(number),
                    }
                }
            }
            _ => {}
        }
    }

    fn accept(&mut self, number: usize, run_id: RunId) {
        let before = self.accepted.insert(number, run_id.clone());
        assert!(before.is_none_or(|before| before == run_id), "request {number} made two runs");
    }

    /// What a host holds by the word of the store, each with its fence.
    async fn held_by(&self, n: usize) -> Vec<(RunId, u64)> {
        let statuses = vec![RunStatus::Claimed, RunStatus::Running];
        let runs = self.stage.runs(RunFilter { statuses, ..RunFilter::default() }).await;
        let owner = self.stage.instance(n);
        let held = runs.into_iter().filter(|run| run.lease.is_some_and(|lease| Some(lease.owner) == owner));
        held.map(|run| (run.run_id, run.fence)).collect()
    }

    /// Whether somebody else was granted what those hold who are paused.
    async fn look(&mut self) {
        let now = Instant::now();
        for paused in self.fates.values_mut().filter_map(|fate| fate.paused.as_mut()) {
            if paused.look_at > now {
                continue;
            }
            paused.look_at = now + LOOKS_EVERY;
            for (run_id, fence) in &paused.held {
                paused.is_overtaken |= self.stage.run(run_id).await.fence > *fence;
            }
        }
    }

    // --- what is wanted ---------------------------------------------------------------------------------

    /// As much is wanted as is due by now, spread over the length of it.
    fn ask(&mut self) {
        let passed = self.began.elapsed().as_secs_f64() / self.measure.length.as_secs_f64();
        let due = (self.measure.runs as f64 * passed.min(1.0)).ceil() as usize;
        let hosts: Vec<usize> = self.ready.iter().copied().filter(|n| !self.is_paused(*n)).collect();
        for n in hosts {
            while self.asked.values().filter(|(of, _)| *of == n).count() < ASKED {
                let number = match self.unanswered.pop() {
                    Some(number) => number,
                    None if self.wanted < due.min(self.measure.runs) => {
                        self.wanted += 1;
                        self.wanted
                    }
                    None => break,
                };
                let id = self.stage.want(n, task_of(number), None, Some(&format!("request-{number}")));
                self.asked.insert(id, (n, number));
            }
        }
    }

    // --- blows ------------------------------------------------------------------------------------------

    fn is_paused(&self, n: usize) -> bool {
        self.fates.get(&n).is_some_and(|fate| fate.paused.is_some())
    }

    /// Chooses who is hit next, hits who was not found where it was to be, and wakes who was paused for long enough.
    async fn strike(&mut self) {
        let now = Instant::now();
        if now >= self.next_blow && self.began.elapsed() < self.measure.length {
            self.next_blow =
                now + self.measure.hit_every.mul_f64(0.5 + self.dice.below(1000) as f64 / 1000.0);
            self.choose();
        }
        let due: Vec<usize> =
            self.fates.iter().filter(|(_, fate)| fate.is_due(now)).map(|(n, _)| *n).collect();
        for n in due {
            if self.is_paused(n) {
                self.wake(n);
            } else {
                self.stage.say(n, &Order::Wait { at: None });
                self.hit(n, None).await;
            }
        }
    }

    /// At most one is paused or to be hit at a time less than there are, so that somebody takes over.
    fn choose(&mut self) {
        let mut free: Vec<usize> =
            self.ready.iter().copied().filter(|n| !self.fates.contains_key(n)).collect();
        free.sort_unstable();
        if self.fates.len() + 1 >= HOSTS || free.is_empty() {
            return;
        }
        let n = free[self.dice.below(free.len())];
        self.chosen += 1;
        let point = [Point::Before, Point::After][self.dice.below(2)];
        let (blow, at) = match self.chosen {
            // However short it is: what the first one stores comes too late.
            1 => (Blow::Pause, (Window::Outcome, Point::Before)),
            2 => (Blow::Kill, (Window::Outcome, point)),
            // Where what it did may come too late.
            _ if self.dice.below(5) < 2 => {
                (Blow::Pause, ([Window::Outcome, Window::Start, Window::Progress][self.dice.below(3)], point))
            }
            _ => (Blow::Kill, (WINDOWS[self.dice.below(WINDOWS.len())], point)),
        };
        let until = Instant::now() + self.measure.waited_for;
        self.stage.say(n, &Order::Wait { at: Some(at) });
        self.fates.insert(n, Fate { blow, at, until, waits: None, paused: None });
    }

    async fn at(&mut self, n: usize, id: u64, at: &At) {
        let meets =
            self.fates.get(&n).is_some_and(|fate| fate.paused.is_none() && fate.at == (at.window, at.point));
        if meets {
            self.hit(n, Some(id)).await;
        } else {
            // Told to wait, and found too late.
            self.stage.say(n, &Order::Go { id });
        }
    }

    async fn hit(&mut self, n: usize, waits: Option<u64>) {
        let Some(fate) = self.fates.get(&n) else { return };
        if fate.blow == Blow::Kill {
            if waits.is_some() {
                *self.count.hits.entry(format!("{:?} {:?}", fate.at.0, fate.at.1)).or_default() += 1;
            }
            return self.kill(n);
        }
        self.stage.signal(n, Signal::STOP);
        self.count.pauses += 1;
        let paused = Paused { held: self.held_by(n).await, is_overtaken: false, look_at: Instant::now() };
        let gone = Duration::from_millis(self.setup.lease_ms + self.setup.grace_ms);
        if let Some(fate) = self.fates.get_mut(&n) {
            (fate.waits, fate.until, fate.paused) = (waits, Instant::now() + gone * 4, Some(paused));
        }
    }

    fn kill(&mut self, n: usize) {
        self.fates.remove(&n);
        self.ready.remove(&n);
        self.stage.kill(n);
        self.count.kills += 1;
        let lost: Vec<u64> = self.asked.iter().filter(|(_, (of, _))| *of == n).map(|(id, _)| *id).collect();
        self.unanswered.extend(lost.iter().filter_map(|id| self.asked.remove(id)).map(|(_, number)| number));
        self.stage.start(&self.setup);
    }

    fn wake(&mut self, n: usize) {
        let Some(fate) = self.fates.remove(&n) else { return };
        self.stage.signal(n, Signal::CONT);
        if let Some(id) = fate.waits {
            self.stage.say(n, &Order::Go { id });
        }
    }

    // --- the end ----------------------------------------------------------------------------------------

    async fn end(self, ground: Ground, seed: u64) {
        let Self { mut stage, accepted, count, began, .. } = self;
        stage.policy(|_, _| Word::Go);
        stage.release(|_, _| true);
        while !stage.workers().iter().all(|n| stage.instance(*n).is_some()) {
            stage.next("every host is ready").await;
        }
        stage.until_all_ended().await;
        for n in stage.workers() {
            stage.shut_down(n).await;
        }
        let refused = stage.sink.log().iter().filter(|had| !had.taken).count();
        let Count { kills, pauses, hits, fenced } = count;
        dice::say(&format!(
            "a soak of {}: {} runs, {kills} kills, {} of them in windows {hits:?}, {pauses} pauses, late writes \
             refused: {refused} by the sink, {fenced} by the store; {:.0?}",
            ground.name,
            accepted.len(),
            hits.values().sum::<usize>(),
            began.elapsed(),
        ));
        assert!(!hits.is_empty(), "seed {seed}: no kill hit a window");
        assert!(refused + fenced > 0, "seed {seed}: no late write was refused");
        assert!(fenced > 0, "seed {seed}: the store refused no late write");
        let accepted: Vec<RunId> = accepted.into_values().collect();
        stage.judge(&accepted).await;
    }
}

impl Fate {
    /// Whether it is to be hit wherever it is; or, of one that is paused, to be woken.
    fn is_due(&self, now: Instant) -> bool {
        now >= self.until || self.paused.as_ref().is_some_and(|paused| paused.is_overtaken)
    }
}
