//! Turns of a conversation on two replicas, each a host of its own on the store: what they promise whatever the store
//! is. The store's clock stands still, so that nobody is ever taken for gone; that is tested with the verbs.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::*;
use crate::agent::AgentError;
use crate::error::Error;
use crate::instance::RunContext;
use crate::model::Payload;
use crate::ownership::{
    Acknowledgement, ChildAgent, ChildDone, ChildSession, Continued, Forgotten, Host, Inspection, Release,
    Released, SessionTasks, SessionTasksSettings, StartTask, StartedTask, WhenStopped,
};
use crate::settings::Settings;
use crate::store::conformance::list;
use crate::tenure::Tenure;

list! {
    own_s2_2_a_later_turn_of_the_owner_shows_what_others_see,
    own_s3_1_a_task_outlives_its_turn,
    own_s3_2_a_turn_that_reaches_its_limit_leaves_the_task,
    own_s3_3_a_turn_that_fails_leaves_the_task,
    own_s3_4_what_a_stop_does_is_the_hosts_to_say,
    own_s4_1_any_replica_continues_a_stored_session,
    own_s4_2_a_session_that_is_an_object_is_continued_where_it_is,
    own_s5_3_what_a_shutdown_ends_is_never_lost,
    own_s6_8_a_second_release_waits_for_the_first,
    own_s7_1_a_wait_on_another_replica_ends_with_the_task,
    own_s7_2_a_wait_that_is_over_first_is_no_error,
    own_s7_3_a_wait_that_is_given_up_leaves_the_task,
    own_s7_4_a_wait_for_several_answers_with_what_is_over,
    own_l15_work_that_tells_nothing_for_too_long_has_failed,
    own_p14_an_outcome_is_announced_until_somebody_says_so,
    own_x10_a_cancel_right_after_the_grant_stops_the_work,
    own_v1_a_drain_with_enough_time_ends_and_publishes,
    own_v6_a_task_whose_agent_is_not_here_is_still_read,
    own_v7_a_service_that_is_built_anew_shares_what_the_old_one_runs,
}

const CHAT: &str = "chat";
/// Longer than anything takes: nothing waits for that.
const MOST: Duration = Duration::from_secs(300);
/// A turn that is over before its task.
const SHORT: Duration = Duration::from_millis(20);

/// A replica, and the doors that its agents wait at.
struct Replica {
    tenure: Tenure,
    tasks: SessionTasks,
    /// Each that works there needs one of these to end.
    ends: Arc<Semaphore>,
    /// Each that was told to stop needs one of these.
    stops: Arc<Semaphore>,
}

/// Waits until it may end, or stop.
struct Child {
    ends: Arc<Semaphore>,
    stops: Arc<Semaphore>,
    keeps: fn(u32) -> ChildSession,
}

impl ChildAgent for Child {
    async fn run(
        self: Arc<Self>,
        context: RunContext,
        session: Option<ChildSession>,
    ) -> Result<ChildDone, AgentError> {
        let asked = 1 + match session {
            None => 0,
            Some(ChildSession::Stored(payload)) => payload.preview().parse::<u32>()?,
            Some(ChildSession::Local(object)) => *object.downcast_ref::<u32>().expect("a number"),
        };
        tokio::select! {
            end = self.ends.acquire() => end?.forget(),
            () = context.cancelled() => {
                self.stops.acquire().await?.forget();
                return Err(AgentError::new("cancelled", "asked to stop"));
            }
        }
        let text = format!("{}, asked {asked}", context.query());
        Ok(ChildDone::from(text).with_session((self.keeps)(asked)))
    }
}

fn tasks(tenure: &Tenure, when_stopped: WhenStopped) -> SessionTasks {
    let settings =
        SessionTasksSettings { namespace: "test".into(), source: "assistant".into(), when_stopped };
    SessionTasks::new(Host::new(tenure, OwnershipSettings::default()), settings)
}

async fn open(store: &Arc<dyn crate::store::Store>, settings: Settings) -> Replica {
    let tenure = Tenure::open(Arc::clone(store), settings).await.unwrap();
    let (ends, stops) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(1000)));
    let child = |keeps| Child { ends: Arc::clone(&ends), stops: Arc::clone(&stops), keeps };
    let tasks = tasks(&tenure, WhenStopped::Keep)
        .agent("stored", child(|asked| ChildSession::Stored(Payload::text(asked.to_string()))))
        .agent("local", child(|asked| ChildSession::Local(Arc::new(asked))));
    Replica { tenure, tasks, ends, stops }
}

/// Two replicas, each with a connection of its own where the store has such.
async fn both(f: &Fixture) -> (Replica, Replica) {
    both_with(f, Settings::default()).await
}

async fn both_with(f: &Fixture, settings: Settings) -> (Replica, Replica) {
    let other = match &f.reopen {
        Some(reopen) => reopen().await,
        None => Arc::clone(&f.store),
    };
    (open(&f.store, settings.clone()).await, open(&other, settings).await)
}

fn ask(agent: &str) -> StartTask {
    StartTask {
        agent: agent.into(),
        input: "found".into(),
        description: "a test".into(),
        ..StartTask::default()
    }
}

impl Replica {
    async fn start(&self, agent: &str) -> u64 {
        match self.tasks.start(CHAT, ask(agent)).await.unwrap() {
            StartedTask::Started { task } => task,
            other => panic!("not started: {other:?}"),
        }
    }

    fn end_one(&self) {
        self.ends.add_permits(1);
    }

    async fn see(&self, task: u64) -> Inspection {
        self.tasks.result(CHAT, task).await.unwrap()
    }

    async fn shown(&self, task: u64) -> String {
        self.tasks.describe(&self.see(task).await)
    }

    /// Waits until a task is over, and answers how it is shown.
    async fn over(&self, task: u64) -> String {
        let waited = self.tasks.wait_for_first(CHAT, &[task], MOST).await.unwrap();
        let [over] = &waited.over[..] else { panic!("it is not over: {waited:?}") };
        self.tasks.describe(over)
    }
}

const ELSEWHERE: &str = "Task 1 [running on another instance] stored: a test.";
const FOUND: &str = "Task 1 [completed] stored: a test\nfound, asked 1";

async fn own_s2_2_a_later_turn_of_the_owner_shows_what_others_see(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    a.end_one();
    assert_eq!(b.over(task).await, FOUND);
    assert_eq!(a.see(task).await, b.see(task).await);
    assert_eq!(a.tasks.list(CHAT).await.unwrap(), b.tasks.list(CHAT).await.unwrap());
}

/// However the turn ended: the task goes on, and whoever serves the next one delivers it.
async fn goes_on(a: &Replica, b: &Replica, task: u64) {
    assert_eq!(b.shown(task).await, ELSEWHERE);
    a.end_one();
    assert_eq!(b.over(task).await, FOUND);
}

async fn own_s3_1_a_task_outlives_its_turn(f: Fixture) {
    let (a, b) = both(&f).await;
    // The turn waits for a person: it ends when the task was started.
    let task = a.start("stored").await;
    goes_on(&a, &b, task).await;
}

async fn own_s3_2_a_turn_that_reaches_its_limit_leaves_the_task(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    let waited = a.tasks.wait_for_first(CHAT, &[task], SHORT).await.unwrap();
    assert!(waited.over.is_empty() && waited.running.len() == 1, "{waited:?}");
    goes_on(&a, &b, task).await;
}

async fn own_s3_3_a_turn_that_fails_leaves_the_task(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    assert!(timeout(SHORT, a.over(task)).await.is_err(), "the turn was dropped");
    goes_on(&a, &b, task).await;
}

async fn own_s3_4_what_a_stop_does_is_the_hosts_to_say(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    assert_eq!(a.tasks.user_stopped(CHAT).await.unwrap(), 0);
    assert_eq!(b.shown(task).await, ELSEWHERE);
    let cancels = tasks(&a.tenure, WhenStopped::Cancel);
    assert_eq!(cancels.user_stopped(CHAT).await.unwrap(), 1);
    assert!(b.over(task).await.starts_with("Task 1 [cancelled] stored: a test"), "and not lost");
}

async fn own_s4_1_any_replica_continues_a_stored_session(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    a.end_one();
    assert_eq!(b.over(task).await, FOUND);
    for (replica, run, other) in [(&b, 2, &a), (&a, 3, &b)] {
        let continued = replica.tasks.continue_task(CHAT, task, "more").await.unwrap();
        assert_eq!(continued, Continued::Started { task, run });
        assert_eq!(other.shown(task).await, ELSEWHERE);
        replica.end_one();
        assert_eq!(other.over(task).await, format!("Task 1 [completed] stored: a test\nmore, asked {run}"));
    }
}

async fn own_s4_2_a_session_that_is_an_object_is_continued_where_it_is(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("local").await;
    a.end_one();
    b.over(task).await;
    let instance = Some(a.tenure.instance_id());
    let there = b.tasks.continue_task(CHAT, task, "more").await.unwrap();
    assert_eq!(there, Continued::Unavailable { task, instance, alive: false });
    a.start("stored").await;
    let there = b.tasks.continue_task(CHAT, task, "more").await.unwrap();
    assert_eq!(there, Continued::Unavailable { task, instance, alive: true }, "it holds something");
    let here = a.tasks.continue_task(CHAT, task, "more").await.unwrap();
    assert_eq!(here, Continued::Started { task, run: 2 });
    a.ends.add_permits(2);
    assert_eq!(b.over(task).await, "Task 1 [completed] local: a test\nmore, asked 2");
}

async fn own_s5_3_what_a_shutdown_ends_is_never_lost(f: Fixture) {
    let settings = Settings { drain: Duration::ZERO, ..Settings::default() };
    let (a, b) = both_with(&f, settings).await;
    let task = a.start("stored").await;
    // And V3: it had too little time.
    let shutdown = a.tenure.shutdown().await.unwrap();
    assert_eq!((shutdown.interrupted, shutdown.unstored), (1, 0));
    let seen = b.see(task).await;
    let finished = seen.state.finished().unwrap_or_else(|| panic!("it has an end: {seen:?}"));
    assert!(finished.is_interrupted() && finished.is_retryable(), "{finished:?}");
    assert_eq!(b.tasks.take_on(CHAT, task).await.unwrap(), Continued::Started { task, run: 2 });
    b.end_one();
    assert_eq!(b.over(task).await, FOUND, "asked what it was asked");
}

async fn own_s6_8_a_second_release_waits_for_the_first(f: Fixture) {
    let (a, b) = both(&f).await;
    a.stops.forget_permits(1000);
    let task = a.start("stored").await;
    let release = |replica: &Replica, wait| {
        let (tasks, wait) = (replica.tasks.clone(), Seconds::from_ms(wait));
        async move { tasks.release(CHAT, Release::Cancel { wait }).await.unwrap() }
    };
    let ends = async {
        // Both wait for work that was told to stop, and takes its time.
        let is_asked = |seen: &Inspection| matches!(seen.state, TaskState::Running { cancel: Some(_), .. });
        while !is_asked(&b.see(task).await) {}
        a.stops.add_permits(1);
    };
    let (first, second, ()) = tokio::join!(release(&a, 300_000), release(&b, 300_000), ends);
    for released in [first, second] {
        assert!(matches!(released, Released::Released { still_running: 0, .. }), "{released:?}");
    }
    assert_eq!(word(&b.see(task).await.state), "cancelled");
}

async fn own_s7_1_a_wait_on_another_replica_ends_with_the_task(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    let ends = async { a.end_one() };
    let (shown, ()) = tokio::join!(b.over(task), ends);
    assert_eq!(shown, FOUND);
}

async fn own_s7_2_a_wait_that_is_over_first_is_no_error(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    let waited = b.tasks.wait_for_first(CHAT, &[task], SHORT).await.unwrap();
    let expected = "None has ended yet; call again to go on waiting.\n\
                    Task 1 [running on another instance] stored: a test";
    assert_eq!(b.tasks.describe_wait(&waited), expected);
    goes_on(&a, &b, task).await;
}

async fn own_s7_3_a_wait_that_is_given_up_leaves_the_task(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    assert!(timeout(SHORT, b.over(task)).await.is_err(), "its turn was cancelled");
    goes_on(&a, &b, task).await;
}

async fn own_s7_4_a_wait_for_several_answers_with_what_is_over(f: Fixture) {
    let (a, b) = both(&f).await;
    let ended = a.start("stored").await;
    a.end_one();
    b.over(ended).await;
    let (here, there) = (b.start("stored").await, a.start("stored").await);
    let waited = b.tasks.wait_for_first(CHAT, &[here, there, ended, 99], MOST).await.unwrap();
    let numbers = |all: &[Inspection]| all.iter().map(|one| one.key.task).collect::<Vec<_>>();
    assert_eq!((numbers(&waited.over), numbers(&waited.running)), (vec![ended], vec![here, there]));
    assert_eq!(waited.unknown, [99], "and not lost");
}

async fn own_l15_work_that_tells_nothing_for_too_long_has_failed(f: Fixture) {
    let settings = Settings { stall: Some(SHORT), patience: SHORT, ..Settings::default() };
    let (a, b) = both_with(&f, settings).await;
    let task = a.start("stored").await;
    let shown = b.over(task).await;
    assert!(shown.starts_with("Task 1 [failed] stored: a test\nstalled: "), "{shown}");
}

async fn own_p14_an_outcome_is_announced_until_somebody_says_so(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    assert_eq!(b.tasks.undelivered(CHAT).await.unwrap(), []);
    a.end_one();
    b.over(task).await;
    let (on_a, on_b) = tokio::join!(a.tasks.undelivered(CHAT), b.tasks.undelivered(CHAT));
    let (on_a, on_b) = (on_a.unwrap(), on_b.unwrap());
    assert_eq!((on_a.len(), on_a[0].key.task, on_a[0].run), (1, task, 1));
    assert_eq!(on_a, on_b, "whoever is told twice can tell");
    for replica in [&a, &b] {
        let answer = replica.tasks.acknowledge(CHAT, task, 1).await.unwrap();
        assert_eq!(answer, Acknowledgement::Acknowledged);
        assert_eq!(replica.tasks.undelivered(CHAT).await.unwrap(), []);
    }
    assert_eq!(b.tasks.clear(CHAT, task).await.unwrap(), Forgotten::Forgotten);
    assert_eq!(word(&a.see(task).await.state), "expired");
}

async fn own_x10_a_cancel_right_after_the_grant_stops_the_work(f: Fixture) {
    let (a, b) = both(&f).await;
    for _ in 0..3 {
        let task = a.start("stored").await;
        let answer = b.tasks.cancel(CHAT, task, "enough").await.unwrap();
        assert_eq!(answer, CancelAnswer::Requested { runs: 1 });
        b.over(task).await;
        assert_eq!(word(&b.see(task).await.state), "cancelled");
    }
}

async fn own_v1_a_drain_with_enough_time_ends_and_publishes(f: Fixture) {
    let (a, b) = both_with(&f, Settings { drain: MOST, ..Settings::default() }).await;
    let task = a.start("stored").await;
    let mut shutdown = std::pin::pin!(a.tenure.shutdown());
    assert!(shutdown.as_mut().now_or_never().is_none(), "it waits for what runs");
    let late = a.tasks.start(CHAT, ask("stored")).await;
    assert!(matches!(late, Err(Error::Draining)), "{late:?}");
    a.end_one();
    let shutdown = shutdown.await.unwrap();
    assert_eq!((shutdown.interrupted, shutdown.unstored), (0, 0));
    assert_eq!(b.shown(task).await, FOUND, "published before it had shut down");
}

async fn own_v6_a_task_whose_agent_is_not_here_is_still_read(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    a.end_one();
    b.over(task).await;
    let newer = tasks(&b.tenure, WhenStopped::Keep);
    let answer = newer.continue_task(CHAT, task, "more").await.unwrap();
    assert_eq!(answer, Continued::AgentUnavailable { agent: "stored".into() });
    assert_eq!(newer.describe(&newer.result(CHAT, task).await.unwrap()), FOUND);
    let none = newer.start(CHAT, ask("stored")).await.unwrap();
    assert!(matches!(none, StartedTask::UnknownAgent { .. }), "{none:?}");
}

async fn own_v7_a_service_that_is_built_anew_shares_what_the_old_one_runs(f: Fixture) {
    let (a, b) = both(&f).await;
    let task = a.start("stored").await;
    let anew = tasks(&a.tenure, WhenStopped::Keep);
    let seen = anew.result(CHAT, task).await.unwrap();
    assert!(matches!(seen.state, TaskState::Running { owner, .. } if owner == a.tenure.instance_id()));
    // A host that was built anew is another: it does not take for its own what another start of it runs.
    assert_eq!(b.shown(task).await, ELSEWHERE);
    goes_on(&a, &b, task).await;
}
