//! Tasks whose agents nobody has who was asked: their runs wait.

use serde_json::Value;

use super::Finding;
use crate::client::{Ask, Client};
use crate::exit::Failure;

/// How many tasks are looked through.
pub(super) const MOST: usize = 1_000;
/// How many are told one by one.
const TOLD: usize = 5;

/// A finding for each task, with its agent that `whoever` does not have; for many of them the first, and how many more.
pub(super) fn found(whoever: &str, without: &[(String, String)]) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        without.iter().take(TOLD).map(|(task, agent)| one(whoever, task, agent)).collect();
    if let Some(more) = without.len().checked_sub(TOLD).filter(|more| *more > 0) {
        found.push(Finding::warn("task", format!("and {more} more, whose agents {whoever} does not have")));
    }
    found
}

fn one(whoever: &str, task: &str, agent: &str) -> Finding {
    Finding::warn("task", format!("{task}: {whoever} does not have its agent \"{agent}\""))
        .hint(format!("give it in the file of settings as `[agents.{agent}]`: until then its runs wait"))
}

/// Those of a server.
pub(super) async fn of_server(client: &Client) -> Result<Vec<Finding>, Failure> {
    let agents = client.ask(Ask::get(["agents"])).await?.value()?;
    let agents: Vec<&str> = texts(&agents, "agents", "agent_id").collect();
    let (mut without, mut looked_at, mut cursor) = (Vec::new(), 0, None::<String>);
    while looked_at < MOST {
        let ask = Ask::get(["tasks"]);
        let ask = cursor.iter().fold(ask, |ask, cursor| ask.query("cursor", cursor));
        let page = client.ask(ask).await?.value()?;
        let tasks = texts(&page, "tasks", "task_id").zip(texts(&page, "tasks", "agent_id"));
        for (task, agent) in tasks {
            looked_at += 1;
            if !agents.contains(&agent) {
                without.push((task.to_owned(), agent.to_owned()));
            }
        }
        cursor = page.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    Ok(found("the server", &without))
}

/// A field of each record of a list.
fn texts<'a>(answer: &'a Value, list: &str, field: &'static str) -> impl Iterator<Item = &'a str> + use<'a> {
    let records = answer.get(list).and_then(Value::as_array).into_iter().flatten();
    records.map(move |record| record.get(field).and_then(Value::as_str).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_tasks_the_first_are_told() {
        let without = vec![("t".to_owned(), "a".to_owned()); 7];
        let told = found("the server", &without);
        assert_eq!(told.len(), 6);
        assert_eq!(told[0].message, "t: the server does not have its agent \"a\"");
        assert!(told[5].message.starts_with("and 2 more"), "{:?}", told[5]);
        assert!(found("the server", &without[..5]).iter().all(|finding| finding.hint.is_some()));
    }
}
