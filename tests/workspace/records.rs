//! Records to keep: a run with everything in it, and its events.

use std::sync::Arc;

use tenure::model::{
    AgentId, Approval, CancelIntent, Event, EventKind, Idempotency, InstanceId, Lease, Limits, Metadata,
    Place, Progress, RetryPolicy, Run, RunError, RunId, RunSpec, RunStatus, Seconds, TaskId, Timestamp,
    Trigger,
};

pub(crate) const PATH: &str = "background/writer/nightly/r1";

pub(crate) fn run_id(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(1_767_225_600_000 + ms)
}

/// The event of run `r1` with this number.
pub(crate) fn event(sequence: u64) -> Event {
    Event {
        event: EventKind::Progress,
        timestamp: at(i64::try_from(sequence).unwrap()),
        sequence,
        cursor: 10 * sequence,
        agent_id: AgentId::new("writer").unwrap(),
        task_id: TaskId::new("nightly").unwrap(),
        run_id: Some(run_id("r1")),
        session_id: Some("background:writer:nightly".into()),
        status: Some(RunStatus::Running),
        attempt: 1,
        fence: 3,
        instance: Some(InstanceId::from_bits(7)),
        occurrence: Some(at(0)),
        data: serde_json::json!({ "message": format!("step {sequence}, \"quoted\"\nand ünïcode") }),
    }
}

pub(crate) fn events(numbers: impl IntoIterator<Item = u64>) -> Vec<Event> {
    numbers.into_iter().map(event).collect()
}

/// Metadata with digits that no binary number keeps.
pub(crate) fn metadata() -> Metadata {
    let json = r#"{"price":0.10000000000000000001,"big":123456789012345678901234567890}"#;
    Metadata::new(serde_json::value::RawValue::from_string(json.to_owned()).unwrap())
}

fn spec() -> RunSpec {
    RunSpec {
        task_id: TaskId::new("nightly").unwrap(),
        agent_id: AgentId::new("writer").unwrap(),
        query: "write the report\n".into(),
        trigger: Trigger::Schedule,
        queued_at: at(1500),
        first_due_at: at(0),
        late_by_ms: 1500,
        occurrence: Some(at(0)),
        idempotency: Some(Idempotency { key: "once".into(), digest: 9 }),
        session_id: "background:writer:nightly".into(),
        workspace_path: PATH.into(),
        write_run_json: true,
        write_events_jsonl: true,
        limits: Limits { timeout: Some(Seconds::from_ms(2500)), deadline_at: Some(at(3_600_000)) },
        retry_policy: RetryPolicy { max_retries: 2, ..RetryPolicy::default() },
        overlap_policy: tenure::model::OverlapPolicy::SkipIfRunning,
        lanes: Vec::new(),
        priority: 5,
        retry_of: None,
        override_pause: false,
        metadata: metadata(),
    }
}

/// Run `r1`, running, at this version.
pub(crate) fn run(version: u64) -> Run {
    Run {
        run_id: run_id("r1"),
        spec: Arc::new(spec()),
        status: RunStatus::Running,
        version,
        stamp: 1,
        due_at: at(0),
        place: Place::Nowhere,
        attempt: 2,
        failures: 0,
        interruptions: 1,
        fence: 3,
        lease: Some(Lease {
            owner: InstanceId::from_bits(7),
            nonce: 11,
            expires_at: at(32_000),
            heartbeat_at: at(2000),
        }),
        lost_token: None,
        cancel: None,
        claimed_at: Some(at(2000)),
        started_at: Some(at(1800)),
        attempt_started_at: Some(at(2100)),
        finished_at: None,
        error: None,
        result: None,
        progress: Some(Progress { percent: Some(40), message: "reading".into(), at: at(2500) }),
        approval: None,
        blocked_by: None,
        last_event: 4,
    }
}

/// Run `r1` after it ended, cancelled with what it had so far.
pub(crate) fn ended(version: u64) -> Run {
    Run {
        status: RunStatus::Cancelled,
        lease: None,
        cancel: Some(CancelIntent {
            requested_at: at(5000),
            reason: "not needed".into(),
            requested_by: "operator".into(),
            force_at: None,
        }),
        finished_at: Some(at(6000)),
        error: Some(RunError {
            retry_after: Some(Seconds::new(2)),
            ..RunError::new("exception", "the provider is overloaded")
        }),
        result: Some(tenure::model::RunResult::Inline(tenure::model::Payload::text("half a report"))),
        approval: Some(Approval {
            question: "publish?".into(),
            data: serde_json::json!({ "pages": 3 }),
            asked_at: at(4000),
            answer: None,
        }),
        blocked_by: Some(run_id("r0")),
        ..run(version)
    }
}
