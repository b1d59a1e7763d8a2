//! A bad line between hosts and their server: requests and answers are lost, cut in the middle, late, or never come.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tenure::model::{AgentId, RunId};
use tenure::store::{Answer, PageRequest, RunFilter, Store};
use tokio::time::{Instant, timeout};

use crate::dice;
use crate::ground::{Ground, Manner};
use crate::proxy::{Proxy, Trick};
use crate::stage::{Heard, Stage};
use crate::wire::{Setup, Told, What};

const TASK: &str = r#"{"task_id":"task","agent_id":"agent","query":"plain","overlap_policy":"allow_parallel",
    "retry_policy":{"max_interruptions":100}}"#;

/// How many requests of a host wait for an answer at once.
const ASKED: usize = 4;

/// How bad a line is, and for how long.
struct Measure {
    runs: usize,
    /// One piece of so many is lost, cut, late, or the last.
    one_in: usize,
    patience_ms: u64,
}

impl Measure {
    /// Where a transaction is a conversation of more than twenty pieces, as many of them meet a trick as elsewhere.
    fn of(ground: Ground) -> Self {
        let usual = Self { runs: 120, one_in: 60, patience_ms: 700 };
        ground.pace(usual, Self { runs: 60, one_in: 250, patience_ms: 1_500 })
    }
}

pub(crate) async fn own_f1_a_line_that_loses_cuts_and_delays_leaves_every_run_done_as_often_as_it_was_granted(
    ground: Ground,
) {
    let seed = dice::seed("TENURE_LINE_SEED", &format!("a bad line to {}", ground.name));
    let measure = Measure::of(ground);
    let mut stage = Stage::set(ground, &[TASK]).await;
    stage.proxies = Some(seed);
    let setup = Setup {
        lease_ms: 4_000,
        heartbeat_ms: 500,
        grace_ms: 3_000,
        patience_ms: measure.patience_ms,
        ..stage.setup.clone()
    };
    let workers = [stage.worker(&setup).await, stage.worker(&setup).await];
    workers.iter().for_each(|worker| stage.proxy(*worker).foul(measure.one_in));
    let accepted = ask_for_all(&mut stage, workers, measure.runs).await;
    stage.until_all_ended().await;
    let done = tricks(&stage, workers);
    workers.iter().for_each(|worker| stage.proxy(*worker).fair());
    for worker in workers {
        while stage.probe(worker).await.0.is_some() {}
        stage.shut_down(worker).await;
    }
    dice::say(&format!("a bad line to {}: {} runs, {done:?}", ground.name, accepted.len()));
    assert_eq!(
        stage.runs(RunFilter::default()).await.len(),
        accepted.len(),
        "seed {seed}: a key has two runs"
    );
    as_often_as_granted(&stage, &accepted, seed).await;
    stage.judge(&accepted).await;
}

fn tricks(stage: &Stage, workers: [usize; 2]) -> BTreeMap<Trick, usize> {
    let mut all = BTreeMap::new();
    for (trick, count) in workers.into_iter().flat_map(|worker| stage.proxy(worker).done()) {
        *all.entry(trick).or_default() += count;
    }
    all
}

/// Wants runs until there are enough and every trick was done; each until it is accepted, by a key.
async fn ask_for_all(stage: &mut Stage, workers: [usize; 2], runs: usize) -> Vec<RunId> {
    let (mut asked, mut again) = (HashMap::new(), Vec::new());
    let (mut keys, mut accepted) = (0, Vec::new());
    loop {
        let enough = keys >= runs && tricks(stage, workers).len() == Trick::ALL.len();
        for worker in workers {
            while asked.values().filter(|(of, _)| *of == worker).count() < ASKED {
                let key = again.pop().or_else(|| {
                    keys += usize::from(!enough);
                    (!enough).then(|| format!("key-{keys}"))
                });
                let Some(key) = key else { break };
                asked.insert(stage.want(worker, "task", None, Some(&key)), (worker, key));
            }
        }
        if asked.is_empty() {
            return accepted;
        }
        if let Heard::Told(_, Told::Answered { id, answer }) = stage.next("every request is accepted").await
            && let Some((_, key)) = asked.remove(&id)
        {
            match answer {
                Ok((run_id, _)) => accepted.push(run_id),
                // It may have been made: it is asked for again by its key.
                Err(_) => again.push(key),
            }
        }
    }
}

/// By the word of the sink: a run that nobody was taken for lost of began once and ended once.
async fn as_often_as_granted(stage: &Stage, runs: &[RunId], seed: u64) {
    let log = stage.sink.log();
    for run_id in runs {
        let run = stage.run(run_id).await;
        let count = |what| {
            let of_run = log.iter().filter(|had| had.effect.run_id == *run_id && had.effect.what == what);
            u32::try_from(of_run.filter(|had| had.taken).count()).expect("few")
        };
        let (begins, ends) = (count(What::Begin), count(What::End));
        let most = 1 + run.interruptions + run.failures;
        assert!((1..=most).contains(&begins), "seed {seed}: run {run_id} began {begins} times: {run:?}");
        assert!((1..=most).contains(&ends), "seed {seed}: run {run_id} ended {ends} times: {run:?}");
    }
}

/// How long callers wait, and how long the store does: they have gone before it gives up. And longer than an answer
/// takes.
const WAIT: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(600)];
const WAIT_FOR_A_SLOW_ONE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// Much longer than it takes.
const MOST: Duration = Duration::from_secs(30);

/// A kind of call, by what it is called with.
type Call = fn(&dyn Store) -> Answer<'_, ()>;

/// Each goes its own way to the server: a write, a read of a record, a listing.
const CALLS: [Call; 3] = [
    |store| store.put_agent(&AgentId::new("agent").expect("an id"), Some("something".into())),
    |store| Box::pin(async { store.now().await.map(drop) }),
    |store| Box::pin(async { store.tasks(PageRequest::default()).await.map(drop) }),
];

/// A peer that is gone without a word, as when a machine lost its power: nobody is told that the connection has ended.
pub(crate) async fn field_g10_a_line_that_falls_silent_is_given_up_and_another_one_used(ground: Ground) {
    let (kept, _folder) = ground.fresh();
    let proxy = Proxy::before(kept.port().expect("a server"), 1);
    let [caller_waits, store_waits] = ground.pace(WAIT, WAIT_FOR_A_SLOW_ONE);
    let manner = Manner { poll: store_waits, patience: store_waits, look: None };
    let store: Arc<dyn Store> = kept.by_port(proxy.port).open(manner).await.expect("a store");
    for call in CALLS {
        call(&*store).await.expect("an answer");
    }
    for round in 0..2 {
        proxy.freeze(0, || {});
        for call in CALLS {
            let answer = timeout(caller_waits, call(&*store)).await;
            assert!(!matches!(answer, Ok(Ok(()))), "round {round}: an answer came by");
        }
        proxy.fair();
        let began = Instant::now();
        for (n, call) in CALLS.into_iter().enumerate() {
            while !matches!(timeout(caller_waits, call(&*store)).await, Ok(Ok(()))) {
                assert!(began.elapsed() < MOST, "round {round}: call {n} never found another connection");
            }
        }
    }
}
