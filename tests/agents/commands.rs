//! What a program is given, and what its end means.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::clock::SystemClock;
use tenure::model::{ApprovalAnswer, AttemptStatus, RunResult, RunStatus};
use tenure::store::MemoryStore;
use tenure::store::faulty::{Fault, Faulty, Method};

use crate::stage::{Stage, bash, bytes, error, retries, text, with_environment};

#[tokio::test(flavor = "multi_thread")]
async fn standard_output_is_the_result_and_is_in_the_workspace() {
    let stage = Stage::bash("printf 'hello\\n\\nworld  '").await;
    let run = stage.run(json!({})).await;
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(text(&run), "hello\n\nworld  ");
    assert_eq!(stage.file(&run, "output.md"), b"hello\n\nworld  ");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_query_is_on_standard_input_byte_for_byte() {
    let stage = Stage::with(json!({ "kind": "command", "command": ["cat"] })).await;
    let query = "  a\u{0}b\r\né\u{1f600} ";
    assert_eq!(text(&stage.run(json!({ "query": query })).await), query);
    let long = "0123456789abcdef".repeat(10_000);
    let run = stage.run(json!({ "query": long })).await;
    let Some(RunResult::File { size, path, preview, media_type }) = &run.result else {
        panic!("a long result lies in a file: {run:?}");
    };
    assert_eq!((*size, &**path, &**media_type), (160_000, "output.md", "text/plain; charset=utf-8"));
    assert_eq!(**preview, long[..1000]);
    assert_eq!(stage.file(&run, "output.md"), long.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_told_of_its_run_by_its_environment() {
    let stage = Stage::open().await;
    let command = json!({ "kind": "command", "command": ["env", "-0"], "env": { "MINE": "a=b\nc" } });
    stage.agent(command);
    let run = stage.run(json!({ "timeout_seconds": 50, "query": "what\nnow" })).await;
    let all = text(&run);
    let told: BTreeMap<&str, &str> = all.split('\0').filter_map(|pair| pair.split_once('=')).collect();
    let expected = [
        ("TENURE_RUN_ID", run.run_id.as_str()),
        ("TENURE_TASK_ID", "t"),
        ("TENURE_AGENT_ID", "agent"),
        ("TENURE_ATTEMPT", "1"),
        ("TENURE_FENCE", "1"),
        ("TENURE_SESSION_ID", "background:agent:t"),
        ("TENURE_QUERY", "what\nnow"),
        ("MINE", "a=b\nc"),
    ];
    for (name, value) in expected {
        assert_eq!(told.get(name), Some(&value), "{name}");
    }
    assert_eq!(told["TENURE_WORKSPACE"], stage.path(&run, "").to_str().unwrap().trim_end_matches('/'));
    assert!(told["TENURE_DEADLINE"].parse::<jiff::Timestamp>().is_ok());
    assert!(told["TENURE_PROGRESS"].starts_with("unix:"));
    assert_eq!(told["TENURE_PROGRESS_TOKEN"].len(), 32);
    assert_eq!(told.get("PATH").copied(), std::env::var("PATH").ok().as_deref(), "the rest is inherited");
    assert!(!told.contains_key("TENURE_APPROVAL"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_own_variables_do_not_reach_a_program() {
    let secrets = [
        ("TENURE_TOKEN", "hush"),
        ("TENURE_STORE", "postgres://u:hush@h"),
        ("OMNICOREAGENT_BACKGROUND_TASK_STORE_URL", "hush"),
    ];
    if with_environment("commands::the_hosts_own_variables_do_not_reach_a_program", &secrets) {
        return;
    }
    assert_eq!(std::env::var("TENURE_TOKEN").as_deref(), Ok("hush"));
    let stage = Stage::with(json!({ "kind": "command", "command": ["env"] })).await;
    let told = text(&stage.run(json!({})).await);
    assert!(told.contains("TENURE_RUN_ID=") && !told.contains("hush") && !told.contains("OMNI"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_in_the_folder_of_its_run_unless_its_definition_names_another() {
    let stage = Stage::bash("pwd -P; echo made > artifacts/made").await;
    let run = stage.run(json!({})).await;
    let folder = stage.path(&run, "").canonicalize().unwrap();
    assert_eq!(text(&run).trim_end(), folder.to_str().unwrap());
    assert_eq!(stage.file(&run, "artifacts/made"), b"made\n");
    let other = tempfile::tempdir().unwrap();
    let other = other.path().canonicalize().unwrap();
    stage.agent(json!({ "kind": "command", "command": ["pwd"], "working_directory": other }));
    assert_eq!(text(&stage.run(json!({})).await).trim_end(), other.to_str().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_code_is_a_failure_that_names_it_with_the_last_words() {
    let stage = Stage::bash("echo half; echo first >&2; echo 'no such city: Atlantis' >&2; exit 3").await;
    let run = stage.run(json!({})).await;
    assert_eq!(run.status, RunStatus::Failed);
    assert_eq!(&*error(&run).class, "exit_code");
    assert_eq!(&*error(&run).message, "the program ended with 3, expected 0: no such city: Atlantis");
    assert_eq!(stage.file(&run, "logs/attempt-1.stderr.log"), b"first\nno such city: Atlantis\n");
    assert_eq!(stage.file(&run, "output.md"), b"half\n", "what it wrote can be read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_program_is_tried_again_and_its_output_begins_anew() {
    let script = "echo attempt $TENURE_ATTEMPT; echo err $TENURE_ATTEMPT >&2; \
                  [ $TENURE_ATTEMPT = 2 ] || exit 75";
    let stage = Stage::bash(script).await;
    let run = stage.run(json!({ "retry_policy": retries(1) })).await;
    assert_eq!((run.status, run.attempt), (RunStatus::Completed, 2));
    assert_eq!(text(&run), "attempt 2\n");
    assert_eq!(stage.file(&run, "output.md"), b"attempt 2\n");
    assert_eq!(stage.file(&run, "logs/attempt-1.stderr.log"), b"err 1\n");
    assert_eq!(stage.file(&run, "logs/attempt-2.stderr.log"), b"err 2\n");
    let attempts = stage.tenure.attempts(&run.run_id).await.unwrap();
    let first = attempts[0].error.as_ref().unwrap();
    assert_eq!((attempts[0].status, &*first.class), (AttemptStatus::Failed, "temporary"));
    assert_eq!(first.within.as_deref(), Some("exception"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_may_name_what_is_tried_again_more_narrowly() {
    let stage = Stage::bash("[ $TENURE_ATTEMPT = 1 ] && exit 75; exit 4").await;
    let mut policy = retries(5);
    policy["retry_on"] = json!(["temporary"]);
    let run = stage.run(json!({ "retry_policy": policy })).await;
    assert_eq!((run.attempt, &*error(&run).class), (2, "exit_code"), "only 75 is tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_a_failure_that_names_it() {
    let stage = Stage::bash("echo dying >&2; kill -SEGV $$").await;
    let run = stage.run(json!({ "retry_policy": retries(1) })).await;
    assert_eq!((run.status, run.attempt), (RunStatus::Failed, 2));
    assert_eq!(&*error(&run).class, "signal");
    assert_eq!(&*error(&run).message, "the program was ended by SIGSEGV (signal 11): dying");
}

/// As the kernel does when memory is short. The host lives and saw it: the attempt is not lost, it has failed.
#[tokio::test(flavor = "multi_thread")]
async fn field_l29_a_program_that_is_killed_has_failed_and_is_tried_again() {
    let stage = Stage::bash("[ $TENURE_ATTEMPT = 2 ] && { printf done; exit; }; kill -KILL $$").await;
    let run = stage.run(json!({ "retry_policy": retries(1) })).await;
    assert_eq!((run.status, run.attempt, text(&run)), (RunStatus::Completed, 2, "done".to_owned()));
    let attempts = stage.tenure.attempts(&run.run_id).await.unwrap();
    let first = attempts[0].error.as_ref().unwrap();
    assert_eq!((attempts[0].status, &*first.class), (AttemptStatus::Failed, "signal"));
    assert_eq!(first.within.as_deref(), Some("exception"), "what policies try again that say nothing else");
    assert_eq!(&*first.message, "the program was ended by SIGKILL (signal 9)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_be_started_fails_at_once_and_says_why() {
    let stage = Stage::open().await;
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
    let missing = json!({ "kind": "command", "command": ["no-such-program-anywhere"] });
    let closed = json!({ "kind": "command", "command": [plain] });
    let mut lost = bash("true");
    lost["working_directory"] = json!(folder.path().join("gone"));
    let cases = [
        (missing, "not_found", "\"no-such-program-anywhere\" was not found"),
        (closed, "permission", "may not be run"),
        (lost, "configuration", "is not there"),
    ];
    for (definition, class, words) in cases {
        stage.agent(definition);
        let run = stage.run(json!({ "retry_policy": retries(3) })).await;
        assert_eq!((run.status, run.attempt), (RunStatus::Failed, 1), "{class}");
        assert_eq!(&*error(&run).class, class);
        assert!(error(&run).message.contains(words), "{}", error(&run).message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_are_kept_as_they_are() {
    let stage = Stage::bash("printf 'a\\xff\\xfe\\x00b'; printf '\\xc3\\x28\\n' >&2").await;
    let run = stage.run(json!({})).await;
    let (media_type, result) = bytes(&run);
    assert_eq!((&*media_type, &*result), ("application/octet-stream", &b"a\xff\xfe\x00b"[..]));
    assert_eq!(stage.file(&run, "output.md"), b"a\xff\xfe\x00b");
    assert_eq!(stage.file(&run, "logs/attempt-1.stderr.log"), b"\xc3\x28\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_that_are_closed_early_or_never_read_hold_up_nothing() {
    let query = "x".repeat(1_000_000);
    let scripts = [
        ("echo done", "done\n"),
        ("exec 0<&-; echo done", "done\n"),
        ("read -n 10 some; echo $some", "xxxxxxxxxx\n"),
        ("exec 0<&- 1>&- 2>&- 3>&-; exit 0", ""),
        ("echo early; exec 1>&- 2>&- 3>&-; cat > late; exit 0", "early\n"),
    ];
    for (script, expected) in scripts {
        let stage = Stage::bash(script).await;
        let run = stage.run(json!({ "query": query })).await;
        assert_eq!(run.status, RunStatus::Completed, "{script}: {:?}", run.error);
        assert_eq!(text(&run), expected, "{script}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_more_than_the_workspace_takes_fails_and_keeps_what_fitted() {
    let stage = Stage::open_with(|settings| {
        let limits = &mut settings.workspace.as_mut().unwrap().settings.limits;
        limits.max_file_bytes = 300_000;
    })
    .await;
    stage.agent(bash("yes 'one line of many'"));
    let run = stage.run(json!({ "retry_policy": retries(3) })).await;
    assert_eq!((run.status, run.attempt), (RunStatus::Failed, 1), "it would be the same again");
    assert_eq!(&*error(&run).class, "output_too_large");
    assert!(error(&run).message.contains("300000 bytes"), "{}", error(&run).message);
    let kept = stage.file(&run, "output.md");
    assert!(!kept.is_empty() && kept.len() <= 300_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_long_log_the_beginning_and_the_end_are_kept() {
    let script = "echo begin >&2; head -c 5000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo end >&2; exit 1";
    let stage = Stage::bash(script).await;
    let run = stage.run(json!({})).await;
    assert!(error(&run).message.ends_with(": end"), "{}", error(&run).message);
    let log = stage.file(&run, "logs/attempt-1.stderr.log");
    assert!(log.len() < 1_200_000, "{}", log.len());
    let log = String::from_utf8(log).unwrap();
    assert!(log.starts_with("begin\nxxx") && log.ends_with("xxx\nend\n"));
    assert!(log.contains("bytes are left out here]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_ask_a_person_and_is_told_the_answer() {
    let script = r#"
        if [ -z "$TENURE_APPROVAL" ]; then
            echo '{"awaiting_approval": {"question": "go on?", "data": {"cost": 1.50}}}' >&3
            exit 0
        fi
        printf '%s' "$TENURE_APPROVAL"
    "#;
    let stage = Stage::bash(script).await;
    let run = stage.run(json!({})).await;
    assert_eq!(run.status, RunStatus::AwaitingApproval);
    let approval = run.approval.as_ref().unwrap();
    assert_eq!((&*approval.question, &approval.data), ("go on?", &json!({ "cost": 1.50 })));
    let answer = ApprovalAnswer { approved: true, answer: json!({ "limit": 2 }) };
    stage.tenure.resume_run(&run.run_id, answer).await.unwrap();
    let told: Value = serde_json::from_str(&text(&stage.settled(&run).await)).unwrap();
    assert_eq!(told, json!({ "approved": true, "answer": { "limit": 2 } }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_asks_and_fails_has_failed() {
    let stage = Stage::bash(r#"echo '{"awaiting_approval": {"question": "?"}}' >&3; exit 1"#).await;
    assert_eq!(stage.run(json!({})).await.status, RunStatus::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_workspace_the_result_is_kept_with_the_run() {
    let stage = Stage::open_with(|settings| settings.workspace = None).await;
    stage.agent(bash("head -c 200000 /dev/zero | tr '\\0' x; echo ${TENURE_WORKSPACE-none}"));
    let run = stage.run(json!({})).await;
    assert_eq!(text(&run), format!("{}none\n", "x".repeat(200_000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_store_holds_up_the_output_and_loses_nothing_of_it() {
    let faulty = Arc::new(Faulty::new(Arc::new(MemoryStore::new(Arc::new(SystemClock)))));
    let stage = Stage::open_on(Arc::clone(&faulty) as _, |settings| {
        settings.lease = Duration::from_millis(500);
        settings.heartbeat = Some(Duration::from_millis(100));
        settings.grace = Some(Duration::from_secs(50));
    })
    .await;
    // The lease cannot be relied on from half a second on, until the store renews again.
    faulty.script(Method::Renew, (0..12).map(|_| Some(Fault::Refuse)));
    stage.agent(bash("for n in {1..30}; do echo $n; sleep 0.05; done"));
    let run = stage.run(json!({})).await;
    let all: String = (1..=30).map(|n| format!("{n}\n")).collect();
    assert_eq!((run.status, text(&run)), (RunStatus::Completed, all));
    assert!(faulty.calls(Method::Renew) > 12, "the outage was lived through");
}
