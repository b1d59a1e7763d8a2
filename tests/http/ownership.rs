//! Ownership for hosts in other languages: verbs as requests, and what they answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use reqwest::Method;
use serde_json::{Value, json};
use tenure::clock::SystemClock;
use tenure::http::{HttpOptions, OwnershipOptions};
use tenure::model::{InstanceId, Seconds};
use tenure::ownership::{
    Acquire, Acquired, Blobs, Expected, Outcome, Ownership, OwnershipSettings, SessionKey,
};
use tenure::store::faulty::{Fault, Faulty, Method as Call};
use tenure::store::{MemoryStore, Store};

use crate::events::Said;
use crate::support::{Served, Told};

/// Two starts of a host.
const A: &str = "000000000000000000000000000000aa";
const B: &str = "000000000000000000000000000000bb";

/// The session that most tests are about, with more.
fn of(more: Value) -> Value {
    let mut fields = json!({ "namespace": "production", "source": "assistant", "session": "chat 7" });
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fields
}

fn start(owner: &str, task: u64) -> Value {
    of(json!({ "task": task, "owner": owner, "request_id": format!("{owner}-{task}"), "ttl": 30 }))
}

fn outcome(held: &Value, text: &str) -> Value {
    with(held, json!({ "outcome": { "end": "completed", "result": { "text": text } } }))
}

/// What is held, with more.
fn with(held: &Value, more: Value) -> Value {
    let mut fields = held.clone();
    let fields_of = fields.as_object_mut().unwrap();
    fields_of.remove("answer");
    fields_of.extend(more.as_object().unwrap().clone());
    fields
}

impl Served {
    async fn own(&self, verb: &str, body: Value) -> Told {
        self.post(&format!("/ownership/{verb}"), body).await
    }

    /// Begins a task, and answers what is held.
    async fn begun(&self, owner: &str, task: u64) -> Value {
        self.own("acquire", start(owner, task)).await.expect(200).clone()
    }

    async fn state(&self, task: u64) -> Value {
        self.own("inspect", of(json!({ "task": task }))).await.expect(200).clone()
    }

    /// A counter of this OS process, in which other tests count as well; 0 before anything was counted.
    async fn counted(&self, name: &str) -> u64 {
        let told = self.get("/metrics").await;
        told.expect(200);
        let count = told.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// Lets the lease of a task lapse, and declares it lost. Each look is a request: it takes its time.
    async fn lost(&self, owner: &str, task: u64) -> Value {
        let body = with(&start(owner, task), json!({ "ttl": 0.01 }));
        let held = self.own("acquire", body).await.expect(200).clone();
        let declare = of(json!({ "task": task, "run": 1, "fence": 1 }));
        loop {
            let told = self.own("declare-lost", declare.clone()).await;
            if told.status == 200 {
                assert_eq!(told.json["state"]["state"], "lost", "{}", told.text);
                return held;
            }
            told.problem(409, "not_lost");
        }
    }
}

/// A host whose leases and graces are short.
async fn served() -> Served {
    let settings = |settings: tenure::Settings| tenure::Settings {
        lease: Duration::from_millis(150),
        grace: Some(Duration::from_millis(20)),
        ..settings
    };
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    Served::on_with(store, HttpOptions::default(), settings).await
}

#[tokio::test(flavor = "multi_thread")]
async fn own_s1_1_a_client_in_any_language_keeps_who_owns_what() {
    let served = Served::new().await;
    assert_eq!(served.own("next-task-id", of(json!({}))).await.expect(200)["task"], 1);
    let held = served.begun(A, 1).await;
    assert_eq!((&held["run"], &held["answer"]), (&json!(1), &json!("acquired")));
    assert!(held["token"].as_str().is_some_and(|token| token.starts_with("1.")), "{held}");
    // And L17: the same request is the same grant.
    assert_eq!(served.begun(A, 1).await, held);
    let seen = served.state(1).await;
    assert_eq!((&seen["state"], &seen["owner"], &seen["fence"]), (&json!("running"), &json!(A), &json!(1)));
    assert!(!seen.to_string().contains(held["token"].as_str().unwrap()), "a token is its owner's alone");
    let told = served.own("acquire", start(B, 1)).await;
    let answer = &told.problem(409, "held")["answer"];
    assert_eq!((&answer["answer"], &answer["owner"]), (&json!("held"), &json!(A)));
    let renewed =
        served.own("renew", json!({ "owner": A, "ttl": 40, "leases": [with(&held, json!({}))] })).await;
    assert_eq!(renewed.expect(200)["answers"][0]["answer"], "renewed");
    assert!(renewed.json["answers"][0]["ttl_left"].as_f64().unwrap() > 30.0);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_s2_1_an_outcome_is_published_once_and_everybody_has_it() {
    let served = Served::new().await;
    let held = served.begun(A, 1).await;
    for answer in ["committed", "already_committed"] {
        assert_eq!(served.own("publish", outcome(&held, "found")).await.expect(200)["answer"], answer);
    }
    let told = served.own("publish", outcome(&held, "something else")).await;
    let answer = &told.problem(409, "already_terminal")["answer"];
    assert_eq!(answer["outcome"]["result"]["text"], "found");
    let seen = served.state(1).await;
    assert_eq!((&seen["state"], &seen["status"]), (&json!("terminal"), &json!("completed")));
    assert_eq!((&seen["result"]["text"], &seen["recovered"]), (&json!("found"), &json!(false)));
    // And S4.1: it is continued from what was stored.
    let next = with(&start(B, 1), json!({ "expect": { "terminal_run": 1 } }));
    assert_eq!(served.own("acquire", next.clone()).await.expect(200)["run"], 2);
    let late = with(&start(A, 1), json!({ "request_id": "late", "expect": { "terminal_run": 1 } }));
    let told = served.own("acquire", late).await;
    assert_eq!(told.problem(409, "conflict")["answer"]["actual"]["run"], 2);
    served.own("publish", outcome(&held, "found")).await.problem(409, "fenced");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_s2_3_a_fenced_outcome_is_refused_and_its_owner_proves_that_it_was_theirs() {
    let served = served().await;
    let held = served.lost(A, 1).await;
    let told = served.own("publish", outcome(&held, "found")).await;
    let problem = told.problem(409, "fenced");
    assert_eq!(problem["answer"]["state"]["state"], "lost", "{problem}");
    assert!(!told.text.contains(held["token"].as_str().unwrap()));
    let renewed = served.own("renew", json!({ "owner": A, "leases": [with(&held, json!({}))] })).await;
    assert_eq!(renewed.expect(200)["answers"][0]["answer"], "fenced");
    let back =
        served.own("reinstate", with(&held, json!({ "owner": A, "ttl": 30 }))).await.expect(200).clone();
    assert_ne!(back["token"], held["token"]);
    assert_eq!(served.own("publish", outcome(&back, "found")).await.expect(200)["answer"], "committed");
    assert_eq!(served.state(1).await["recovered"], true);
    // And S2.4: where somebody took its place, it is nobody's proof any more.
    let held = served.lost(A, 2).await;
    let again = with(&start(B, 3), json!({ "supersedes": 2 }));
    served.own("acquire", again).await.expect(200);
    served.own("publish", outcome(&held, "late")).await.problem(409, "fenced");
    served.own("reinstate", with(&held, json!({ "owner": A }))).await.problem(409, "fenced");
    let seen = served.state(2).await;
    assert_eq!((&seen["state"], &seen["superseded_by"]), (&json!("lost"), &json!(3)));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_x1_a_cancel_is_heard_of_by_the_next_renewal() {
    let served = Served::new().await;
    let held = [served.begun(A, 1).await, served.begun(A, 2).await, served.begun(A, 3).await];
    let cancel = |more: Value| served.own("cancel", of(more));
    assert_eq!(
        cancel(json!({ "scope": "task", "task": 1, "reason": "enough" })).await.expect(200)["runs"],
        1
    );
    let leases: Vec<Value> = held.iter().map(|held| with(held, json!({}))).collect();
    let renewed = served.own("renew", json!({ "owner": A, "leases": leases })).await;
    let answers = renewed.expect(200)["answers"].as_array().unwrap();
    assert_eq!(answers[0]["cancel"]["reason"], "enough");
    assert!(answers[1].get("cancel").is_none(), "and no sibling does: {answers:?}");
    let stopped = with(&held[0], json!({ "outcome": { "end": "cancelled", "result": { "text": "half" } } }));
    served.own("publish", stopped).await.expect(200);
    let told = cancel(json!({ "scope": "run", "task": 1, "run": 1 })).await;
    assert_eq!(told.problem(409, "already_terminal")["answer"]["outcome"]["status"], "cancelled");
    // And X4: by force it ends at once.
    cancel(json!({ "scope": "task", "task": 2, "mode": "force" })).await.expect(200);
    served.own("publish", outcome(&held[1], "late")).await.problem(409, "fenced");
    assert_eq!(cancel(json!({ "scope": "session" })).await.expect(200)["runs"], 1);
    cancel(json!({ "scope": "task", "task": 9 })).await.problem(404, "not_found");
    let elsewhere = json!({ "scope": "session", "namespace": "n", "source": "s", "session": "none" });
    served.own("cancel", elsewhere).await.problem(404, "not_found");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_s6_10_a_session_is_released_or_refused() {
    let served = Served::new().await;
    let held = served.begun(A, 1).await;
    let seen = served.own("inspect-session", of(json!({}))).await.expect(200).clone();
    let told = served.own("release-session", of(json!({}))).await;
    assert_eq!(told.problem(409, "still_running")["answer"]["running"], 1);
    let released = of(json!({ "running": "cancel", "wait": 0 }));
    assert_eq!(served.own("release-session", released.clone()).await.expect(200)["still_running"], 1);
    assert_eq!(served.own("release-session", released).await.expect(200)["still_running"], 0);
    served.own("publish", outcome(&held, "late")).await.problem(409, "fenced");
    // And S6.7: who saw the session before begins nothing in it.
    let late = with(&start(B, 2), json!({ "revision": seen["revision"] }));
    let told = served.own("acquire", late).await;
    assert_eq!(told.problem(409, "session_released")["answer"]["answer"], "session_released");
    let waits = of(json!({ "wait": 5 }));
    served.own("release-session", waits).await.invalid(&["wait"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_s6_9_what_does_not_stop_when_its_session_is_released_is_counted() {
    let served = Served::new().await;
    let held = served.begun(A, 1).await;
    let before = served.counted("tenure_ownership_revoked_total").await;
    let released = of(json!({ "running": "cancel", "wait": 0 }));
    assert_eq!(served.own("release-session", released).await.expect(200)["still_running"], 1);
    assert!(served.counted("tenure_ownership_revoked_total").await > before);
    served.own("publish", outcome(&held, "late")).await.problem(409, "fenced");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_p9_an_outcome_that_expires_undelivered_is_counted() {
    let served = Served::new().await;
    let held = served.begun(A, 1).await;
    served.own("publish", outcome(&held, "found")).await.expect(200);
    let before = served.counted("tenure_ownership_undelivered_total").await;
    let over = json!({ "acknowledged": 3600, "unacknowledged": 0, "sessions": 3600, "batch": 10 });
    assert_eq!(served.own("reap", over).await.expect(200)["undelivered"], 1);
    assert!(served.counted("tenure_ownership_undelivered_total").await > before);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_l24_a_task_is_handed_over_and_numbers_are_given_out_once() {
    let served = Served::new().await;
    let held = served.begun(A, 1).await;
    let given = served.own("hand-over", with(&held, json!({ "to": B }))).await.expect(200).clone();
    assert_eq!(served.state(1).await["owner"], B);
    served.own("hand-over", with(&held, json!({ "to": A }))).await.problem(409, "fenced");
    served.own("publish", outcome(&given, "found")).await.expect(200);
    let ids =
        futures_util::future::join_all((0..20).map(|_| served.own("next-task-id", of(json!({}))))).await;
    let ids: std::collections::BTreeSet<u64> =
        ids.iter().map(|told| told.expect(200)["task"].as_u64().unwrap()).collect();
    assert_eq!((ids.len(), ids.first()), (20, Some(&2)));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_p8_what_was_delivered_expires_and_what_is_forgotten_is_gone() {
    let served = Served::new().await;
    let held = served.begun(A, 1).await;
    let ack = |task: u64, run: u32| {
        served.own("acknowledge", of(json!({ "task": task, "run": run, "consumer": "chat" })))
    };
    ack(1, 1).await.problem(409, "not_terminal");
    served.own("forget", of(json!({ "task": 1 }))).await.problem(409, "still_running");
    served.own("publish", outcome(&held, "found")).await.expect(200);
    assert_eq!(ack(1, 1).await.expect(200)["answer"], "acknowledged");
    ack(1, 2).await.problem(404, "not_found");
    ack(7, 1).await.problem(404, "not_found");
    assert_eq!(served.own("reap", json!({})).await.expect(200)["tasks"], 0);
    let all = json!({ "acknowledged": 0, "unacknowledged": 0, "sessions": 3600, "batch": 10 });
    assert_eq!(served.own("reap", all).await.expect(200)["tasks"], 1);
    ack(1, 1).await.problem(410, "expired");
    served.own("cancel", of(json!({ "scope": "task", "task": 1 }))).await.problem(410, "expired");
    let held = served.begun(A, 2).await;
    served.own("publish", outcome(&held, "found")).await.expect(200);
    for _ in 0..2 {
        served.own("forget", of(json!({ "task": 2 }))).await.expect(200);
    }
    served.own("forget", of(json!({ "task": 9 }))).await.problem(404, "not_found");
    assert_eq!(served.own("inspect-session", of(json!({}))).await.expect(200)["tasks"], json!([]));
    served.end().await;
}

/// Keeps everything, and removes nothing.
struct Jammed;

impl Blobs for Jammed {
    fn put(&self, name: String, _: Outcome) -> BoxFuture<'_, Result<Arc<str>, String>> {
        ready(Ok(name.into())).boxed()
    }

    fn remove(&self, _: Arc<str>) -> BoxFuture<'_, Result<(), String>> {
        ready(Err("it is jammed".to_owned())).boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn own_p11_what_waits_for_a_hook_is_held_up_and_no_failure_of_the_store() {
    let served = Served::new().await;
    let settings = OwnershipSettings {
        outcome_limit: 10,
        blobs: Some(Arc::new(Jammed)),
        ..OwnershipSettings::default()
    };
    let own = Ownership::of(&served.tenure, settings);
    let session = SessionKey::new("production", "assistant", "chat 7").unwrap();
    for (task, runs) in [(1, 1000), (2, 1)] {
        for run in 0..runs {
            let expect = if run == 0 { Expected::NotExists } else { Expected::TerminalRun(run) };
            let (key, owner) = (session.task(task), InstanceId::from_bits(0xAA));
            let request = Acquire::new(key, owner, format!("{task}-{run}"), Seconds::new(30));
            let Acquired::Acquired(held) = own.acquire(&Acquire { expect, ..request }).await.unwrap() else {
                panic!("run {run} of task {task} is not granted")
            };
            own.publish(&held, Outcome::completed("more than ten")).await.unwrap();
        }
    }
    served.own("forget", of(json!({ "task": 1 }))).await.expect(200);
    let told = served.own("forget", of(json!({ "task": 2 }))).await;
    let problem = told.problem(409, "held_up");
    assert_eq!(problem["answer"], json!({ "answer": "held_up", "waiting": 1000 }));
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("forget the task again")), "{problem}");
    assert_eq!(served.state(2).await["state"], "terminal", "it is kept");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_v9_a_replica_that_was_told_otherwise_hears_of_it() {
    let served = Served::new().await;
    let told = |lease: u64, replace: bool| {
        served.own(
            "register",
            json!({ "host": "web", "namespace": "production", "source": "assistant", "lease": lease,
                    "grace": 20, "replace": replace }),
        )
    };
    assert_eq!(told(30, false).await.expect(200)["answer"], "first");
    assert_eq!(told(30, false).await.expect(200)["answer"], "same");
    let mismatch = told(60, false).await;
    let answer = &mismatch.problem(409, "mismatch")["answer"];
    assert_eq!((&answer["fields"], &answer["before"]["lease"]), (&json!(["lease"]), &json!(30)));
    assert_eq!(told(60, true).await.expect(200)["answer"], "replaced");
    told(30, false).await.problem(409, "mismatch");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_s7_1_a_watch_goes_on_where_it_ended() {
    let served = Served::new().await;
    let stream =
        async |query: &str, last: Option<u64>| served.stream(&format!("/ownership/watch{query}"), last).await;
    let chat = "?namespace=production&source=assistant&session=chat%207";
    let mut reader = stream(chat, None).await;
    let held = served.begun(A, 1).await;
    let Some(Said { id: Some(begun), event, data }) = reader.next().await else { panic!("it began") };
    assert_eq!((event.as_str(), &data["status"]), ("background_run_started", &json!("running")));
    assert!(data["run_id"].as_str().unwrap().ends_with(".1.1"), "{data}");
    drop(reader);
    served.own("publish", outcome(&held, "found")).await.expect(200);
    // What happened elsewhere is told to who watches all.
    let other = with(&start(B, 1), json!({ "session": "another" }));
    served.own("acquire", other).await.expect(200);
    served.task("echo", json!({})).await;
    let mut reader = stream(chat, Some(begun)).await;
    let ended = reader.next().await.unwrap();
    assert_eq!(ended.event, "background_run_completed");
    assert!(ended.id > Some(begun));
    let mut all = stream("?after=0", None).await;
    let told = [all.next().await.unwrap(), all.next().await.unwrap(), all.next().await.unwrap()];
    let words: Vec<&str> = told.iter().map(|said| said.event.as_str()).collect();
    assert_eq!(words, ["background_run_started", "background_run_completed", "background_run_started"]);
    let list = served.get(&format!("/ownership/watch{chat}&after={begun}")).await;
    assert_eq!(list.expect(200)["count"], 1, "and as a list");
    served.get("/ownership/watch?namespace=production").await.invalid(&["session"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_wrong_is_told_at_once() {
    let served = Served::new().await;
    served.own("acquire", json!({})).await.invalid(&[
        "namespace",
        "source",
        "session",
        "task",
        "owner",
        "request_id",
    ]);
    let odd = json!({
        "namespace": "", "source": "s", "session": 7, "task": -1, "owner": "me", "request_id": "r",
        "ttl": "soon", "expect": "nothing", "idempotency": { "key": "k", "colour": 1 }, "colour": 1,
    });
    served.own("acquire", odd).await.invalid(&[
        "session",
        "task",
        "owner",
        "ttl",
        "expect",
        "idempotency.colour",
        "colour",
    ]);
    let limits =
        with(&start(A, 0), json!({ "ttl": 1_000_000, "request_id": "", "parent": 0, "supersedes": 0 }));
    served.own("acquire", limits).await.invalid(&["request_id", "task", "parent", "supersedes", "ttl"]);
    let lease = |token: &str| with(&start(A, 1), json!({ "run": 1, "token": token }));
    let secret = "1.00000000000000zz";
    let told = served.own("publish", with(&lease(secret), json!({ "outcome": { "end": "over" } }))).await;
    told.invalid(&["token", "outcome.end", "owner", "request_id", "ttl"]);
    assert!(!told.text.contains(secret), "what may be a token is not repeated: {}", told.text);
    let leases = json!({ "owner": A, "leases": [{ "namespace": "n" }] });
    served.own("renew", leases).await.invalid(&["leases[0].source"]);
    let nameless =
        json!({ "namespace": "", "source": "s", "session": "c", "task": 1, "run": 1, "token": "1.1" });
    served.own("renew", json!({ "owner": A, "leases": [nameless] })).await.invalid(&["leases[0].namespace"]);
    let many: Vec<Value> = (0..10_001)
        .map(|task| json!({ "namespace": "n", "source": "s", "session": "c", "task": task, "run": 1, "token": "1.1" }))
        .collect();
    served.own("renew", json!({ "owner": A, "leases": many })).await.invalid(&["leases"]);
    served.own("cancel", of(json!({ "scope": "all", "task": 1 }))).await.invalid(&["scope"]);
    served.own("cancel", of(json!({ "scope": "run" }))).await.invalid(&["task", "run"]);
    let long = "x".repeat(5000);
    served.own("cancel", of(json!({ "scope": "session", "reason": long }))).await.invalid(&["reason"]);
    served
        .own("acknowledge", of(json!({ "task": 1, "run": 1, "consumer": "a b" })))
        .await
        .invalid(&["consumer"]);
    let host = json!({ "host": "", "namespace": "n", "source": "s", "lease": 1, "grace": 1 });
    served.own("register", host).await.invalid(&["host"]);
    served.own("inspect?x=1", of(json!({ "task": 1 }))).await.invalid(&["x"]);
    served.own("inspect", json!([])).await.invalid(&["body"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_are_bytes_of_any_kind_within_their_limit() {
    let ownership = Some(OwnershipOptions { max_outcome_bytes: 100, ..OwnershipOptions::default() });
    let served = Served::with(HttpOptions { ownership, ..HttpOptions::default() }).await;
    let held = served.begun(A, 1).await;
    let of_bytes = |result: Value| {
        with(
            &held,
            json!({ "outcome": { "end": "completed", "result": result, "snapshot": { "text": "{}" } } }),
        )
    };
    let told = served.own("publish", of_bytes(json!({ "text": "x".repeat(101) }))).await;
    assert_eq!(told.problem(413, "too_large")["answer"]["limit"], 100);
    for odd in [json!({ "hex": "0" }), json!({ "hex": "zz" }), json!({ "text": "a", "hex": "00" }), json!({})]
    {
        served.own("publish", of_bytes(odd)).await.problem(422, "invalid");
    }
    for media_type in [String::new(), "x".repeat(300), "text/\nplain".to_owned()] {
        let result = json!({ "media_type": media_type, "text": "x" });
        served.own("publish", of_bytes(result)).await.invalid(&["result.media_type"]);
    }
    let failed = with(&held, json!({ "outcome": { "end": "failed" } }));
    served.own("publish", failed).await.invalid(&["error"]);
    // One that calls itself what is kept is read back as it came.
    let kept = json!({ "media_type": "application/vnd.tenure.kept", "hex": "00ff" });
    served.own("publish", of_bytes(kept.clone())).await.expect(200);
    assert_eq!(served.state(1).await["result"], kept);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_p15_another_namespace_is_not_served_and_neither_is_what_is_left_out() {
    let only = OwnershipOptions { namespace: Some("production".into()), ..OwnershipOptions::default() };
    let served = Served::with(HttpOptions { ownership: Some(only), ..HttpOptions::default() }).await;
    served.begun(A, 1).await;
    let other = with(&start(A, 1), json!({ "namespace": "staging" }));
    served.own("acquire", other.clone()).await.problem(404, "not_found");
    served
        .own("inspect", json!({ "namespace": "staging", "source": "s", "session": "c", "task": 1 }))
        .await
        .problem(404, "not_found");
    served.get("/ownership/watch?namespace=staging&source=s&session=c").await.problem(404, "not_found");
    served.get("/ownership/watch").await.invalid(&["session"]);
    served
        .get("/ownership/watch?namespace=production&source=assistant&session=chat%207&after=0")
        .await
        .expect(200);
    let host = json!({ "host": "web", "namespace": "staging", "source": "s", "lease": 1, "grace": 1 });
    served.own("register", host).await.problem(404, "not_found");
    served.api.reload(HttpOptions { ownership: None, ..HttpOptions::default() });
    served.own("acquire", start(A, 1)).await.problem(404, "not_found");
    served.api.reload(HttpOptions::default());
    served.own("acquire", other).await.expect(200);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_x12_a_store_that_is_away_is_no_evidence_and_no_cancel() {
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock))) as Arc<dyn Store>));
    let served = Served::on(store.clone(), HttpOptions::default()).await;
    served.begun(A, 1).await;
    let cancel = of(json!({ "scope": "task", "task": 1 }));
    store.script(Call::Commit, [Some(Fault::Refuse)]);
    served.own("cancel", cancel.clone()).await.problem(503, "store_unavailable");
    store.script(Call::Commit, [Some(Fault::LoseAnswer)]);
    served.own("cancel", cancel.clone()).await.problem(503, "store_unknown");
    store.script(Call::Run, [Some(Fault::Refuse)]);
    served.own("inspect", of(json!({ "task": 1 }))).await.problem(503, "store_unavailable");
    assert_eq!(served.own("cancel", cancel).await.expect(200)["runs"], 1, "asked again");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_may_be_any_number() {
    let served = Served::new().await;
    served.begun(A, 1).await;
    let most = u64::MAX;
    let token = format!("{most}.ffffffffffffffff");
    for (task, run) in [(1, 1), (1, u32::MAX), (most, 1), (0, 0)] {
        let held = of(json!({ "task": task, "run": run, "token": token }));
        let renewed = served.own("renew", json!({ "owner": A, "leases": [held] })).await;
        assert_ne!(renewed.expect(200)["answers"][0]["answer"], "renewed");
        served.own("publish", outcome(&held, "x")).await.problem(409, "fenced");
        served.own("reinstate", with(&held, json!({ "owner": A }))).await.problem(409, "fenced");
        served.own("hand-over", with(&held, json!({ "to": A }))).await.problem(409, "fenced");
        let seen = of(json!({ "task": task, "run": run, "fence": most, "grace": 3_153_600_000_u64 }));
        served.own("declare-lost", seen).await.problem(409, "not_lost");
    }
    let start = with(&start(A, 5), json!({ "revision": most }));
    served.own("acquire", start).await.problem(409, "session_released");
    let wait = of(json!({ "running": "cancel", "wait": 0, "session": "\u{10FFFF}\u{1}/../%00" }));
    assert_eq!(served.own("release-session", wait).await.expect(200)["revision"], 0);
    let force = of(json!({ "scope": "task", "task": 1, "force_after": 3_153_600_000_u64 }));
    served.own("cancel", force).await.expect(200);
    assert_eq!(served.state(1).await["state"], "running");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_large_outcomes_is_answered_in_part() {
    let ownership = Some(OwnershipOptions { max_outcome_bytes: 4 << 20, ..OwnershipOptions::default() });
    let served =
        Served::with(HttpOptions { ownership, max_body_bytes: 8 << 20, ..HttpOptions::default() }).await;
    let text = "x".repeat(3 << 20);
    for task in 1..=4 {
        let held = served.begun(A, task).await;
        served.own("publish", outcome(&held, &text)).await.expect(200);
    }
    let told = served.own("inspect-session", of(json!({}))).await;
    let seen = told.expect(200);
    assert_eq!((&seen["left_out"], seen["tasks"].as_array().unwrap().len()), (&json!([1, 2]), 4));
    assert!(seen["tasks"][0].get("result").is_none() && seen["tasks"][0]["status"] == "completed");
    assert_eq!(served.state(1).await["result"]["text"], json!(text));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_waits_ends_with_the_interface() {
    let mut served = Served::new().await;
    served.begun(A, 1).await;
    let body = of(json!({ "running": "cancel", "wait": 60 }));
    let request = served.request(Method::POST, "/ownership/release-session").json(&body);
    let waits = tokio::spawn(request.send());
    // It waits once what runs has been asked to stop.
    while served.state(1).await["cancel"].is_null() {}
    served.shut_down();
    let told = Told::of(waits.await.unwrap().unwrap()).await;
    told.problem(503, "draining");
    served.end().await;
}
