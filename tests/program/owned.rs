//! The first two scenarios of the brief of ownership, played over plain HTTP as hosts in other languages do: two
//! `tenure serve` share a store, and a replica of the host talks to each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::kit::{Answer, MOST, Server, until};

/// Leases that nobody renews are over soon. A release has the grace to end what it asked to stop, before a host does.
pub(crate) const CONFIG: &str = "[worker]\nlease = \"500ms\"\ngrace = \"1s\"\n";

/// Two starts of a host.
const A: &str = "000000000000000000000000000000aa";
const B: &str = "000000000000000000000000000000bb";

/// A replica of the host, which asks one server.
struct Replica<'a> {
    server: &'a Server,
    owner: &'static str,
    session: &'a str,
}

impl Replica<'_> {
    fn fields(&self, more: Value) -> Value {
        let mut fields = json!({ "namespace": "production", "source": "assistant", "session": self.session });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    }

    fn ask(&self, verb: &str, more: Value) -> Answer {
        self.server.post(&format!("/ownership/{verb}"), &self.fields(more).to_string())
    }

    #[track_caller]
    fn done(&self, verb: &str, more: Value) -> Value {
        let answer = self.ask(verb, more);
        assert_eq!(answer.status, 200, "{verb}: {answer:?}");
        answer.body
    }

    /// That it is refused so; answers what the verb answered instead.
    #[track_caller]
    fn refused(&self, verb: &str, more: Value, word: &str) -> Value {
        let answer = self.ask(verb, more);
        let kind = format!("urn:tenure:problem:{word}");
        assert_eq!((answer.status, &answer.body["type"]), (409, &json!(kind)), "{verb}: {answer:?}");
        answer.body["answer"].clone()
    }

    /// The call of a model: the same call is the same task.
    fn start(&self, task: u64, call: &str, ttl: f64) -> Value {
        json!({
            "task": task, "owner": self.owner, "request_id": format!("{}-{call}", self.owner), "ttl": ttl,
            "idempotency": { "key": call }, "input": "the sources", "agent": "researcher",
        })
    }

    fn state(&self, task: u64) -> Value {
        self.done("inspect", json!({ "task": task }))
    }

    fn renew(&self, held: &Value) -> Value {
        let lease = self.fields(json!({ "task": held["task"], "run": held["run"], "token": held["token"] }));
        let body = json!({ "owner": self.owner, "leases": [lease], "ttl": 60 });
        let answer = self.server.post("/ownership/renew", &body.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["answers"][0].clone()
    }
}

fn shown(held: &Value) -> Value {
    json!({ "task": held["task"], "run": held["run"], "token": held["token"] })
}

fn outcome(held: &Value, text: &str) -> Value {
    let mut fields = shown(held);
    fields["outcome"] = json!({ "end": "completed", "result": { "text": text } });
    fields
}

pub(crate) fn play(one: &Server, other: &Server, session: &str) {
    let a = Replica { server: one, owner: A, session };
    let b = Replica { server: other, owner: B, session };
    let cursor = a_healthy_task_is_neither_lost_nor_done_twice(&a, &b);
    a_result_is_delivered_by_whichever_replica(&a, &b, cursor);
    a_fenced_outcome_is_recovered_or_refused(&a, &b);
    a_cancel_and_a_release_cross_replicas(&a, &b);
}

/// S1: answers the cursor of the event that the task began with.
fn a_healthy_task_is_neither_lost_nor_done_twice(a: &Replica<'_>, b: &Replica<'_>) -> u64 {
    assert_eq!(a.done("next-task-id", json!({}))["task"], 1);
    let held = a.done("acquire", a.start(1, "turn-1/call-1", 60.0));
    let seen = b.state(1);
    assert_eq!((&seen["state"], &seen["owner"]), (&json!("running"), &json!(A)), "on another instance");
    // The model on the other replica makes the same call again.
    assert_eq!(b.done("next-task-id", json!({}))["task"], 2);
    let answer = b.refused("acquire", b.start(2, "turn-1/call-1", 60.0), "held");
    assert_eq!((&answer["task"], &answer["owner"]), (&json!(1), &json!(A)));
    assert_eq!(b.done("inspect-session", json!({}))["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(a.renew(&held)["answer"], "renewed");
    let events = events(b, 0);
    assert_eq!(events.len(), 1, "looking writes nothing: {events:?}");
    a.refused("publish", outcome(&json!({ "task": 1, "run": 1, "token": "1.0" }), "forged"), "fenced");
    assert_eq!(a.done("publish", outcome(&held, "what was found"))["answer"], "committed");
    events[0]["cursor"].as_u64().unwrap()
}

/// S2: the owner serves no other turn.
fn a_result_is_delivered_by_whichever_replica(a: &Replica<'_>, b: &Replica<'_>, cursor: u64) {
    for replica in [a, b] {
        let seen = replica.state(1);
        assert_eq!((&seen["state"], &seen["result"]["text"]), (&json!("terminal"), &json!("what was found")));
    }
    assert_eq!(
        b.done("acknowledge", json!({ "task": 1, "run": 1, "consumer": "chat" }))["answer"],
        "acknowledged"
    );
    // Who watched the first server goes on at the other, after the last event that it saw.
    let told = next_events(b, cursor, 2);
    let words: Vec<&str> = told.iter().map(|(_, event)| event.as_str()).collect();
    assert_eq!(words, ["background_run_outcome_refused", "background_run_completed"]);
    assert!(told[0].0 > cursor && told[1].0 > told[0].0, "{told:?}");
}

/// S2.3, S2.4: the first owner is away for longer than its lease and the grace.
fn a_fenced_outcome_is_recovered_or_refused(a: &Replica<'_>, b: &Replica<'_>) {
    let mut lost = Vec::new();
    for task in [3, 4] {
        let held = a.done("acquire", a.start(task, &format!("call-{task}"), 0.05));
        let seen = json!({ "task": task, "run": 1, "fence": 1 });
        until(&format!("task {task} is lost"), || b.ask("declare-lost", seen.clone()).status == 200);
        let answer = b.refused("publish", outcome(&held, "late"), "fenced");
        assert_eq!(answer["state"]["state"], "lost");
        assert_eq!(a.renew(&held)["answer"], "fenced");
        lost.push(held);
    }
    let proof = |held: &Value| {
        let mut fields = shown(held);
        fields["owner"] = json!(A);
        fields
    };
    let back = a.done("reinstate", proof(&lost[0]));
    assert_eq!(a.done("publish", outcome(&back, "after all"))["answer"], "committed");
    let seen = b.state(3);
    assert_eq!((&seen["result"]["text"], &seen["recovered"]), (&json!("after all"), &json!(true)));
    let mut again = b.start(5, "call-5", 60.0);
    again["supersedes"] = json!(4);
    b.done("acquire", again);
    a.refused("reinstate", proof(&lost[1]), "fenced");
    a.refused("publish", outcome(&lost[1], "late"), "fenced");
    assert_eq!(a.state(4)["superseded_by"], 5);
}

/// S6: what one replica asks for reaches the owner at the other.
fn a_cancel_and_a_release_cross_replicas(a: &Replica<'_>, b: &Replica<'_>) {
    let held = a.done("acquire", a.start(6, "call-6", 60.0));
    assert_eq!(b.done("cancel", json!({ "scope": "task", "task": 6, "reason": "enough" }))["runs"], 1);
    assert_eq!(a.renew(&held)["cancel"]["reason"], "enough");
    let released = b.done("release-session", json!({ "running": "cancel", "wait": 0 }));
    assert_eq!(released["still_running"], 2, "the one that was asked to stop, and the successor");
    a.refused("publish", outcome(&held, "late"), "fenced");
    assert_eq!(a.renew(&held)["answer"], "fenced");
}

/// What the session of a replica has seen, after a cursor.
fn events(replica: &Replica<'_>, after: u64) -> Vec<Value> {
    let told = replica.server.get(&watch(replica, &format!("&after={after}")));
    assert_eq!(told.status, 200, "{told:?}");
    told.body["events"].as_array().unwrap().clone()
}

fn watch(replica: &Replica<'_>, more: &str) -> String {
    format!("/ownership/watch?namespace=production&source=assistant&session={}{more}", replica.session)
}

/// The first events that a stream tells which goes on after a cursor, with their ids.
fn next_events(replica: &Replica<'_>, after: u64, many: usize) -> Vec<(u64, String)> {
    let address = &replica.server.address;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(MOST)).unwrap();
    let (path, accept) = (watch(replica, ""), "text/event-stream");
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nLast-Event-ID: {after}\r\n\r\n"
    )
    .unwrap();
    let (mut id, mut told) = (None, Vec::new());
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        if let Some(text) = line.strip_prefix("id: ") {
            id = Some(text.parse().unwrap());
        }
        if let (Some(id), Some(event)) = (id, line.strip_prefix("event: ")) {
            told.push((id, event.to_owned()));
        }
        if told.len() == many {
            return told;
        }
    }
    panic!("the stream ended after {told:?}");
}
