//! Kills in every window of a run's life (T45).

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tenure::model::{EventKind, InstanceId, OccurrenceOutcome, RunId, TaskId, Timestamp};
use tenure::store::{PageRequest, RunFilter};

use crate::dice::{self, Dice, say};
use crate::ground::Ground;
use crate::stage::{Heard, Stage, Word};
use crate::wire::{At, Point, Setup, Told, Window};

/// Every place at which a worker dies, of those that look into their transactions.
const PLACES: &[(Window, &[Point])] = {
    use Point::{After, Before, BeforeAttempt, BeforeEvent};
    &[
        (Window::Enqueue, &[Before, BeforeEvent, After]),
        (Window::Claim, &[Before, BeforeEvent, After]),
        (Window::Start, &[Before, BeforeAttempt, BeforeEvent, After]),
        (Window::Progress, &[Before, BeforeEvent, After]),
        (Window::Renew, &[Before, BeforeEvent, After]),
        (Window::Outcome, &[Before, BeforeAttempt, BeforeEvent, After]),
        (Window::Recover, &[Before, BeforeAttempt, BeforeEvent, After]),
        (Window::Fire, &[Before, BeforeEvent, After]),
        (Window::Disk, &[Before]),
    ]
};

/// The same in front of a server, where it dies in the middle of the conversation.
const POINTS_BEFORE_A_SERVER: &[Point] = &[Point::Before, Point::Within, Point::After];
/// How many pieces of a conversation pass at most before nothing does any more: a transaction takes two round trips, or
/// ten.
fn pieces(ground: Ground) -> usize {
    ground.pace(4, 20)
}

const TASKS: &[&str] = &[
    r#"{"task_id":"many","agent_id":"agent","query":"plain","overlap_policy":"allow_parallel",
        "retry_policy":{"max_retries":2,"initial_delay_seconds":0.05,"max_interruptions":100}}"#,
    r#"{"task_id":"next","agent_id":"other","query":"fail once","overlap_policy":"queue_next",
        "retry_policy":{"max_retries":2,"initial_delay_seconds":0.05,"max_interruptions":100}}"#,
    r#"{"task_id":"skip","agent_id":"agent","query":"plain","overlap_policy":"skip_if_running",
        "retry_policy":{"max_retries":1,"initial_delay_seconds":0.05,"max_interruptions":100}}"#,
    r#"{"task_id":"fail","agent_id":"other","query":"fail","overlap_policy":"allow_parallel",
        "retry_policy":{"max_retries":2,"initial_delay_seconds":0.02,"max_interruptions":100}}"#,
];

/// Its schedule fires through all of this.
const TICK: &str = r#"{"task_id":"tick","agent_id":"agent","query":"plain","overlap_policy":"allow_parallel",
    "schedule":{"type":"interval","seconds":0.2},"retry_policy":{"max_interruptions":100}}"#;

/// How many requests wait for an answer of a worker at once, and how many runs wait to begin.
const ASKED: usize = 3;
const WAITING: usize = 10;
/// Where a worker leaves an attempt in progress to the others.
const VICTIM: (Window, Point) = (Window::Outcome, Point::Before);
/// How much longer than they have to wait others may take over, on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

pub(crate) async fn task_t45_a_kill_in_any_window_loses_nothing_and_completes_nothing_twice(ground: Ground) {
    let seed = dice::seed("TENURE_KILLS_SEED", &format!("kills on {}", ground.name));
    let mut storm = Storm::begin(ground, Dice(seed)).await;
    storm.rage().await;
    let Storm { mut stage, accepted, hits, deaths, .. } = storm;
    stage.policy(|_, _| Word::Go);
    let last = stage.setup.clone();
    stage.proxies = None;
    let last = stage.worker(&Setup { windows: Vec::new(), ..last }).await;
    stage.delete("tick").await;
    stage.until_all_ended().await;
    stage.shut_down(last).await;
    for place in places(ground) {
        assert!(hits.contains_key(&place), "seed {seed}: no kill has hit {place:?}");
    }
    say(&format!("kills on {}: {} in {} places", ground.name, hits.values().sum::<usize>(), hits.len()));
    let accepted: Vec<RunId> = accepted.into_values().collect();
    stage.judge(&accepted).await;
    in_time(&stage, &deaths, seed).await;
    fired_once(&stage, seed).await;
}

/// Every place once.
fn places(ground: Ground) -> Vec<(Window, Point)> {
    let each = |(window, points): &(Window, &'static [Point])| {
        let points = if ground.server.is_some() { POINTS_BEFORE_A_SERVER } else { points };
        let window = *window;
        points.iter().map(move |point| (window, *point))
    };
    // A server waits for its disk by itself.
    PLACES
        .iter()
        .filter(|(window, _)| ground.server.is_none() || *window != Window::Disk)
        .flat_map(each)
        .collect()
}

/// Two workers at a time, each of which dies at a place of its own.
struct Storm {
    stage: Stage,
    dice: Dice,
    /// Where workers are still to die.
    places: VecDeque<(Window, Point)>,
    /// Where each worker dies, and how often it passes there before that.
    fates: HashMap<usize, ((Window, Point), usize)>,
    /// Who is asked to be silent after so many pieces, and dies of that.
    freezing: HashMap<usize, usize>,
    most_pieces: usize,
    hits: HashMap<(Window, Point), usize>,
    /// When each instance died.
    deaths: HashMap<InstanceId, Timestamp>,
    /// The run of each key whose request was answered.
    accepted: HashMap<String, RunId>,
    /// Runs that have begun, or were never to.
    begun: HashSet<RunId>,
    /// The keys and tasks that were asked for and not answered, by worker and number.
    asked: HashMap<(usize, u64), (String, &'static str)>,
    /// Those whose worker died before it answered: asked again.
    unanswered: Vec<(String, &'static str)>,
    keys: usize,
}

impl Storm {
    async fn begin(ground: Ground, mut dice: Dice) -> Self {
        let mut stage = Stage::set(ground, &[TASKS, &[TICK]].concat()).await;
        stage.setup.agents = vec!["agent".to_owned(), "other".to_owned()];
        stage.allow(Duration::from_secs(ground.pace(180, 300)));
        stage.setup.windows = PLACES.iter().map(|(window, _)| *window).collect();
        stage.policy(|_, _| Word::Hold);
        stage.proxies = ground.server.map(|_| dice.next());
        let mut places = places(ground);
        for n in (1..places.len()).rev() {
            places.swap(n, dice.below(n + 1));
        }
        Self {
            stage,
            dice,
            places: places.into(),
            fates: HashMap::new(),
            freezing: HashMap::new(),
            most_pieces: pieces(ground),
            hits: HashMap::new(),
            deaths: HashMap::new(),
            accepted: HashMap::new(),
            begun: HashSet::new(),
            asked: HashMap::new(),
            unanswered: Vec::new(),
            keys: 0,
        }
    }

    async fn rage(&mut self) {
        self.begin_some();
        while !self.fates.is_empty() {
            match self.stage.next("every worker has died").await {
                Heard::Told(n, Told::At { at, .. }) => self.at(n, &at),
                Heard::Told(n, Told::Answered { id, answer }) => self.answered(n, id, answer),
                // Its call may have come through all the same, and its fate be met again.
                Heard::Frozen(n) if self.freezing.contains_key(&n) => self.die(n),
                Heard::Sink(had) => drop(self.begun.insert(had.effect.run_id)),
                _ => {}
            }
            self.ask();
        }
    }

    /// Keeps two workers alive while there are places left to die at.
    fn begin_some(&mut self) {
        while self.fates.len() < 2 {
            let recovers = self.recovers();
            let next = self.places.iter().position(|(window, _)| !recovers || *window != Window::Recover);
            let Some(place) = next.and_then(|next| self.places.remove(next)) else { return };
            if place.0 == Window::Recover {
                // There has to be something to recover.
                self.begin_one(VICTIM, 0);
                self.begin_one(place, 0);
            } else {
                let passes = self.dice.below(3);
                self.begin_one(place, passes);
            }
        }
    }

    fn begin_one(&mut self, place: (Window, Point), passes: usize) {
        let setup = self.stage.setup.clone();
        let n = self.stage.start(&setup);
        self.fates.insert(n, (place, passes));
    }

    /// Whether somebody is to die while it recovers what others left.
    fn recovers(&self) -> bool {
        self.fates.values().any(|((window, _), _)| *window == Window::Recover)
    }

    fn at(&mut self, n: usize, at: &At) {
        let Some((place, passes)) = self.fates.get_mut(&n) else { return };
        // A claim that was granted nothing leaves nothing to be lost.
        let counts = at.many > 0 || at.point == Point::Before;
        let place = *place;
        let within = place.1 == Point::Within;
        let dies_at = if within { (place.0, Point::Before) } else { place };
        if dies_at == (at.window, at.point) && counts {
            if *passes > 0 {
                *passes -= 1;
            } else if within {
                self.freeze(n);
            } else {
                return self.die(n);
            }
        }
        if within && place.0 == at.window && at.point == Point::After && self.freezing.contains_key(&n) {
            // It was over before that: the next time sooner.
            self.stage.proxy(n).fair();
        }
        // Who is to die while it recovers is let first. Whoever is in a transaction goes on: nobody else writes.
        let recovers = (at.window, at.point) == (Window::Recover, Point::Before);
        let waits = recovers && place.0 != Window::Recover && self.recovers();
        if !waits {
            self.stage
                .release(|worker, held| worker == n && (held.window, held.point) == (at.window, at.point));
        }
    }

    /// Its next call is the last, and does not get to its end.
    fn freeze(&mut self, n: usize) {
        let most = self.freezing.get(&n).copied().unwrap_or(self.most_pieces);
        let after = self.dice.below(most);
        self.freezing.insert(n, after.max(1));
        self.stage.freeze(n, after);
    }

    fn die(&mut self, n: usize) {
        let Some((place, _)) = self.fates.remove(&n) else { return };
        self.freezing.remove(&n);
        let instance = self.stage.instance(n);
        self.stage.kill(n);
        *self.hits.entry(place).or_default() += 1;
        self.deaths.extend(instance.map(|instance| (instance, Stage::now())));
        let lost: Vec<_> = self.asked.keys().filter(|(worker, _)| *worker == n).copied().collect();
        self.unanswered.extend(lost.iter().filter_map(|key| self.asked.remove(key)));
        if !self.recovers() {
            self.stage.release(|_, at| at.window == Window::Recover);
        }
        self.begin_some();
    }

    /// Keeps the workers busy: as much is asked for as begins.
    fn ask(&mut self) {
        let waiting = self.accepted.values().filter(|run_id| !self.begun.contains(*run_id)).count();
        if waiting >= WAITING {
            return;
        }
        let live: Vec<usize> =
            self.fates.keys().filter(|n| self.stage.instance(**n).is_some()).copied().collect();
        for n in live {
            if self.asked.keys().filter(|(worker, _)| *worker == n).count() < ASKED {
                let (key, task) = self.unanswered.pop().unwrap_or_else(|| {
                    self.keys += 1;
                    (
                        format!("key-{}", self.keys),
                        ["many", "many", "next", "skip", "fail"][self.dice.below(5)],
                    )
                });
                let id = self.stage.want(n, task, None, Some(&key));
                self.asked.insert((n, id), (key, task));
            }
        }
    }

    fn answered(&mut self, n: usize, id: u64, answer: Result<(RunId, tenure::model::RunStatus), String>) {
        let Some((key, task)) = self.asked.remove(&(n, id)) else { return };
        match answer {
            Ok((run_id, status)) => {
                if status.is_terminal() {
                    self.begun.insert(run_id.clone());
                }
                let before = self.accepted.insert(key, run_id.clone());
                assert!(before.is_none_or(|before| before == run_id), "a key has two runs");
            }
            // Others were first too often: asked again.
            Err(_) => self.unanswered.push((key, task)),
        }
    }
}

/// Who died was taken over from after the lease and its grace, within a sweep.
async fn in_time(stage: &Stage, deaths: &HashMap<InstanceId, Timestamp>, seed: u64) {
    let Setup { lease_ms, grace_ms, heartbeat_ms, .. } = stage.setup;
    let (soonest, bound) = (
        Duration::from_millis(lease_ms + grace_ms),
        Duration::from_millis(lease_ms + grace_ms + heartbeat_ms),
    );
    let mut taken_over = 0;
    let mut claimed: HashMap<RunId, Timestamp> = HashMap::new();
    for event in stage.all_events().await {
        let Some(run_id) = event.run_id else { continue };
        match event.event {
            EventKind::Claimed => drop(claimed.insert(run_id, event.timestamp)),
            EventKind::Recovered => {
                let since = event.timestamp.since(claimed[&run_id]);
                assert!(
                    since >= soonest,
                    "seed {seed}: run {run_id} was taken over {since:?} after it was claimed"
                );
                let Some(died) = event.instance.and_then(|instance| deaths.get(&instance)) else { continue };
                let after = event.timestamp.since(*died);
                assert!(after <= bound + SLACK, "seed {seed}: run {run_id} was taken over after {after:?}");
                taken_over += 1;
            }
            _ => {}
        }
    }
    assert!(taken_over > 0, "seed {seed}: nobody was taken over from");
}

/// Each occurrence has one record, and a run of its own or none (T30).
async fn fired_once(stage: &Stage, seed: u64) {
    let task_id = TaskId::new("tick").expect("an id");
    let page = PageRequest { limit: 1000, cursor: None };
    let occurrences = stage.store.occurrences(&task_id, page).await.expect("occurrences").items;
    let due: HashSet<_> = occurrences.iter().map(|occurrence| occurrence.due_at).collect();
    assert_eq!(due.len(), occurrences.len(), "seed {seed}: an occurrence has two records");
    let ran = occurrences.iter().filter_map(|occurrence| match &occurrence.outcome {
        OccurrenceOutcome::Ran { run_id } => Some((run_id.clone(), occurrence.due_at)),
        _ => None,
    });
    let ran: HashMap<_, _> = ran.collect();
    let runs = stage.runs(RunFilter { task_id: Some(task_id), ..RunFilter::default() }).await;
    let made: HashMap<_, _> =
        runs.into_iter().filter_map(|run| Some((run.run_id.clone(), run.spec.occurrence?))).collect();
    assert_eq!(made, ran, "seed {seed}: occurrences and their runs differ");
    assert!(!made.is_empty(), "seed {seed}: no schedule has fired");
}
