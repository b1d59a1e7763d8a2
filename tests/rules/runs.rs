//! What may happen to runs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use tenure::model::{
    CancelMode, ErrorClass, InstanceId, OverlapPolicy, Payload, RetryPolicy, Run, RunError, RunId, RunResult,
    RunStatus, Task, TaskSpec, Timestamp, Trigger,
};
use tenure::rules::{
    Cancel, CancelRequest, Moment, Outcome, Verdict, Wanted, allowed, cancel, claim, delay, enqueue, finish,
    lawful, overlap, retry, start, sweep, verdict, wake_at,
};
use tenure::store::{LaneRun, LaneView, RunWrite};

const LEASE: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(20);

/// Everything begins here; leases end 30 s later and lapse after 50 s.
const BEGIN: Timestamp = Timestamp::from_ms(1_700_000_000_000);

fn second(second: u64) -> Moment {
    Moment { now: BEGIN.plus(Duration::from_secs(second)), stamp: second }
}

fn task(more: &str) -> Task {
    let json = format!(r#"{{"task_id":"t","agent_id":"a","query":"q"{more}}}"#);
    Task {
        spec: TaskSpec::parse(&json).unwrap(),
        created_at: BEGIN,
        updated_at: BEGIN,
        revision: 1,
        last_event: 0,
    }
}

fn run_id(name: &str) -> RunId {
    RunId::new(name.to_owned()).unwrap()
}

/// A run of the task in a state, as the rules bring it there.
fn run_in(status: RunStatus, task: &Task) -> Run {
    let queued = enqueue(task, Wanted::now(run_id("r"), BEGIN), second(0)).run;
    let claimed = claim(&queued, InstanceId::from_bits(1), 7, LEASE, second(0)).unwrap().run;
    let running = start(&claimed, claimed.token().unwrap(), second(0)).unwrap().run;
    let end = |outcome| finish(&running, running.token().unwrap(), outcome, 0, second(0)).unwrap().run;
    let run = match status {
        RunStatus::Queued => queued,
        RunStatus::Claimed => claimed,
        RunStatus::Running => running,
        RunStatus::Retrying => {
            let mut patient = running.clone();
            std::sync::Arc::make_mut(&mut patient.spec).retry_policy.max_retries = 3;
            let failed = Outcome::Failed(RunError::new("exception", "no"));
            let mut run = finish(&patient, patient.token().unwrap(), failed, 0, second(0)).unwrap().run;
            run.spec = patient.spec;
            run
        }
        RunStatus::AwaitingApproval => {
            end(Outcome::AwaitingApproval { question: "may I?".into(), data: json!(null) })
        }
        RunStatus::Completed => end(Outcome::Completed(RunResult::Inline(Payload::text("done")))),
        RunStatus::Failed => end(Outcome::Failed(RunError::new("other", "no"))),
        RunStatus::Timeout => end(Outcome::PastDeadline(RunError::new("timeout", "late"))),
        RunStatus::Cancelled => end(Outcome::Cancelled(None)),
        RunStatus::Skipped => {
            tenure::rules::skip(task, Wanted::now(run_id("r"), BEGIN), run_id("s"), second(0)).run
        }
        RunStatus::Lost => {
            let mut lost = running;
            lost.status = RunStatus::Lost;
            lost.lease = None;
            lost
        }
    };
    assert_eq!(run.status, status);
    run
}

/// What a write says: the status, the attempt, the fence, the counts and the events.
fn told(before: &Run, write: &RunWrite) -> String {
    let after = &write.run;
    assert!(lawful(before.status, after.status), "{} to {}", before.status, after.status);
    assert_eq!(after.version, before.version + 1);
    assert!(after.fence >= before.fence);
    assert_eq!(after.finished_at.is_some(), after.status.is_terminal());
    assert!(after.status.is_held() == after.lease.is_some(), "only a held run has a lease");
    let mut told = format!("{}", after.status);
    if after.fence > before.fence {
        told.push_str(", fenced");
    }
    if let Some(attempt) = &write.attempt {
        write!(told, ", attempt {} {:?}", attempt.number, attempt.status).unwrap();
    }
    if after.failures > before.failures {
        told.push_str(", a failure");
    }
    if after.interruptions > before.interruptions {
        told.push_str(", an interruption");
    }
    if after.due_at != before.due_at {
        write!(told, ", due in {} s", after.due_at.since(BEGIN).as_secs()).unwrap();
    }
    if let Some(error) = &after.error {
        write!(told, ", error {}", error.class).unwrap();
    }
    let events: Vec<String> = write.events.iter().map(|event| format!("{:?}", event.kind)).collect();
    for (event, number) in write.events.iter().zip(before.last_event + 1..) {
        assert_eq!(event.sequence, number, "numbered without gaps");
    }
    write!(told, " [{}]", events.join(" ")).unwrap();
    told
}

#[test]
fn task_t01_runs_move_only_along_the_arrows() {
    let mut table = format!("{:18}", "");
    for to in RunStatus::ALL {
        write!(table, "{:10.9}", to.as_str()).unwrap();
    }
    table.truncate(table.trim_end().len());
    for from in RunStatus::ALL {
        write!(table, "\n{:18}", from.as_str()).unwrap();
        for to in RunStatus::ALL {
            // A step; one write that passes through lost; staying.
            let mark = match (allowed(from, to), lawful(from, to)) {
                (true, _) => "step",
                (false, true) if from == to => "stays",
                (false, true) => "via lost",
                (false, false) => ".",
            };
            write!(table, "{mark:10}").unwrap();
        }
        table.truncate(table.trim_end().len());
    }
    insta::assert_snapshot!(table);
}

#[test]
fn task_t02_a_terminal_run_never_changes_again() {
    for from in RunStatus::ALL.into_iter().filter(|status| status.is_terminal()) {
        assert!(RunStatus::ALL.into_iter().all(|to| !lawful(from, to)), "{from}");
        let run = run_in(from, &task(""));
        assert!(sweep(&run, GRACE, second(1_000_000)).is_none());
        assert!(claim(&run, InstanceId::from_bits(2), 1, LEASE, second(1)).is_err());
    }
}

#[test]
fn task_t20_what_an_overlap_comes_to() {
    let policies = [
        OverlapPolicy::SkipIfRunning,
        OverlapPolicy::QueueNext,
        OverlapPolicy::CancelPrevious,
        OverlapPolicy::AllowParallel,
    ];
    let mut sets: Vec<Vec<RunStatus>> = vec![vec![]];
    let active = RunStatus::ALL.into_iter().filter(|status| status.is_active());
    sets.extend(active.map(|status| vec![status]));
    sets.push(vec![RunStatus::Queued, RunStatus::Running]);
    sets.push(vec![RunStatus::Running, RunStatus::Queued, RunStatus::Queued]);
    let mut table = String::new();
    for policy in policies {
        writeln!(table, "{policy:?}").unwrap();
        for set in &sets {
            for waiting_of in [Trigger::Manual, Trigger::Schedule] {
                let active: Vec<LaneRun> = set
                    .iter()
                    .enumerate()
                    .map(|(n, status)| LaneRun {
                        run_id: run_id(&format!("r{n}")),
                        status: *status,
                        trigger: waiting_of,
                    })
                    .collect();
                let waits = active.iter().find(|run| run.status == RunStatus::Queued);
                let scheduled_waiting =
                    waits.filter(|_| waiting_of == Trigger::Schedule).map(|run| run.run_id.clone());
                let total = active.len() as u64;
                let lane = LaneView { version: 1, active, total, scheduled_waiting };
                let names: Vec<&str> = set.iter().map(|status| status.as_str()).collect();
                write!(table, "  {:24} {:9}", names.join(" "), format!("{waiting_of:?}")).unwrap();
                for trigger in [Trigger::Manual, Trigger::Schedule, Trigger::Retry] {
                    let comes_to = format!("{:?}", overlap(policy, trigger, &lane));
                    let comes_to = comes_to.replace("RunId(\"", "").replace("\")", "");
                    write!(table, " {trigger:?}: {comes_to};").unwrap();
                }
                table.push('\n');
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn task_t10_the_delays_of_retries() {
    let mut table = String::new();
    for backoff in ["fixed", "exponential"] {
        for jitter in [0.0, 0.2, 1.0] {
            let policy: RetryPolicy =
                serde_json::from_value(json!({ "max_retries": 9, "backoff": backoff, "jitter": jitter }))
                    .unwrap();
            writeln!(table, "{backoff}, jitter {jitter}: least, middle and most of each failure, in ms")
                .unwrap();
            for failures in [1, 2, 3, 4, 5, 6, 64, 65, u32::MAX] {
                let of = |draw| delay(&policy, failures, draw).as_millis();
                writeln!(table, "  {failures:10}: {:7} {:7} {:7}", of(0), of(u64::MAX / 2), of(u64::MAX))
                    .unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn field_g14_what_failed_together_does_not_retry_together_even_at_the_cap() {
    let policy: RetryPolicy = serde_json::from_value(json!({ "backoff": "exponential" })).unwrap();
    for (failures, promised) in [(1, 30_000), (9, 300_000)] {
        let draws = (0..1000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut delays: Vec<u128> = draws.map(|draw| delay(&policy, failures, draw).as_millis()).collect();
        delays.sort_unstable();
        assert!(delays[0] >= promised, "none before the promised minimum");
        assert!(delays[999] - delays[0] >= promised * 19 / 100, "{} to {}", delays[0], delays[999]);
        delays.dedup();
        assert!(delays.len() > 900);
    }
}

#[test]
fn task_t12_which_failures_are_tried_again() {
    let mut table = String::new();
    for class in ["exception", "timeout", "lost", "quota"] {
        for (failures, retry_after) in [(1, None), (1, Some(600)), (2, None), (3, None), (4, None)] {
            let mut error = RunError::new(ErrorClass::from(class), "no");
            error.retry_after = retry_after.map(tenure::model::Seconds::new);
            let policy: RetryPolicy =
                serde_json::from_value(json!({ "max_retries": 2, "jitter": 0 })).unwrap();
            writeln!(
                table,
                "{class:9} failure {failures}, asks {retry_after:?}: {:?}",
                retry(&policy, failures, &error, 0)
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn own_l04_what_a_lease_is_worth() {
    let run = run_in(RunStatus::Running, &task(""));
    let lease = run.lease.unwrap();
    let mut table = String::new();
    for ms in [0_u64, 29_999, 30_000, 30_001, 49_999, 50_000, 50_001, 1_000_000] {
        let worth = verdict(&lease, BEGIN.plus(Duration::from_millis(ms)), GRACE);
        writeln!(table, "{ms:8} ms: {worth:?}").unwrap();
    }
    insta::assert_snapshot!(table);
    assert!(
        matches!(verdict(&lease, lease.expires_at, Duration::ZERO), Verdict::Lapsed(_)),
        "no grace, no doubt"
    );
}

#[test]
fn task_t45_what_is_done_about_runs_that_nobody_brings_to_their_end() {
    let mut table = String::new();
    let active = RunStatus::ALL.into_iter().filter(|status| !status.is_terminal());
    for status in active {
        for (lease, now) in [("fresh", 10), ("suspect", 40), ("lapsed", 60)] {
            if !status.is_held() && lease != "fresh" {
                continue;
            }
            for cancelled in ["", "cancel", "force due"] {
                for deadline in ["", "past deadline"] {
                    for caps in ["", "caps spent"] {
                        let policy =
                            if caps.is_empty() { "" } else { r#","retry_policy":{"max_interruptions":0}"# };
                        let mut run = run_in(status, &task(policy));
                        if !cancelled.is_empty() {
                            let after = if cancelled == "cancel" { 1000 } else { 5 };
                            run = asked_to_stop(run, Duration::from_secs(after));
                        }
                        if !deadline.is_empty() {
                            std::sync::Arc::make_mut(&mut run.spec).limits.deadline_at = Some(second(5).now);
                        }
                        let swept = sweep(&run, GRACE, second(now));
                        // What has to be looked at is found: the index that stores keep names it by then.
                        if swept.is_some() {
                            assert!(wake_at(&run).is_some_and(|wake| wake <= second(now).now), "{status}");
                        }
                        let swept = swept.map_or("nothing".to_owned(), |write| told(&run, &write));
                        writeln!(
                            table,
                            "{:18}{lease:8} {cancelled:10}{deadline:14}{caps:11} {swept}",
                            status.as_str()
                        )
                        .unwrap();
                    }
                }
            }
        }
    }
    insta::assert_snapshot!(table);
}

/// The run after somebody asked its owner to stop.
fn asked_to_stop(mut run: Run, force_after: Duration) -> Run {
    run.cancel = Some(tenure::model::CancelIntent {
        requested_at: BEGIN,
        reason: "enough".into(),
        requested_by: "user".into(),
        force_at: Some(BEGIN.plus(force_after)),
    });
    run
}

#[test]
fn task_t40_what_a_request_to_cancel_comes_to() {
    let mut table = String::new();
    for status in RunStatus::ALL {
        for mode in [CancelMode::Cooperative, CancelMode::Force] {
            for again in [false, true] {
                let mut run = run_in(status, &task(""));
                if again {
                    run = asked_to_stop(run, Duration::from_secs(15));
                }
                let request = CancelRequest {
                    mode,
                    reason: "why".into(),
                    requested_by: "me".into(),
                    force_after: Some(Duration::from_secs(15)),
                };
                let comes_to = match cancel(&run, &request, second(1)) {
                    Cancel::Write(write) => {
                        let kept = write.run.cancel.as_ref().unwrap();
                        assert_eq!(
                            &*kept.reason,
                            if again { "enough" } else { "why" },
                            "the first reason is kept"
                        );
                        told(&run, &write)
                    }
                    other => format!("{other:?}"),
                };
                let again = if again { "again" } else { "" };
                writeln!(table, "{:18}{:12}{again:6} {comes_to}", status.as_str(), format!("{mode:?}"))
                    .unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn task_t43_what_an_attempt_comes_to() {
    let error = |class: &str| RunError::new(class, "no");
    let outcomes = [
        ("completed", Outcome::Completed(RunResult::Inline(Payload::text("done")))),
        ("failed", Outcome::Failed(error("exception"))),
        ("failed for good", Outcome::Failed(error("other"))),
        ("timed out", Outcome::TimedOut(error("timeout"))),
        ("past deadline", Outcome::PastDeadline(error("timeout"))),
        ("cancelled", Outcome::Cancelled(Some(RunResult::Inline(Payload::text("half"))))),
        ("interrupted", Outcome::Interrupted(error("interrupted"))),
        ("asks", Outcome::AwaitingApproval { question: "may I?".into(), data: json!({}) }),
    ];
    let mut table = String::new();
    for (name, outcome) in outcomes {
        for cancelled in [false, true] {
            for (caps, policy) in [
                ("retries left", r#","retry_policy":{"max_retries":1,"jitter":0}"#),
                ("spent", r#","retry_policy":{"max_interruptions":0}"#),
                ("deadline near", r#","deadline_seconds":20,"retry_policy":{"max_retries":1,"jitter":0}"#),
            ] {
                let mut run = run_in(RunStatus::Running, &task(policy));
                if cancelled {
                    run = asked_to_stop(run, Duration::from_secs(15));
                }
                let write = finish(&run, run.token().unwrap(), outcome.clone(), 0, second(3)).unwrap();
                let asked = if cancelled { "cancel asked" } else { "" };
                writeln!(table, "{name:16}{asked:13}{caps:14} {}", told(&run, &write)).unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}
