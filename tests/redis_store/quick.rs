//! What is usual is written without taking records apart: that comes to the same as the way that all else goes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure::clock::ManualClock;
use tenure::model::{
    CancelMode, Payload, Progress, Run, RunError, RunId, RunResult, RunStatus, Subject, Task, Timestamp,
};
use tenure::rules::{self, Cancel, CancelRequest, Moment, Outcome};
use tenure::store::{ClaimRequest, Decision, RedisOptions, RedisStore, RenewRequest, RunWrite, Store};

use super::room::runs;
use super::{Named, block_on, redis, redis_server};

pub(super) const TESTS: &[Named] = &[("own_i3_what_is_written_quickly_is_what_is_written_slowly", same)];

const RUNS: usize = 120;
const LEASE: Duration = Duration::from_secs(30);

/// A store whose decisions go one of the ways, and its task.
struct Way {
    store: RedisStore,
    task: Task,
    slow: bool,
}

impl Way {
    async fn open(clock: &Arc<ManualClock>, slow: bool) -> Self {
        let url = redis_server::redis().clone().unwrap();
        let clock = Some(Arc::clone(clock) as _);
        let options = RedisOptions { namespace: redis::namespace(), clock, ..RedisOptions::new(url) };
        let store = RedisStore::open(options).await.unwrap();
        let retries = json!({ "max_retries": 2, "initial_delay_seconds": 1 });
        let fields = json!({ "overlap_policy": "allow_parallel", "retry_policy": retries });
        let task = runs::task(&store, fields).await;
        Self { store, task, slow }
    }

    /// A decision that besides forgets a run that there never was is not usual, and comes to nothing else.
    async fn write(&self, writes: &[RunWrite]) {
        let nobody = if self.slow { vec![RunId::new("nobody").unwrap()] } else { Vec::new() };
        let decision =
            |write: &RunWrite| Decision { forget: nobody.clone(), ..Decision::from(write.clone()) };
        let answers = self.store.commit(writes.iter().map(decision).collect()).await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }

    /// Grants these, in order.
    async fn grant(&self, granted: &[Run], request: &ClaimRequest, now: Timestamp) {
        let mut grants = Vec::new();
        for granted in granted {
            let run = self.store.run(&granted.run_id).await.unwrap().unwrap();
            let moment = Moment { now, stamp: request.nonce };
            grants.push(rules::claim(&run, request.instance, request.nonce, request.lease, moment).unwrap());
        }
        self.write(&grants).await;
    }

    async fn run(&self, n: usize) -> Run {
        self.store.run(&name(n)).await.unwrap().unwrap()
    }

    /// Everything that is kept, as text.
    async fn all(&self) -> Vec<String> {
        let mut all = vec![format!("{:?}", self.store.counts(None).await.unwrap())];
        all.push(format!("{:?}", self.store.agenda().await.unwrap()));
        all.push(format!("{:?}", self.store.events(Subject::All, 0, 10_000).await.unwrap()));
        for n in 0..RUNS {
            all.push(format!("{:?}", self.run(n).await));
            all.push(format!("{:?}", self.store.attempts(&name(n)).await.unwrap()));
            all.push(format!("{:?}", self.store.events(Subject::Run(name(n)), 0, 100).await.unwrap()));
        }
        assert_eq!(self.store.check(false).await.unwrap(), Vec::<String>::new());
        all
    }
}

fn name(n: usize) -> RunId {
    RunId::new(format!("{n:03}")).unwrap()
}

/// What is written of the runs in turn: some end with a result, some without, some go on, some try again, some are
/// wanted cancelled before, some are given back.
fn next(n: usize, run: &Run, moment: Moment) -> Option<RunWrite> {
    let token = run.token()?;
    let failed =
        |class| rules::finish(run, token, Outcome::Failed(RunError::new(class, "no")), 0, moment).ok();
    match (run.status, n % 7) {
        (RunStatus::Claimed, 5) => rules::release(run, token, "busy", Duration::ZERO, moment).ok(),
        (RunStatus::Claimed, _) => rules::start(run, token, moment).ok(),
        (RunStatus::Running, 0) => {
            let result = RunResult::Inline(Payload::text("done"));
            rules::finish(run, token, Outcome::Completed(result), 0, moment).ok()
        }
        (RunStatus::Running, 1) => failed("other"),
        (RunStatus::Running, 2) => failed("exception"),
        (RunStatus::Running, 3) => {
            let progress = Progress { percent: Some(50), message: "half".into(), at: moment.now };
            rules::progress(run, token, progress, 0, moment).ok()
        }
        (RunStatus::Running, 4) if run.cancel.is_none() => {
            let request = CancelRequest {
                mode: CancelMode::Cooperative,
                reason: "enough".into(),
                requested_by: "somebody".into(),
                force_after: None,
            };
            match rules::cancel(run, &request, moment) {
                Cancel::Write(write) => Some(write),
                Cancel::AlreadyRequested | Cancel::AlreadyTerminal => None,
            }
        }
        (RunStatus::Running, _) => rules::finish(run, token, Outcome::Cancelled(None), 0, moment).ok(),
        _ => None,
    }
}

fn same() {
    block_on(async {
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_700_000_000_000)));
        let ways = [Way::open(&clock, false).await, Way::open(&clock, true).await];
        let now = ways[0].store.now().await.unwrap();
        let queued: Vec<Decision> =
            (0..RUNS).map(|n| runs::queued(&ways[0].task, name(n), now, Duration::ZERO)).collect();
        for way in &ways {
            assert!(way.store.commit(queued.clone()).await.unwrap().iter().all(Result::is_ok));
        }
        for _ in 0..4 {
            clock.advance(Duration::from_secs(20));
            let now = ways[0].store.now().await.unwrap();
            let request = ClaimRequest { lease: LEASE, ..runs::claim(RUNS) };
            let granted = ways[0].store.claim(request.clone()).await.unwrap();
            assert!(!granted.is_empty());
            ways[1].grant(&granted, &request, now).await;
            for _ in 0..2 {
                let mut writes = Vec::new();
                let mut leases = Vec::new();
                for n in 0..RUNS {
                    let run = ways[0].run(n).await;
                    let moment = Moment { now, stamp: runs::draw() };
                    writes.extend(next(n, &run, moment));
                    // Every other lease is renewed between what is decided on and what is written.
                    leases.extend(run.token().filter(|_| n % 2 == 0).map(|token| (run.run_id, token)));
                }
                clock.advance(Duration::from_secs(1));
                for way in &ways {
                    let instance = request.instance;
                    let renew = RenewRequest { instance, leases: leases.clone(), lease: LEASE };
                    way.store.renew(renew).await.unwrap();
                    way.write(&writes).await;
                }
                let [quick, slow] = [ways[0].all().await, ways[1].all().await];
                for (quick, slow) in quick.iter().zip(&slow) {
                    assert_eq!(quick, slow);
                }
            }
        }
    });
}
