//! Agents: what executes queries here. Secrets are only ever names of variables of the environment.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Serialize;
use serde_json::{Map, Value};

use super::body::Given;
use super::names::Named;
use super::problem::{Answer, Kind, Problem};
use super::{Api, answer, query, schemas};
use crate::agents::{AgentDefinition, AgentView};
use crate::error::Error;
use crate::model::AgentId;

#[derive(Serialize)]
struct Agents {
    agents: Vec<AgentView>,
    total: usize,
}

/// The agents of this host, by name
#[utoipa::path(get, path = "/background/agents", tag = "agents", operation_id = "list_agents",
    responses((status = 200, body = schemas::Agents)))]
pub(super) async fn list(State(api): State<Api>, parts: Parts) -> Answer {
    query::nothing(&parts)?;
    let agents = api.directory().list();
    answer::ok(&Agents { total: agents.len(), agents })
}

/// An agent of this host
#[utoipa::path(get, path = "/background/agents/{agent_id}", tag = "agents", operation_id = "get_agent",
    params(("agent_id" = String, Path, description = "the agent")),
    responses((status = 200, body = schemas::Agent)))]
pub(super) async fn get(State(api): State<Api>, parts: Parts, Named(agent_id): Named<AgentId>) -> Answer {
    query::nothing(&parts)?;
    let missing = || Error::NotFound { kind: "agent", id: agent_id.to_string() };
    answer::ok(&api.directory().get(&agent_id).ok_or_else(missing)?)
}

/// Makes an agent
///
/// Only where the settings allow it, and never one that runs programs: those come from the file alone.
#[utoipa::path(post, path = "/background/agents", tag = "agents", operation_id = "create_agent",
    request_body = schemas::NewAgent,
    responses(
        (status = 201, body = schemas::Agent, headers(("Location" = String, description = "where it is"))),
        (status = 403, description = "the settings do not allow it, or it would run programs",
         body = schemas::Problem),
        (status = 409, description = "there is an agent of that name", body = schemas::Problem),
    ))]
pub(super) async fn create(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    query::nothing(&parts)?;
    allowed(&api)?;
    let (agent_id, fields) = read(&given)?;
    if fields.get("kind").is_some_and(|kind| kind == "command") {
        return Err(Problem::new(Kind::Forbidden, "an agent that runs programs cannot be made by a request")
            .hint("put it into the file that this host was started with"));
    }
    let definition = AgentDefinition::from_value(Value::Object(fields))?;
    let view = api.directory().create(agent_id.clone(), definition).await?;
    answer::at(StatusCode::CREATED, &format!("/background/agents/{agent_id}"), &view)
}

/// An agent is its name and the fields of its definition.
fn read(given: &Given) -> Result<(AgentId, Map<String, Value>), Problem> {
    given.text()?;
    let mut fields: Map<String, Value> = given.read()?;
    match fields.remove("agent_id") {
        Some(Value::String(name)) => Ok((AgentId::new(name)?, fields)),
        Some(other) => {
            Err(Problem::field("agent_id", format!("text, found {}", query::shown(&other.to_string()))))
        }
        None => Err(Problem::field("agent_id", "the name of the agent, found nothing")),
    }
}

/// Removes an agent that was made by a request
///
/// Its tasks stay; their runs wait until there is such an agent again, and say so.
#[utoipa::path(delete, path = "/background/agents/{agent_id}", tag = "agents", operation_id = "delete_agent",
    params(("agent_id" = String, Path, description = "the agent")),
    responses(
        (status = 200, body = schemas::AgentDone),
        (status = 403, description = "the settings do not allow it", body = schemas::Problem),
    ))]
pub(super) async fn delete(State(api): State<Api>, parts: Parts, Named(agent_id): Named<AgentId>) -> Answer {
    query::nothing(&parts)?;
    allowed(&api)?;
    api.directory().remove(&agent_id).await?;
    answer::ok(&BTreeMap::from([("status", "deleted"), ("agent_id", agent_id.as_str())]))
}

fn allowed(api: &Api) -> Result<(), Problem> {
    if api.options().allow_agents {
        return Ok(());
    }
    Err(Problem::new(Kind::Forbidden, "agents are not made or removed by requests here")
        .hint("set allow_agents = true in the section [server] of the file"))
}
