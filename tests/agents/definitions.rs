//! What is no definition is refused by field, with what was expected.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::json;
use tenure::agents::AgentDefinition;
use tenure::model::TaskSpec;

fn check(definition: &serde_json::Value) -> String {
    match AgentDefinition::from_value(definition.clone()) {
        Ok(definition) => format!("a {} agent\n", definition.kind()),
        Err(invalid) => invalid.problems.into_iter().fold(String::new(), |mut text, problem| {
            writeln!(text, "{}: {}", problem.field, problem.expected).unwrap();
            text
        }),
    }
}

#[test]
fn definitions_are_checked() {
    let chat = |field: &str, value: serde_json::Value| {
        let mut all = json!({ "kind": "chat", "base_url": "https://api.example.com/v1", "model": "m" });
        all[field] = value;
        all
    };
    let http = |field: &str, value: serde_json::Value| {
        let mut all = json!({ "kind": "http", "url": "https://example.com/hook?a=b" });
        all[field] = value;
        all
    };
    let command = |field: &str, value: serde_json::Value| {
        let mut all = json!({ "kind": "command", "command": ["df", "-h"] });
        all[field] = value;
        all
    };
    let definitions = [
        json!([]),
        json!({}),
        json!({ "kind": "comand" }),
        json!({ "kind": 1 }),
        command("stop_grace_seconds", json!(0.5)),
        command("command", json!([])),
        command("command", json!([" "])),
        command("command", json!("df -h")),
        command("command", json!(["df", 1])),
        command("command", json!(["df", "a\u{0}b"])),
        command("comand", json!([])),
        command("env", json!({ "1A": "x", "A=B": "x", "": "x", "OK": "a\u{0}", "TENURE_TOKEN": "x" })),
        command("env", json!({ "A": 1 })),
        command("working_directory", json!("")),
        command("stop_grace_seconds", json!(-1)),
        json!({ "kind": "command" }),
        chat("api_key_env", json!("API_KEY")),
        chat("base_url", json!("api.example.com")),
        chat("base_url", json!("ftp://example.com")),
        chat("base_url", json!("http://")),
        chat("base_url", json!("https://user:hush@example.com/v1?key=hush#x")),
        chat("model", json!("  ")),
        chat("api_key_env", json!("sk-123")),
        chat("api_key_env", json!("TENURE_TOKEN")),
        chat("api_key", json!("hush")),
        chat("system_instruction", json!("a\u{0}")),
        http("headers_env", json!({ "Authorization": "HOOK_AUTH" })),
        http("url", json!("/hook")),
        http("headers_env", json!({ "a b": "X", "Content-Type": "X", "x": "not a name" })),
        json!({ "kind": "http", "url": "http://h", "headers": {} }),
    ];
    let told: Vec<String> = definitions.iter().map(|one| format!("{one}\n{}", check(one))).collect();
    assert!(told.iter().all(|text| !text.lines().skip(1).any(|line| line.contains("hush"))));
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn a_definition_is_written_as_it_is_read() {
    let text = r#"{"kind":"chat","base_url":"https://e.com/v1","model":"m","api_key_env":"K"}"#;
    let definition = AgentDefinition::parse(text).unwrap();
    assert_eq!(serde_json::to_string(&definition).unwrap(), text);
    let read: AgentDefinition = serde_json::from_str(text).unwrap();
    assert_eq!(read, definition);
    let refused = serde_json::from_str::<AgentDefinition>(r#"{"kind":"chat","model":1}"#).unwrap_err();
    assert!(refused.to_string().contains("\"model\""), "{refused}");
}

/// Names that a refusal says it knows.
fn known(refusal: &str) -> Vec<String> {
    let expected = refusal.split_once("expected").map_or("", |(_, expected)| expected);
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What of this is no word of the page.
fn missing(page: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let is_of_a_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = page.split(|c| !is_of_a_word(c)).collect();
    names.into_iter().filter(|name| !words.contains(name.as_str())).collect()
}

#[test]
fn every_key_of_an_agent_and_of_a_task_is_on_the_page_of_the_configuration() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CONFIGURATION.md")).unwrap();
    let (_, agents) = page.split_once("\n## Agents").unwrap();
    let (agents, tasks) = agents.split_once("\n## Tasks").unwrap();
    for (kind, most_known) in
        [("command", "stop_grace_seconds"), ("chat", "api_key_env"), ("http", "headers_env")]
    {
        let mut keys = known(&check(&json!({ "kind": kind, "colour": 1 })));
        assert!(keys.iter().any(|key| key == most_known), "{keys:?}");
        keys.extend(["kind".to_owned(), kind.to_owned()]);
        assert_eq!(missing(agents, keys), [""; 0], "keys of the kind \"{kind}\"");
    }
    for (field, one) in [
        ("", "concurrency_limit"),
        ("schedule", "catch_up_spread_seconds"),
        ("retry_policy", "max_interruptions"),
        ("session_policy", "session_id"),
        ("workspace_policy", "write_events_jsonl"),
    ] {
        let unknown = json!({ "colour": 1 });
        let task = if field.is_empty() { unknown } else { json!({ field: unknown }) };
        let refusal = TaskSpec::from_value(&task).unwrap_err();
        let refusal = refusal.problems.iter().find(|problem| problem.field.ends_with("colour")).unwrap();
        let keys = known(&refusal.expected);
        assert!(keys.iter().any(|key| key == one), "{keys:?}");
        assert_eq!(missing(tasks, keys), [""; 0], "keys of a task {field}");
    }
}
