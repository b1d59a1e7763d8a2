//! Whether the server can be asked.

use super::{Finding, agentless};
use crate::client::{Ask, Client};
use crate::exit::Exit;

/// Looks at the server that is named; else at the one that the settings would start.
pub(super) async fn look(
    named: Option<&str>,
    own: Option<String>,
    token: Option<String>,
    found: &mut Vec<Finding>,
) {
    let Some(url) = named.map(str::to_owned).or(own) else { return };
    let client = match Client::server(&url, token) {
        Ok(client) => client,
        Err(failure) => return found.push(Finding::failed("server", failure)),
    };
    match client.ask(Ask::beside("readyz")).await {
        Ok(_) => found.push(Finding::ok("server", format!("{url} is ready"))),
        Err(_) if named.is_none() => {
            let finding = Finding::ok("server", format!("none at {url}: the store is asked itself"));
            return found.push(finding.hint("`tenure serve` starts one; --url names another"));
        }
        Err(failure) => {
            let failed = failure.exit;
            found.push(Finding::failed("server", failure));
            if failed == Exit::Unavailable {
                return;
            }
        }
    }
    match client.ask(Ask::get(["status"])).await {
        Ok(_) => found.push(Finding::ok("token", "the server takes what this program shows")),
        Err(failure) => return found.push(Finding::failed("token", failure)),
    }
    // The store of this one was looked at already.
    if named.is_some() {
        let tasks = agentless::of_server(&client).await;
        found.extend(tasks.unwrap_or_else(|failure| vec![Finding::failed("tasks", failure)]));
    }
}
