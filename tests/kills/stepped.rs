//! Hosts whose wall clocks step by a day in the middle of what they do. On a server nobody goes by them. A file has no
//! other clock than that of its machine: there nobody is taken for gone by a step.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tenure::model::{EventKind, RunId, RunStatus, TaskId, Timestamp};
use tenure::ownership::{Expected, Ownership, OwnershipSettings, TaskState};
use tenure::store::{PageRequest, RunFilter};

use crate::ground::Ground;
use crate::stage::{Stage, Word};
use crate::wire::{Point, Setup, What, Window, owned_session};

const DAY: i64 = 86_400;

/// The deadline and the delay of a retry are by the clock of the store.
const TASK: &str = r#"{"task_id":"task","agent_id":"agent","query":"hold","overlap_policy":"allow_parallel",
    "deadline_seconds":3600,"retry_policy":{"max_retries":2,"initial_delay_seconds":0.2,"jitter":0}}"#;
const SCHEDULED: &[&str] = &[
    r#"{"task_id":"tick","agent_id":"agent","query":"plain","overlap_policy":"allow_parallel",
        "schedule":{"type":"interval","seconds":0.2}}"#,
    r#"{"task_id":"later","agent_id":"agent","query":"plain","schedule":{"type":"interval","seconds":3600}}"#,
];

/// How often each worker has renewed all that it holds, and what it was refused.
type Renewals = Rc<RefCell<(HashMap<usize, usize>, Vec<String>)>>;

/// Two hosts that hold runs and own tasks.
struct Held {
    stage: Stage,
    setup: Setup,
    workers: [usize; 2],
    runs: Vec<RunId>,
    owned: Vec<RunId>,
    began: Timestamp,
}

impl Held {
    async fn set(ground: Ground) -> Self {
        // Of schedules a file cannot say that nothing has changed: its clock has.
        let scheduled = if ground.server.is_some() { SCHEDULED } else { &[] };
        let began = Stage::now().minus(Duration::from_secs(1));
        let mut stage = Stage::set(ground, &[&[TASK], scheduled].concat()).await;
        let (lease_ms, heartbeat_ms, grace_ms) = ground.pace((1_500, 300, 3_000), (4_000, 800, 8_000));
        let windows = vec![Window::Renew];
        let setup =
            Setup { lease_ms, heartbeat_ms, grace_ms, concurrency: 3, windows, ..stage.setup.clone() };
        let workers = [stage.worker(&setup).await, stage.worker(&setup).await];
        let mut runs = Vec::new();
        for n in 0..4 {
            runs.push(stage.wanted(workers[n % 2], "task", None).await);
        }
        let mut owned = Vec::new();
        for (n, worker) in workers.into_iter().enumerate() {
            stage.own(worker, n as u64 + 1, Expected::NotExists, "hold");
            owned.push(RunId::new(format!("owned.test.workers.all.{}.1", n + 1)).expect("an id"));
        }
        for run_id in runs.iter().chain(&owned) {
            stage.effect(run_id, What::Hold).await;
        }
        Self { stage, setup, workers, runs, owned, began }
    }

    fn all(&self) -> impl Iterator<Item = &RunId> {
        self.runs.iter().chain(&self.owned)
    }

    /// The clocks step while one host is about to renew, so that the other one looks at its leases before it does.
    async fn step(&mut self, ground: Ground, by: i64) {
        let [one, other] = self.workers;
        let renews = |at: &crate::wire::At| at.window == Window::Renew && at.point == Point::Before;
        self.stage.policy(move |n, at| if n == one && renews(at) { Word::Hold } else { Word::Go });
        while self.stage.held_in(Window::Renew).is_empty() {
            self.stage.next("one is about to renew").await;
        }
        // A file is on one machine. Hosts of a server are each on their own.
        let steps = [(one, by), (other, if ground.server.is_some() { -by } else { by })];
        steps.iter().for_each(|(n, by)| self.stage.step(*n, *by));
        for (n, by) in steps {
            self.stage.probe(n).await;
            let shows = self.stage.clock(n).expect("its clock");
            let off = (shows.ms() - Stage::now().ms()) / 1_000 - by;
            assert!(off.abs() < 60, "the clock that was to step by {by} s shows {shows}");
        }
        // A third of the grace: both have looked for lapsed leases meanwhile.
        let looked = Stage::now().plus(Duration::from_millis(self.setup.grace_ms / 3));
        self.stage.until_past(looked).await;
        self.renewed().await;
    }

    /// Both go on to renew, for longer than what they hold would be theirs if they did not.
    async fn renewed(&mut self) {
        let renewals = Renewals::default();
        let heard = Rc::clone(&renewals);
        self.stage.policy(move |n, at| {
            if at.window == Window::Renew && at.point == Point::After {
                let mut heard = heard.borrow_mut();
                *heard.0.entry(n).or_default() += usize::from(at.many > 0);
                // What has just ended may be renewed once more.
                let lost = at.refused.iter().filter(|why| !why.contains("status: Completed"));
                heard.1.extend(lost.cloned());
            }
            Word::Go
        });
        self.stage.release(|_, _| true);
        let Setup { lease_ms, heartbeat_ms, grace_ms, .. } = self.setup;
        let enough = usize::try_from((lease_ms + grace_ms) / heartbeat_ms).expect("a small number") + 2;
        while self.workers.iter().any(|n| renewals.borrow().0.get(n).is_none_or(|count| *count < enough)) {
            self.stage.next("leases have been renewed often enough").await;
            assert_eq!(renewals.borrow().1, [""; 0], "no lease is lost by a step");
        }
    }

    /// Everything is held as it was, and what begins now comes to its end.
    async fn stands(&mut self, ground: Ground, held: &[RunId]) {
        for run_id in held {
            let run = self.stage.run(run_id).await;
            assert_eq!((run.status, run.attempt, run.fence), (RunStatus::Running, 1, 1), "{run:?}");
            let lease = run.lease.expect("it is held");
            let lasts = Duration::from_millis(self.setup.lease_ms + 1_000);
            let by_server = lease.expires_at <= Stage::now().plus(lasts);
            assert!(by_server || ground.server.is_none(), "a lease by the clock of a host: {lease:?}");
        }
        let own = Ownership::new(Arc::clone(&self.stage.store), OwnershipSettings::default());
        for task in [1, 2] {
            let seen = own.inspect(&owned_session().task(task)).await.expect("an answer");
            assert!(matches!(seen.state, TaskState::Running { .. }), "{seen:?}");
        }
        for query in ["plain", "fail once"] {
            let run_id = self.stage.wanted(self.workers[0], "task", Some(query)).await;
            self.stage.effect(&run_id, What::End).await;
            self.runs.push(run_id);
        }
        if ground.server.is_some() {
            let before = self.ticks().await.len();
            while self.ticks().await.len() < before + 3 {
                self.stage.next("the schedule has fired three times").await;
            }
        }
    }

    async fn ticks(&self) -> Vec<tenure::model::Run> {
        let task_id = Some(TaskId::new("tick").expect("an id"));
        self.stage.runs(RunFilter { task_id, ..RunFilter::default() }).await
    }

    /// Nobody has lost anything, nothing was done twice, and what was to happen in an hour did not.
    async fn judge(mut self, ground: Ground, held: &[RunId]) {
        for run_id in held {
            self.stage.sink.let_go(run_id, 1);
        }
        if ground.server.is_some() {
            self.stage.delete("tick").await;
        }
        self.stage.until_all_ended().await;
        for n in self.workers {
            self.stage.shut_down(n).await;
        }
        for run_id in held {
            let story = self.stage.story(run_id).await;
            let count = |kind| story.iter().filter(|event| **event == kind).count();
            assert_eq!((count(EventKind::Started), count(EventKind::Completed)), (1, 1), "{story:?}");
            assert_eq!(count(EventKind::Lost) + count(EventKind::Recovered), 0, "{story:?}");
        }
        let own = Ownership::new(Arc::clone(&self.stage.store), OwnershipSettings::default());
        for task in [1, 2] {
            let seen = own.inspect(&owned_session().task(task)).await.expect("an answer");
            let TaskState::Terminal(finished) = &seen.state else { panic!("{seen:?}") };
            assert_eq!((finished.status, finished.recovered), (RunStatus::Completed, false), "{seen:?}");
        }
        if ground.server.is_some() {
            self.judge_times().await;
        }
        let of_owned = RunFilter { owned: Some(true), ..RunFilter::default() };
        assert_eq!(self.stage.runs(of_owned).await.len(), 2, "no task was done again");
        self.stage.judge(&self.runs).await;
    }

    /// On a server: every instant is one of its clock.
    async fn judge_times(&self) {
        let ended = Stage::now().plus(Duration::from_secs(1));
        let within = |at: Timestamp| self.began <= at && at <= ended;
        for event in self.stage.all_events().await {
            assert!(within(event.timestamp), "an event by the clock of a host: {event:?}");
            let later = event.task_id.as_str() == "later" && event.run_id.is_some();
            assert!(!later, "it was to be in an hour: {event:?}");
        }
        let page = PageRequest { limit: 1000, cursor: None };
        let tick = TaskId::new("tick").expect("an id");
        let occurrences = self.stage.store.occurrences(&tick, page).await.expect("occurrences").items;
        let missed = occurrences.iter().filter(|occurrence| !within(occurrence.due_at)).count();
        assert_eq!(missed, 0, "nobody thinks that a day was missed: {occurrences:?}");
    }
}

pub(crate) async fn own_l07_hosts_whose_clocks_step_by_a_day_and_back_by_two_keep_what_they_hold(
    ground: Ground,
) {
    let mut hosts = Held::set(ground).await;
    let held: Vec<RunId> = hosts.all().cloned().collect();
    for by in [DAY, -DAY] {
        hosts.step(ground, by).await;
        hosts.stands(ground, &held).await;
    }
    hosts.judge(ground, &held).await;
}
