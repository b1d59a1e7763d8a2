//! The host: how it is, its agents, its tree.

use serde_json::Value;

use super::list::{Column, painted, table};
use super::record::Record;
use super::tasks::counts;
use super::times::seconds;
use super::{Look, at, entries, text};

/// How the host is.
pub(crate) fn status_record(look: &Look, status: &Value) -> String {
    let health = at(status, "health");
    let runs = at(status, "running") == &Value::Bool(true);
    let running = match at(health, "draining") {
        _ if runs => painted(look, "running"),
        Value::Bool(false) => "none was asked: this is straight from the store".to_owned(),
        _ => "not running".to_owned(),
    };
    let instance = if look.straight { String::new() } else { text(status, "worker_id") };
    let stored = match at(health, "store.state").as_str().or_else(|| at(health, "store").as_str()) {
        Some(state) => state.replace('_', " "),
        None => String::new(),
    };
    Record::default()
        .line("host", running)
        .line("instance", instance)
        .line("store", stored)
        .line("draining", Some(text(health, "draining")).filter(|d| d != "false").unwrap_or_default())
        .line("executing", text(health, "executing"))
        .line("unstored", Some(text(health, "unstored")).filter(|n| n != "0").unwrap_or_default())
        .line("lease", seconds(at(status, "lease_seconds")))
        .line("agents", text(status, "agents"))
        .line("tasks", text(status, "tasks"))
        .line("runs", text(status, "runs"))
        .line("active", text(status, "active_runs"))
        .line("by status", counts(at(status, "status_counts")))
        .text()
}

/// Agents, a line each.
pub(crate) fn agents_table(look: &Look, agents: &[Value]) -> String {
    let columns =
        [Column::Name("AGENT"), Column::Short("KIND"), Column::Short("SOURCE"), Column::Text("WHAT IT DOES")];
    let row =
        |agent: &Value| [text(agent, "agent_id"), text(agent, "kind"), text(agent, "source"), what(agent)];
    table(look, columns, agents.iter().map(row).collect(), "no agents")
}

fn what(agent: &Value) -> String {
    match at(agent, "kind").as_str() {
        Some("command") => command(agent),
        Some("chat") => format!("asks {} at {}", text(agent, "model"), text(agent, "base_url")),
        Some("http") => format!("posts to {}", text(agent, "url")),
        _ => String::new(),
    }
}

fn command(agent: &Value) -> String {
    let words: Vec<String> = entries(agent, "command").iter().filter_map(Value::as_str).map(quoted).collect();
    if words.is_empty() { words.concat() } else { format!("runs {}", words.join(" ")) }
}

fn quoted(word: &str) -> String {
    let word = crate::output::plain(word);
    let plain = |c: char| c.is_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into_owned() } else { format!("{word:?}") }
}

/// An agent in full.
pub(crate) fn agent_record(look: &Look, agent: &Value) -> String {
    let mut record = Record::default()
        .line("agent", text(agent, "agent_id"))
        .line("kind", text(agent, "kind"))
        .line("source", text(agent, "source"))
        .line("command", command(agent).trim_start_matches("runs ").to_owned());
    for (name, path) in [
        ("folder", "working_directory"),
        ("endpoint", "base_url"),
        ("url", "url"),
        ("model", "model"),
        ("key in", "api_key_env"),
    ] {
        record = record.line(name, text(agent, path));
    }
    record = record.line("environment", pairs(at(agent, "env")));
    record = record.line("headers", pairs(at(agent, "headers_env")));
    record
        .line("changed", look.when_exactly(agent, "updated_at"))
        .below("told first", &text(agent, "system_instruction"))
        .text()
}

/// `NAME = value`, a line each.
fn pairs(object: &Value) -> String {
    let Some(fields) = object.as_object() else { return String::new() };
    fields.keys().map(|name| format!("{name} = {}", text(object, name))).collect::<Vec<_>>().join("\n")
}

/// The live supervision tree, drawn as the library draws it.
pub(crate) fn tree_text(tree: &Value) -> String {
    let generations = entries(tree, "generations");
    let mut lines = vec!["app".to_owned()];
    if generations.is_empty() {
        lines.push("`- no open generation".to_owned());
    }
    for (n, generation) in generations.iter().enumerate() {
        let (branch, indent) = if n + 1 == generations.len() { ("`-", "   ") } else { ("|-", "|  ") };
        let state = if at(generation, "open") == &Value::Bool(true) { "open" } else { "sealed" };
        let epoch = text(generation, "epoch");
        lines.push(format!("{branch} g{epoch}  epoch {epoch}, {state}"));
        draw(&mut lines, indent, &rows(generation));
    }
    lines.join("\n")
}

/// Name, id and remark of every line below a generation's own.
fn rows(generation: &Value) -> Vec<[String; 3]> {
    let lives = |path| at(generation, path) == &Value::Bool(true);
    let children = entries(generation, "children");
    let processes = children.iter().filter(|child| at(child, "bound") == &Value::Bool(true)).count();
    let mut rows = Vec::new();
    if lives("registry") {
        rows.push(["registry#1".to_owned(), String::new(), format!("processes {processes}")]);
    }
    if lives("operations") {
        let active = text(generation, "active_operations");
        rows.push(["operations#1".to_owned(), String::new(), format!("active {active}")]);
    }
    rows.extend(children.iter().map(child));
    rows
}

fn child(child: &Value) -> [String; 3] {
    let process = text(child, "process");
    let given_up = !process.is_empty() && at(child, "bound") != &Value::Bool(true);
    let mut remark = Vec::new();
    remark.extend(given_up.then(|| "given up".to_owned()));
    remark.extend(patience(at(child, "patience")).map(|patience| format!("patience {patience}")));
    let name = format!("{}#{}", text(child, "name.role"), text(child, "name.incarnation"));
    let id = if process.is_empty() { "service".to_owned() } else { format!("id {process}") };
    [name, id, remark.join("   ")]
}

fn patience(value: &Value) -> Option<String> {
    match value {
        Value::String(word) if word == "kill" => Some("none".to_owned()),
        Value::String(word) => Some(word.clone()),
        Value::Object(_) => Some(format!("{}ms", text(value, "time"))),
        _ => None,
    }
}

fn draw(lines: &mut Vec<String>, indent: &str, rows: &[[String; 3]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (names, ids) = (width(0), width(1));
    for (n, [name, id, remark]) in rows.iter().enumerate() {
        let branch = if n + 1 == rows.len() { "`-" } else { "|-" };
        let what = if id.is_empty() { remark.clone() } else { format!("{id:ids$}   {remark}") };
        lines.push(format!("{indent}{branch} {name:names$}   {}", what.trim_end()));
    }
}
