//! Secrets of agents stay where they are: no byte of one is in what is stored, written, shown or logged.

use std::path::Path;

use crate::endpoint::{Endpoint, Reply, delta, finish};
use crate::kit::*;

const KEY: &str = "sk-4f1c9e7d20-hunter2";
const TOKEN: &str = "hook-77aa31c5-hunter2";

/// An answer that repeats what was sent: a stream, an error, a document.
fn repeats(status: u16, media_type: &'static str, header: &'static str, shape: fn(&str) -> String) -> Reply {
    Box::new(move |headers| {
        let sent = headers[header].to_str().unwrap();
        let response = axum::http::Response::builder().status(status).header("content-type", media_type);
        response.body(shape(sent).into()).unwrap()
    })
}

/// That no file below a folder, whatever wrote it, has these bytes.
fn is_nowhere_below(folder: &Path, secret: &str) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += is_nowhere_below(&path, secret);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!found, "{} has {secret:?}", path.display());
        files += 1;
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_file_no_answer_and_no_log() {
    let streamed = |sent: &str| [delta("you sent "), delta(sent), finish("stop")].concat();
    let chat = Endpoint::new(vec![
        repeats(200, "text/event-stream", "authorization", streamed),
        repeats(401, "text/plain", "authorization", |sent| format!("{sent} is wrong")),
    ])
    .await;
    let hook = Endpoint::new(vec![
        repeats(200, "application/json", "x-token", |sent| format!("{{\"output\": \"you sent {sent}\"}}")),
        repeats(500, "text/plain", "x-token", |sent| format!("{sent} broke it")),
    ])
    .await;
    let place = Place::with(&format!(
        "[agents.writer]\nkind = \"chat\"\nbase_url = \"{}\"\nmodel = \"m\"\napi_key_env = \"WRITER_KEY\"\n\
         [agents.hook]\nkind = \"http\"\nurl = \"{}\"\nheaders_env = {{ X-Token = \"HOOK_TOKEN\" }}\n\
         [tasks.writer]\nagent_id = \"writer\"\nquery = \"q\"\n[tasks.hook]\nagent_id = \"hook\"\nquery = \"q\"\n",
        chat.url, hook.url
    ));
    let with_secrets = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("WRITER_KEY", KEY).env("HOOK_TOKEN", TOKEN).env("RUST_LOG", "trace");
        command
    };
    let mut started = place.start_with(with_secrets(&["serve", "--listen", "127.0.0.1:0"]));
    let address = started.line("listening on http://").trim_start_matches("listening on http://").to_owned();
    let server = Server { started, address };
    let mut said = String::new();
    for (task, class) in [("writer", "authentication"), ("hook", "server_error")] {
        let run = |status: &str| {
            let answer = server.post(&format!("/background/tasks/{task}/run"), r#"{"wait": true}"#);
            assert_eq!(answer.body["status"], status, "{answer:?}");
            answer.body
        };
        let completed = run("completed");
        let told = completed["result_preview"].as_str().unwrap().to_owned();
        assert!(told.starts_with("you sent ") && told.ends_with("***"), "{told}");
        let failed = run("failed");
        assert_eq!(failed["error"]["class"], class, "{failed}");
        for run in [completed, failed] {
            let id = run["run_id"].as_str().unwrap();
            for what in ["", "/attempts", "/events", "/workspace"] {
                said += &server.get(&format!("/background/runs/{id}{what}")).body.to_string();
            }
        }
    }
    for path in ["/background/agents", "/background/tasks", "/background/events", "/background/tree"] {
        said += &server.get(path).body.to_string();
    }
    for args in [&["config"][..], &["agents", "--json"], &["doctor"], &["run", "tenure.toml", "writer"]] {
        let output = with_secrets(args).output().unwrap();
        said += &String::from_utf8_lossy(&output.stdout);
        said += &String::from_utf8_lossy(&output.stderr);
    }
    server.started.signal(rustix::process::Signal::TERM);
    let done = server.started.done();
    assert!(done.err.contains("TRACE"), "it logs as much as it can");
    said += &done.out;
    said += &done.err;
    assert!(said.contains("WRITER_KEY") && said.contains("HOOK_TOKEN"), "their names are no secrets");
    for secret in [KEY, TOKEN] {
        assert!(!said.contains(secret), "{secret:?} was said");
        let files = is_nowhere_below(&place.path("."), secret);
        assert!(files > 10, "{files} files");
    }
}
