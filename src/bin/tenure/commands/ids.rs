//! Runs named by how their names begin.

use serde_json::Value;
use tenure::model::RunId;

use super::common::Session;
use super::pages::{HowMany, list};
use crate::client::Ask;
use crate::exit::{Exit, Failure};

/// How many of the newest runs are looked through.
const LOOKED_AT: usize = 1_000;
/// How many are told when several are meant.
const TOLD: usize = 3;
/// As long as the name of a run that is not cut.
const WHOLE: usize = 32;

/// The whole name: as it is given, or that of the one run among the newest that begins with it.
pub(super) async fn whole(session: &Session, given: &RunId) -> Result<String, Failure> {
    let given = given.as_str();
    if given.len() >= WHOLE {
        return Ok(given.to_owned());
    }
    match session.client.ask(Ask::get(["runs", given])).await {
        Err(failure) if failure.exit == Exit::NotFound => {}
        answer => return answer.map(|_| given.to_owned()),
    }
    let runs = list(session, Ask::get(["runs"]), "runs", &HowMany::up_to(LOOKED_AT)).await?.values()?;
    let names = runs.iter().filter_map(|run| run.get("run_id").and_then(Value::as_str));
    let found: Vec<&str> = names.filter(|name| name.starts_with(given)).collect();
    match found.as_slice() {
        [] => Ok(given.to_owned()),
        [only] => Ok((*only).to_owned()),
        several => {
            let message = format!("{} runs begin with \"{given}\"", several.len());
            let some: Vec<&str> = several.iter().copied().take(TOLD).collect();
            Err(Failure::usage(message).hint(format!("write more of the name: {}", some.join(", "))))
        }
    }
}
