//! Who is served.

use reqwest::Method;
use serde_json::json;
use tenure::agents::Directory;
use tenure::http::{Api, HttpOptions, Token};
use tokio::net::TcpListener;

use crate::schema;
use crate::support::Served;

#[tokio::test(flavor = "multi_thread")]
async fn without_the_token_nothing_is_told_and_nothing_done() {
    let options = HttpOptions { token: Some(Token::new("s3cret")), ..HttpOptions::default() };
    let mut served = Served::with(options).await;
    for (path, method, _) in schema::operations() {
        let path = path.replace(['{', '}'], "x");
        let method: Method = method.to_ascii_uppercase().parse().unwrap();
        if ["/healthz", "/readyz"].contains(&path.as_str()) {
            served.call(method, &path).await.expect(200);
            continue;
        }
        for wrong in
            [None, Some("Bearer wrong"), Some("Bearer s3cret0"), Some("Basic s3cret"), Some("Bearer")]
        {
            let request = served.request(method.clone(), &path);
            let request = match wrong {
                Some(wrong) => request.header("authorization", wrong),
                None => request,
            };
            let told = served.ask("/nothing", request).await;
            told.problem(401, "unauthorized");
            assert_eq!(told.header("www-authenticate"), "Bearer realm=\"tenure\"");
            assert!(!told.text.contains("s3cret"));
        }
    }
    served.get("/nothing").await.problem(401, "unauthorized");
    served.token("s3cret");
    served.get("/background/tasks").await.expect(200);
    served.get("/nothing").await.problem(404, "not_found");
    // The next options hold at once.
    served.api.reload(HttpOptions { token: Some(Token::new("other")), ..HttpOptions::default() });
    served.get("/background/tasks").await.problem(401, "unauthorized");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_only_this_machine_is_served_and_no_page_of_another_site() {
    let served = Served::new().await;
    let port = served.address.port();
    let with = |name: &'static str, value: String| {
        served.request(Method::POST, "/background/tasks").header(name, value).json(&json!({
            "task_id": "t", "agent_id": "echo", "query": "q"
        }))
    };
    for host in ["evil.example".to_owned(), format!("evil.example:{port}")] {
        served.ask("/nothing", with("host", host)).await.problem(421, "misdirected");
    }
    for origin in ["http://evil.example", "null", "http://localhost:1"] {
        served.ask("/nothing", with("origin", origin.to_owned())).await.problem(403, "forbidden");
    }
    assert_eq!(served.get("/background/tasks").await.expect(200)["total"], 0);
    let own = format!("http://127.0.0.1:{port}");
    served.ask("/background/tasks", with("origin", own)).await.expect(201);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_machines_are_not_listened_to_without_a_token() {
    let served = Served::new().await;
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let directory = Directory::open(served.tenure.clone()).await.unwrap();
    let api = Api::new(served.tenure.clone(), directory, HttpOptions::default());
    let refused = api.serve(listener, std::future::pending()).await.unwrap_err();
    assert!(refused.to_string().contains("no token is set"), "{refused}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_made_by_requests_only_where_that_is_allowed_and_never_such_that_run_programs() {
    let served = Served::new().await;
    let chat = json!({ "agent_id": "c", "kind": "chat", "base_url": "http://localhost:1", "model": "m" });
    served.post("/background/agents", chat.clone()).await.problem(403, "forbidden");
    served.call(Method::DELETE, "/background/agents/echo").await.problem(403, "forbidden");
    served.api.reload(HttpOptions { allow_agents: true, ..HttpOptions::default() });
    let command = json!({ "agent_id": "c", "kind": "command", "command": ["true"] });
    served.post("/background/agents", command).await.problem(403, "forbidden");
    let nameless = json!({ "kind": "chat", "base_url": "http://localhost:1", "model": "m" });
    served.post("/background/agents", nameless).await.invalid(&["agent_id"]);
    let agents = served.get("/background/agents").await;
    assert_eq!(agents.expect(200)["total"], 4);
    let echo = served.get("/background/agents/echo").await;
    assert_eq!(echo.expect(200), &json!({ "agent_id": "echo", "kind": "function", "source": "host" }));
    let mut wrong = chat.clone();
    wrong["modle"] = json!("m");
    served.post("/background/agents", wrong).await.invalid(&["modle"]);

    let mut chat = chat;
    for other in ["PATH", "TENURE_TOKEN"] {
        chat["api_key_env"] = json!(other);
        served.post("/background/agents", chat.clone()).await.invalid(&["api_key_env"]);
    }
    chat["api_key_env"] = json!("SOME_KEY");
    let made = served.post("/background/agents", chat.clone()).await;
    assert_eq!(made.expect(201)["source"], "stored");
    assert_eq!(made.header("location"), "/background/agents/c");
    assert_eq!(served.get("/background/agents/c").await.expect(200), &made.json);
    served.post("/background/agents", chat).await.problem(409, "exists");
    let deleted = served.call(Method::DELETE, "/background/agents/c").await;
    assert_eq!(deleted.expect(200), &json!({ "agent_id": "c", "status": "deleted" }));
    served.get("/background/agents/c").await.problem(404, "not_found");
    let own = served.call(Method::DELETE, "/background/agents/echo").await;
    assert_eq!(own.status, 422, "one of the host's code is not removed by a request: {}", own.text);
    served.end().await;
}
