//! Several stores that live through the same: decisions are made on what the first one answers, and all are
//! given them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tenure::model::{
    AgentId, ApprovalAnswer, CancelMode, InstanceId, Payload, Progress, Run, RunError, RunId, RunResult,
    RunStatus, SchedulePlace, ScheduleState, Task, TaskId, Timestamp, Token, Trigger,
};
use tenure::rules::{self, CancelRequest, Moment, Outcome, Overlap, Wanted};
use tenure::store::conformance::{Fixture, spec};
use tenure::store::{
    ClaimRequest, Decision, LaneExpect, PageRequest, PruneRequest, Refusal, RenewRequest, RunFilter,
    RunWrite, ScheduleWrite, TaskChange, TaskWrite,
};

use super::command::{Command, End};
use super::invariants::Seen;

pub(crate) const TASKS: usize = 5;
const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) stores: Vec<Fixture>,
    pub(crate) seen: Seen,
    drawn: u64,
    last_claim: Option<ClaimRequest>,
    /// Every grant that was ever answered, as the run stood when its holder last saw it.
    grants: Vec<Run>,
}

impl World {
    pub(crate) async fn new(stores: Vec<Fixture>) -> Self {
        let mut world =
            Self { stores, seen: Seen::default(), drawn: 0, last_claim: None, grants: Vec::new() };
        for n in 0..TASKS {
            world.create(n).await;
        }
        world
    }

    pub(crate) async fn perform(&mut self, command: Command) {
        match command {
            Command::Enqueue { task, delay_ms, scheduled } => self.enqueue(task, delay_ms, scheduled).await,
            Command::Want { task, scheduled } => self.want(task, scheduled).await,
            Command::Claim { instance, limit } => self.claim(instance, limit).await,
            Command::ClaimAgain => self.claim_again().await,
            Command::Start(pick) => self.start(pick).await,
            Command::Finish(pick, end) => self.finish(pick, end).await,
            Command::FinishLate(pick) => self.finish_late(pick).await,
            Command::Release(pick) => self.release(pick).await,
            Command::Progress(pick) => self.progress(pick).await,
            Command::Renew(pick, ms) => self.renew(pick, ms).await,
            Command::Cancel(pick, force) => self.cancel(pick, force).await,
            Command::Sweep => self.sweep().await,
            Command::Advance(ms) => self.advance(Duration::from_millis(ms)),
            Command::Pause(task) => self.set_enabled(task, false).await,
            Command::Resume(task) => self.set_enabled(task, true).await,
            Command::Delete(task) => self.delete(task).await,
            Command::Create(task) => self.create(task).await,
            Command::Approve(pick) => self.approve(pick).await,
            Command::Reinstate(pick) => self.reinstate(pick).await,
            Command::Prune { keep, limit } => self.prune(keep, limit).await,
        }
    }

    /// Everything that waits or runs is brought to its end: nothing is stuck (T4).
    pub(crate) async fn comes_to_an_end(&mut self) {
        for n in 0..TASKS {
            self.set_enabled(n, true).await;
        }
        let mut rounds = 0;
        loop {
            self.advance(Duration::from_secs(600));
            self.sweep().await;
            for asks in self.runs(RunStatus::AwaitingApproval).await {
                self.cancel_run(&asks, true).await;
            }
            self.claim(1, 100).await;
            while self.picked(0, RunStatus::Claimed).await.is_some() {
                self.start(0).await;
            }
            while self.picked(0, RunStatus::Running).await.is_some() {
                self.finish(0, End::Completed).await;
            }
            self.holds().await;
            let live = self.all().await.into_iter().filter(|run| !run.status.is_terminal());
            let live: Vec<_> = live.map(|run| (run.run_id, run.status, run.place)).collect();
            if live.is_empty() {
                return;
            }
            rounds += 1;
            assert!(rounds < 1000, "these never end: {live:?}");
        }
    }

    pub(crate) async fn now(&self) -> Timestamp {
        self.stores[0].store.now().await.unwrap()
    }

    /// All runs of the first store, the oldest first.
    pub(crate) async fn all(&self) -> Vec<Run> {
        all(&self.stores[0]).await
    }

    async fn runs(&self, status: RunStatus) -> Vec<Run> {
        let filter = RunFilter { statuses: vec![status], ..RunFilter::default() };
        let page = PageRequest { limit: 100_000, cursor: None };
        self.stores[0].store.runs(filter, page).await.unwrap().items
    }

    async fn picked(&self, pick: usize, status: RunStatus) -> Option<Run> {
        let mut runs = self.runs(status).await;
        (!runs.is_empty()).then(|| runs.remove(pick % runs.len()))
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    async fn moment(&mut self) -> Moment {
        Moment { now: self.now().await, stamp: self.draw() }
    }

    fn advance(&self, by: Duration) {
        for store in &self.stores {
            store.clock.advance(by);
        }
    }

    /// Commits a decision to every store, on the lanes as each shows them; all answer alike.
    async fn commit(&self, decision: Decision, lanes: &[&str]) -> Result<(), Refusal> {
        let mut answers = Vec::new();
        for fixture in &self.stores {
            let mut decision = decision.clone();
            for name in lanes {
                let version = fixture.store.lane(name).await.unwrap().version;
                decision.lanes.push(LaneExpect { name: (*name).into(), version });
            }
            answers.push(fixture.store.commit(vec![decision]).await.unwrap().remove(0));
        }
        let kinds: Vec<String> = answers.iter().map(kind).collect();
        assert!(kinds.iter().all(|other| *other == kinds[0]), "the stores disagree: {answers:?}");
        answers.remove(0)
    }

    async fn write(&self, write: RunWrite) -> Result<(), Refusal> {
        self.commit(write.into(), &[]).await
    }

    /// A write that was decided on what stands.
    async fn made(&self, write: RunWrite) {
        self.write(write).await.expect("what it was decided on stands");
    }

    async fn task(&self, n: usize) -> Option<(Task, ScheduleState)> {
        self.stores[0].store.task(&name(n)).await.unwrap()
    }

    async fn create(&mut self, n: usize) {
        let now = self.now().await;
        let task =
            Task { spec: spec(fields(n)), created_at: now, updated_at: now, revision: 1, last_event: 0 };
        let change = TaskChange::Put(Box::new(task));
        let write = TaskWrite { task_id: name(n), expect: None, change, events: Vec::new() };
        let state =
            ScheduleState { task_id: name(n), version: 1, last_due: None, place: SchedulePlace::Idle };
        let schedule = Some(ScheduleWrite { expect: None, state });
        let exists = self.task(n).await.is_some();
        let answer = self.commit(Decision { task: Some(write), schedule, ..Decision::default() }, &[]).await;
        assert_eq!(answer.is_ok(), !exists);
    }

    async fn set_enabled(&mut self, n: usize, enabled: bool) {
        let Some((mut task, _)) = self.task(n).await else { return };
        let expect = Some(task.revision);
        task.revision += 1;
        task.spec.enabled = enabled;
        let change = TaskChange::Put(Box::new(task));
        let write = TaskWrite { task_id: name(n), expect, change, events: Vec::new() };
        self.commit(Decision { task: Some(write), ..Decision::default() }, &[]).await.unwrap();
    }

    async fn delete(&mut self, n: usize) {
        let Some((task, _)) = self.task(n).await else { return };
        let (task_id, expect) = (name(n), Some(task.revision));
        let write = TaskWrite { task_id, expect, change: TaskChange::Delete, events: Vec::new() };
        self.commit(Decision { task: Some(write), ..Decision::default() }, &[]).await.unwrap();
    }

    async fn wanted(&mut self, scheduled: bool) -> Wanted {
        let now = self.now().await;
        let run_id = RunId::new(format!("r{}", self.draw())).unwrap();
        let trigger = if scheduled { Trigger::Schedule } else { Trigger::Manual };
        Wanted { trigger, ..Wanted::now(run_id, now) }
    }

    async fn enqueue(&mut self, n: usize, delay_ms: u64, scheduled: bool) {
        let Some((task, _)) = self.task(n).await else { return };
        let mut wanted = self.wanted(scheduled).await;
        wanted.not_before = wanted.not_before.plus(Duration::from_millis(delay_ms));
        let write = rules::enqueue(&task, wanted, self.moment().await);
        self.made(write).await;
    }

    async fn want(&mut self, n: usize, scheduled: bool) {
        let Some((task, _)) = self.task(n).await else { return };
        let wanted = self.wanted(scheduled).await;
        let lane_name = format!("task:{}", name(n));
        let lane = self.stores[0].store.lane(&lane_name).await.unwrap();
        let mut runs = Vec::new();
        match rules::overlap(task.spec.overlap_policy, wanted.trigger, &lane) {
            Overlap::Coalesce { .. } => {}
            Overlap::Queue => runs.push(rules::enqueue(&task, wanted, self.moment().await)),
            Overlap::Skip { blocked_by } => {
                runs.push(rules::skip(&task, wanted, blocked_by, self.moment().await));
            }
            Overlap::Replace { cancel } => {
                for id in cancel {
                    let older = self.stores[0].store.run(&id).await.unwrap().expect("a run of a lane exists");
                    let moment = self.moment().await;
                    if let rules::Cancel::Write(write) = rules::cancel(&older, &asks(false), moment) {
                        runs.push(write);
                    }
                }
                runs.push(rules::enqueue(&task, wanted, self.moment().await));
            }
        }
        let decision = Decision { runs, ..Decision::default() };
        self.commit(decision, &[&lane_name]).await.expect("nothing moved meanwhile");
    }

    async fn claim(&mut self, instance: u128, limit: usize) {
        let agents = [AgentId::new("a").unwrap(), AgentId::new("b").unwrap()];
        // One of the instances has one agent only.
        let agents = if instance == 0 { agents[..1].into() } else { agents.into() };
        let nonce = self.draw();
        let instance = InstanceId::from_bits(instance);
        let request = ClaimRequest { instance, nonce, agents, limit, lease: LEASE, repeat: false };
        let granted = self.ask(request.clone()).await;
        assert!(granted.len() <= limit);
        self.last_claim = Some(request);
        self.grants.extend(granted);
    }

    async fn claim_again(&mut self) {
        let Some(mut request) = self.last_claim.clone() else { return };
        request.repeat = true;
        for run in self.ask(request).await {
            let known = self.grants.iter().any(|grant| grant.token() == run.token());
            if !known {
                self.grants.push(run);
            }
        }
    }

    async fn ask(&self, request: ClaimRequest) -> Vec<Run> {
        let mut answers = Vec::new();
        for fixture in &self.stores {
            answers.push(fixture.store.claim(request.clone()).await.unwrap());
        }
        let plain = |runs: &Vec<Run>| runs.iter().map(plain).collect::<Vec<_>>();
        for other in &answers[1..] {
            assert_eq!(plain(other), plain(&answers[0]), "the stores grant differently");
        }
        answers.remove(0)
    }

    async fn start(&mut self, pick: usize) {
        let Some(run) = self.picked(pick, RunStatus::Claimed).await else { return };
        let write = rules::start(&run, run.token().unwrap(), self.moment().await).unwrap();
        self.grants.push(write.run.clone());
        self.made(write).await;
    }

    async fn finish(&mut self, pick: usize, end: End) {
        let Some(run) = self.picked(pick, RunStatus::Running).await else { return };
        let draw = self.draw();
        let write =
            rules::finish(&run, run.token().unwrap(), outcome(end), draw, self.moment().await).unwrap();
        self.made(write.clone()).await;
        // The answer was lost: the same again is once.
        self.made(write).await;
    }

    /// A grant that was superseded has no effect (I3).
    async fn finish_late(&mut self, pick: usize) {
        if self.grants.is_empty() {
            return;
        }
        let grant = self.grants[pick % self.grants.len()].clone();
        let token = grant.token().unwrap();
        let moment = self.moment().await;
        let Ok(write) = rules::finish(&grant, token, outcome(End::Completed), 0, moment) else { return };
        let standing = self.stores[0].store.run(&grant.run_id).await.unwrap();
        let holds = standing.as_ref().is_some_and(|run| run.token() == Some(token));
        let same = standing.as_ref().is_some_and(|run| run.version == grant.version);
        let answer = self.write(write).await;
        assert_eq!(answer.is_ok(), holds && same, "{answer:?} of {grant:?} on {standing:?}");
        if !holds && standing.is_some() {
            assert!(matches!(answer, Err(Refusal::Fenced { .. })), "{answer:?}");
        }
    }

    async fn release(&mut self, pick: usize) {
        let Some(run) = self.picked(pick, RunStatus::Claimed).await else { return };
        let token = run.token().unwrap();
        let wait = Duration::from_millis(500);
        let write = rules::release(&run, token, "busy", wait, self.moment().await).unwrap();
        self.made(write).await;
    }

    async fn progress(&mut self, pick: usize) {
        let Some(run) = self.picked(pick, RunStatus::Running).await else { return };
        let moment = self.moment().await;
        let progress = Progress { percent: Some(50), message: "half".into(), at: moment.now };
        self.made(rules::progress(&run, run.token().unwrap(), progress, 0, moment).unwrap()).await;
    }

    async fn renew(&mut self, pick: usize, ms: u64) {
        if self.grants.is_empty() {
            return;
        }
        let grant = &self.grants[pick % self.grants.len()];
        let leases: Vec<(RunId, Token)> = vec![(grant.run_id.clone(), grant.token().unwrap())];
        let (instance, lease) = (InstanceId::from_bits(1), Duration::from_millis(ms));
        let mut answers = Vec::new();
        for fixture in &self.stores {
            let request = RenewRequest { instance, leases: leases.clone(), lease };
            answers.push(fixture.store.renew(request).await.unwrap());
        }
        assert!(answers.iter().all(|other| *other == answers[0]), "{answers:?}");
    }

    async fn cancel(&mut self, pick: usize, force: bool) {
        let runs = self.all().await;
        if !runs.is_empty() {
            self.cancel_run(&runs[pick % runs.len()].clone(), force).await;
        }
    }

    async fn cancel_run(&mut self, run: &Run, force: bool) {
        if let rules::Cancel::Write(write) = rules::cancel(run, &asks(force), self.moment().await) {
            self.made(write).await;
        }
    }

    async fn sweep(&mut self) {
        let mut due = Vec::new();
        for fixture in &self.stores {
            due.push(fixture.store.due_runs(None, 1000).await.unwrap());
        }
        for other in &due[1..] {
            let plain = |runs: &Vec<Run>| runs.iter().map(plain).collect::<Vec<_>>();
            assert_eq!(plain(other), plain(&due[0]), "other runs are to be looked at");
        }
        for run in due.remove(0) {
            let moment = self.moment().await;
            if let Some(write) = rules::sweep(&run, GRACE, moment) {
                let lapsed = run.lease.is_none_or(|lease| lease.expires_at.plus(GRACE) <= moment.now);
                let lost = write.run.lost_token.is_some() && run.lost_token.is_none();
                assert!(lapsed || !lost, "lost within its grace (I6)");
                self.made(write).await;
            }
        }
    }

    async fn approve(&mut self, pick: usize) {
        let Some(run) = self.picked(pick, RunStatus::AwaitingApproval).await else { return };
        let answer = ApprovalAnswer { approved: true, answer: json!(null) };
        let write = rules::resume(&run, answer, self.moment().await).unwrap();
        self.made(write).await;
    }

    /// Who lost a run asks for it back; it is had only if there is room in its lanes.
    async fn reinstate(&mut self, pick: usize) {
        let Some(run) = self.picked(pick, RunStatus::Queued).await else { return };
        let Some(lost) = run.lost_token else { return };
        let mut lanes = Vec::new();
        for lane in &run.spec.lanes {
            let view = self.stores[0].store.lane(&lane.name).await.unwrap();
            let taken = view.active.iter().filter(|run| run.status.takes_room()).count();
            if taken >= lane.limit as usize {
                return;
            }
            lanes.push(&*lane.name);
        }
        let nonce = self.draw();
        let owner = InstanceId::from_bits(1);
        let moment = self.moment().await;
        let Ok(write) = rules::reinstate(&run, lost, owner, nonce, LEASE, moment) else { return };
        self.grants.push(write.run.clone());
        self.commit(write.into(), &lanes).await.expect("nothing moved meanwhile");
    }

    async fn prune(&mut self, keep: u64, limit: usize) {
        let before = self.now().await.minus(Duration::from_secs(30));
        let mut answers = Vec::new();
        for fixture in &self.stores {
            answers.push(fixture.store.prune(PruneRequest { before, keep, limit }).await.unwrap());
        }
        assert!(answers.iter().all(|other| *other == answers[0]), "{answers:?}");
    }
}

pub(crate) async fn all(fixture: &Fixture) -> Vec<Run> {
    let page = PageRequest { limit: 100_000, cursor: None };
    let mut runs = fixture.store.runs(RunFilter::default(), page).await.unwrap().items;
    runs.reverse();
    runs
}

/// What two stores have to agree on: not on where a run waits, which each may find out in its own time, nor on
/// the stamp of a claim.
pub(crate) fn plain(run: &Run) -> Run {
    Run { place: tenure::model::Place::Nowhere, stamp: 0, ..run.clone() }
}

fn kind(answer: &Result<(), Refusal>) -> String {
    let text = format!("{answer:?}");
    text.split([' ', '{']).next().unwrap_or_default().to_owned()
}

fn name(n: usize) -> TaskId {
    TaskId::new(format!("t{n}")).unwrap()
}

fn asks(force: bool) -> CancelRequest {
    let mode = if force { CancelMode::Force } else { CancelMode::Cooperative };
    let force_after = Some(Duration::from_secs(15));
    CancelRequest { mode, reason: "enough".into(), requested_by: "a person".into(), force_after }
}

fn outcome(end: End) -> Outcome {
    let error = |class: &str| RunError::new(class, "it broke");
    match end {
        End::Completed => Outcome::Completed(RunResult::Inline(Payload::text("fine"))),
        End::Failed => Outcome::Failed(error("exception")),
        End::FailedForGood => Outcome::Failed(error("bad request")),
        End::TimedOut => Outcome::TimedOut(error("timeout")),
        End::PastDeadline => Outcome::PastDeadline(error("timeout")),
        End::Cancelled => Outcome::Cancelled(None),
        End::Interrupted => Outcome::Interrupted(error("shutdown")),
        End::Asks => Outcome::AwaitingApproval { question: "go on?".into(), data: json!({}) },
    }
}

/// Tasks that share lanes in several ways.
fn fields(n: usize) -> serde_json::Value {
    let policy = json!({ "max_retries": 2, "initial_delay_seconds": 1, "max_interruptions": 3 });
    let session = json!({ "type": "fixed", "session_id": "s" });
    let of: BTreeMap<&str, serde_json::Value> = match n {
        0 => [("overlap_policy", json!("skip_if_running")), ("priority", json!(1))].into(),
        1 => [
            ("overlap_policy", json!("queue_next")),
            ("concurrency_key", json!("k")),
            ("concurrency_limit", json!(2)),
        ]
        .into(),
        2 => [
            ("overlap_policy", json!("allow_parallel")),
            ("concurrency_key", json!("k")),
            ("concurrency_limit", json!(2)),
            ("agent_id", json!("b")),
        ]
        .into(),
        3 => [
            ("overlap_policy", json!("queue_next")),
            ("session_policy", session),
            ("deadline_seconds", json!(60)),
        ]
        .into(),
        _ => [
            ("overlap_policy", json!("cancel_previous")),
            ("session_policy", session),
            ("concurrency_key", json!("k")),
            ("concurrency_limit", json!(2)),
        ]
        .into(),
    };
    let mut fields = json!({ "task_id": format!("t{n}"), "agent_id": "a", "retry_policy": policy });
    for (key, value) in of {
        fields[key] = value;
    }
    fields
}
