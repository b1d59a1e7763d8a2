//! The brief's documentation, by `curl` against the program: its endpoints and its fields, in its order.

use crate::curl;
use crate::kit::*;

/// The agent of the documentation. It never ends where it is asked for a whole night.
const CONFIG: &str = r#"
[server]
allow_agents = true
agent_env = ["WRITER_KEY"]
default_agent = "system_monitor"
[agents.system_monitor]
kind = "command"
command = ["sh", "-c", "query=$(cat); case $query in *night*) exec sleep 600;; esac; echo \"done: $query\""]
"#;

#[test]
fn the_flow_of_the_documentation_works_by_curl_as_it_is_written() {
    if !curl::is_there() {
        return;
    }
    let place = Place::with(CONFIG);
    let server = place.serve(&[]);
    let told = curl::transcript(&place, &server, include_str!("brief.sh"), "localhost:8000");
    let told = curl::steady(&told);
    let lines = told.lines().map(|line| match line.starts_with(['{', '[']) {
        true => curl::one_under_the_other(line),
        false => line.to_owned(),
    });
    insta::assert_snapshot!("brief", lines.collect::<Vec<_>>().join("\n"));
}
