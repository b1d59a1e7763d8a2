//! A host that is served on loopback, and a client of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Once;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tenure::agents::Directory;
use tenure::clock::SystemClock;
use tenure::http::{Api, HttpOptions};
use tenure::model::{EventKind, Subject, TaskSpec};
use tenure::store::{MemoryStore, Store};
use tenure::{RunContext, Settings, Tenure, WorkspaceFolder};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::schema;

/// The longest that anything in these tests takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A host with an agent `echo` that answers its query, `fail` that fails, `held` that waits to be let go, and `ask`
/// that asks a person.
pub(crate) struct Served {
    pub(crate) tenure: Tenure,
    pub(crate) api: Api,
    pub(crate) address: SocketAddr,
    pub(crate) client: Client,
    /// Lets attempts of the agent `held` go on.
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) folder: tempfile::TempDir,
    token: Option<String>,
    shutdown: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
}

pub(crate) fn settings(folder: &tempfile::TempDir) -> Settings {
    Settings {
        poll: Duration::from_millis(200),
        drain: Duration::from_secs(1),
        patience: Duration::from_secs(1),
        concurrency: 64,
        workspace: Some(WorkspaceFolder::at(folder.path().join("workspace"))),
        ..Settings::default()
    }
}

impl Served {
    pub(crate) async fn new() -> Self {
        Self::with(HttpOptions::default()).await
    }

    pub(crate) async fn with(options: HttpOptions) -> Self {
        Self::on(Arc::new(MemoryStore::new(Arc::new(SystemClock))), options).await
    }

    pub(crate) async fn on(store: Arc<dyn Store>, options: HttpOptions) -> Self {
        Self::on_with(store, options, |settings| settings).await
    }

    pub(crate) async fn on_with(
        store: Arc<dyn Store>,
        options: HttpOptions,
        change: impl FnOnce(Settings) -> Settings,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tenure = Tenure::open(store, change(settings(&folder))).await.unwrap();
        let gate = Arc::new(Semaphore::new(0));
        agents(&tenure, &gate);
        let directory = Directory::open_with(tenure.clone(), ["SOME_KEY".to_owned()]).await.unwrap();
        let api = Api::new(tenure.clone(), directory, options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, wanted) = oneshot::channel::<()>();
        let served = api.clone();
        let serving = tokio::spawn(async move { served.serve(listener, async { drop(wanted.await) }).await });
        let (client, shutdown) = (client(), Some(shutdown));
        Self { tenure, api, address, client, gate, folder, token: None, shutdown, serving }
    }

    /// Shows this token with every request from now on.
    pub(crate) fn token(&mut self, token: &str) {
        self.token = Some(token.to_owned());
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, self.url(path)).timeout(LIMIT);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Told {
        self.call(Method::GET, path).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Told {
        self.send(Method::POST, path, body).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Value) -> Told {
        self.ask(path, self.request(method, path).json(&body)).await
    }

    /// Without a body.
    pub(crate) async fn call(&self, method: Method, path: &str) -> Told {
        self.ask(path, self.request(method, path)).await
    }

    /// The answer to a request for a path, held against the document.
    pub(crate) async fn ask(&self, path: &str, request: RequestBuilder) -> Told {
        let request = request.build().unwrap();
        let method = request.method().clone();
        let told = Told::of(self.client.execute(request).await.unwrap()).await;
        let media_type = told.header("content-type");
        schema::check(method.as_str(), path, told.status.as_u16(), media_type, &told.json);
        told
    }

    /// A task of an agent, made with its name.
    pub(crate) async fn task(&self, agent: &str, more: Value) -> String {
        let mut fields = serde_json::json!({ "task_id": agent, "agent_id": agent, "query": "q" });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let spec = TaskSpec::from_value(&fields).unwrap();
        self.tenure.create_task(spec).await.unwrap().spec.task_id.to_string()
    }

    /// Waits until something happened to somebody.
    pub(crate) async fn happened(&self, who: Subject, kind: EventKind) {
        let mut events = self.tenure.follow(who, 0);
        let happened = async { while events.next().await.unwrap().event != kind {} };
        tokio::time::timeout(LIMIT, happened).await.expect("it happens in time");
    }

    /// Shuts the interface down, and the host.
    pub(crate) async fn end(mut self) {
        drop(self.shutdown.take());
        tokio::time::timeout(LIMIT, self.serving).await.unwrap().unwrap().unwrap();
        self.gate.close();
        self.tenure.shutdown().await.unwrap();
    }

    /// Shuts the interface down while it may have things in progress.
    pub(crate) fn shut_down(&mut self) {
        drop(self.shutdown.take());
    }
}

fn agents(tenure: &Tenure, gate: &Arc<Semaphore>) {
    tenure
        .register_agent("echo", |context: RunContext| async move { Ok(context.query().to_owned().into()) })
        .unwrap();
    tenure
        .register_agent("fail", |_: RunContext| async {
            Err::<tenure::Answer, _>(tenure::AgentError::new("exception", "it went wrong"))
        })
        .unwrap();
    let gate = Arc::clone(gate);
    tenure
        .register_agent("held", move |context: RunContext| {
            let gate = Arc::clone(&gate);
            async move {
                tokio::select! {
                    permit = gate.acquire() => permit.into_iter().for_each(tokio::sync::SemaphorePermit::forget),
                    () = context.cancelled() => {}
                }
                Ok("let go".into())
            }
        })
        .unwrap();
    tenure
        .register_agent("ask", |context: RunContext| async move {
            match context.approval() {
                Some(answer) => Ok(format!("approved: {}", answer.approved).into()),
                None => Ok(tenure::Answer::AwaitingApproval { question: "may I?".into(), data: Value::Null }),
            }
        })
        .unwrap();
}

fn client() -> Client {
    // There is one by default once an agent has been made; it is the same.
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    Client::builder().no_proxy().build().unwrap()
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl Told {
    pub(crate) async fn of(response: Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        let json = serde_json::from_str(&text).unwrap_or_default();
        Self { status, headers, text, json }
    }

    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> &Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        &self.json
    }

    /// That it is a problem document of this status and kind.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, word: &str) -> &Value {
        self.expect(status);
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        assert_eq!(self.json["type"], format!("urn:tenure:problem:{word}"), "{}", self.text);
        assert_eq!(self.json["status"], status, "{}", self.text);
        assert!(self.json["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{}", self.text);
        assert!(self.json["instance"].as_str().is_some_and(|path| path.starts_with('/')), "{}", self.text);
        &self.json
    }

    /// That it names these fields as wrong.
    #[track_caller]
    pub(crate) fn invalid(&self, fields: &[&str]) {
        let errors = self.problem(422, "invalid")["errors"].as_array().cloned().unwrap_or_default();
        let named: Vec<&str> = errors.iter().map(|error| error["field"].as_str().unwrap()).collect();
        assert_eq!(named, fields, "{}", self.text);
        let told =
            |error: &Value| error["expected"].as_str().is_some_and(|text| !text.starts_with("expected"));
        assert!(errors.iter().all(told), "{}", self.text);
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}
