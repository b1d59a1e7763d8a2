//! Every failure that the document names for an operation can be had from it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Body, Method, RequestBuilder};
use serde_json::{Value, json};
use tenure::clock::SystemClock;
use tenure::http::{HttpOptions, Token};
use tenure::store::faulty::Faulty;
use tenure::store::{MemoryStore, Store};

use crate::schema;
use crate::support::Served;

/// An operation, and a request of it that is in order.
struct Operation {
    method: Method,
    template: &'static str,
    path: String,
    body: Option<Value>,
    described: BTreeSet<u16>,
}

impl Operation {
    fn all() -> Vec<Self> {
        schema::operations()
            .into_iter()
            .map(|(template, method, about)| Self::of(template, method, about))
            .collect()
    }

    fn of(template: &'static str, method: &str, about: &Value) -> Self {
        let body = match about["operationId"].as_str().unwrap() {
            "create_task" => Some(json!({ "task_id": "t", "agent_id": "echo", "query": "q" })),
            "create_agent" => Some(
                json!({ "agent_id": "a", "kind": "chat", "base_url": "http://localhost:1", "model": "m" }),
            ),
            "resume_run" => Some(json!({ "approved": true })),
            "cancel_runs" => Some(json!({ "status": ["queued"] })),
            verb if template.starts_with("/ownership/") && method == "post" => Some(asked_of(verb)),
            _ if method == "post" || method == "patch" => Some(json!({})),
            _ => None,
        };
        let described = about["responses"].as_object().unwrap().keys().map(|status| status.parse().unwrap());
        let path = template.replace(['{', '}'], "");
        let method = method.to_ascii_uppercase().parse().unwrap();
        Self { method, template, path, body, described: described.collect() }
    }

    fn request(&self, served: &Served, path: &str) -> RequestBuilder {
        let request = served.request(self.method.clone(), path);
        match &self.body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    /// What a request is answered that is wrong in one way after the other.
    async fn provoke(&self, served: &Served) -> BTreeSet<u16> {
        let plain = || self.request(served, &self.path);
        let mut requests = vec![
            plain(),
            plain().header("origin", "http://evil.example"),
            plain().header("host", "evil.example"),
            plain().header("accept", "image/png"),
            self.request(served, &format!("{}?nonsense=1", self.path)),
        ];
        if self.template.contains('{') {
            let broken = self.template.replacen('{', "%ff{", 1).replace(['{', '}'], "");
            requests.push(self.request(served, &broken));
        }
        if self.body.is_some() {
            let bare = || served.request(self.method.clone(), &self.path);
            let json = || bare().header("content-type", "application/json");
            let silent = futures_util::stream::pending::<Result<&str, std::io::Error>>();
            requests.push(bare().body("{}"));
            requests.push(json().body("{"));
            requests.push(json().body("x".repeat(2_000)));
            requests.push(json().body(Body::wrap_stream(silent)));
        }
        let mut answered = BTreeSet::new();
        for request in requests {
            answered.insert(served.ask(&self.path, request).await.status.as_u16());
        }
        answered
    }
}

/// A request of a verb of ownership that is in order.
fn asked_of(verb: &str) -> Value {
    let owner = "000000000000000000000000000000aa";
    let session = json!({ "namespace": "n", "source": "s", "session": verb });
    let more = match verb {
        "acquire" => json!({ "task": 1, "owner": owner, "request_id": "r" }),
        "renew" => return json!({ "owner": owner, "leases": [] }),
        "publish" => json!({ "task": 1, "run": 1, "token": "1.1", "outcome": { "end": "completed" } }),
        "inspect" | "forget" => json!({ "task": 1 }),
        "declare_lost" => json!({ "task": 1, "run": 1, "fence": 1 }),
        "reinstate" => json!({ "task": 1, "run": 1, "token": "1.1", "owner": owner }),
        "hand_over" => json!({ "task": 1, "run": 1, "token": "1.1", "to": owner }),
        "request_cancel" => json!({ "scope": "task", "task": 1 }),
        "acknowledge" => json!({ "task": 1, "run": 1, "consumer": "c" }),
        "reap" => return json!({}),
        "register" => return json!({ "host": "h", "namespace": "n", "source": "s", "lease": 1, "grace": 1 }),
        _ => json!({}),
    };
    let mut fields = session;
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fields
}

fn options() -> HttpOptions {
    let body_timeout = Duration::from_millis(50);
    HttpOptions { max_body_bytes: 1_000, body_timeout, allow_agents: true, ..HttpOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failure_that_is_described_can_be_had() {
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let served = Served::on(store.clone(), options()).await;
    let operations = Operation::all();
    let mut answered = Vec::new();
    for operation in &operations {
        answered.push(operation.provoke(&served).await);
    }
    served.api.reload(HttpOptions { token: Some(Token::new("s3cret")), ..options() });
    for (operation, answered) in operations.iter().zip(&mut answered) {
        let request = operation.request(&served, &operation.path);
        answered.insert(served.ask(&operation.path, request).await.status.as_u16());
    }
    served.api.reload(HttpOptions { ownership: None, ..options() });
    for (operation, answered) in operations.iter().zip(&mut answered) {
        if operation.template.starts_with("/ownership/") {
            let request = operation.request(&served, &operation.path);
            answered.insert(served.ask(&operation.path, request).await.status.as_u16());
        }
    }
    served.api.reload(options());
    store.close().await.unwrap();
    for (operation, answered) in operations.iter().zip(&mut answered) {
        let request = operation.request(&served, &operation.path);
        answered.insert(served.ask(&operation.path, request).await.status.as_u16());
    }
    for (operation, answered) in operations.iter().zip(&answered) {
        // What takes a record in some state is shown by the tests of those records.
        let particular = [409, 410, 416];
        let failures = |status: &&u16| **status >= 400 && !particular.contains(*status);
        let described: Vec<&u16> = operation.described.iter().filter(failures).collect();
        let had: Vec<&u16> = answered.iter().filter(failures).collect();
        assert_eq!(had, described, "{} {}", operation.method, operation.template);
    }
    drop(served);
}
