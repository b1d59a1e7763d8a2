//! What is no definition is refused by field, with what was expected.

use std::fmt::Write as _;

use serde_json::json;
use tenure::agents::AgentDefinition;

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
