//! The interface as a document, made from the handlers that serve it.

use utoipa::OpenApi as _;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Api, agents, auth, events, files, is_work, ownership, problem, runs, schemas, status, tasks};

/// What the document says beside its operations.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "tenure", description = include_str!("guide.md")),
    tags(
        (name = "tasks", description = "durable instructions"),
        (name = "runs", description = "lives of tasks, each from wanted to final"),
        (name = "events", description = "what happened, in order"),
        (name = "workspace", description = "the files of runs"),
        (name = "agents", description = "what executes queries"),
        (name = "ownership", description = "who owns what hosts in other languages execute themselves"),
        (name = "host", description = "how the host is"),
    ),
    components(schemas(schemas::Problem)),
    security(("token" = [])),
)]
struct Head;

/// What is answered within the request timeout.
pub(super) fn bounded() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(tasks::create, tasks::list))
        .routes(routes!(tasks::get, tasks::change, tasks::delete))
        .routes(routes!(tasks::status))
        .routes(routes!(tasks::occurrences))
        .routes(routes!(tasks::pause))
        .routes(routes!(tasks::resume))
        .routes(routes!(runs::list))
        .routes(routes!(runs::attempts))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::cancel_many))
        .routes(routes!(runs::resume))
        .routes(routes!(files::list))
        .routes(routes!(files::read))
        .routes(routes!(agents::list, agents::create))
        .routes(routes!(agents::get, agents::delete))
        .routes(routes!(ownership::acquire))
        .routes(routes!(ownership::renew))
        .routes(routes!(ownership::publish))
        .routes(routes!(ownership::inspect))
        .routes(routes!(ownership::inspect_session))
        .routes(routes!(ownership::declare_lost))
        .routes(routes!(ownership::reinstate))
        .routes(routes!(ownership::hand_over))
        .routes(routes!(ownership::cancel))
        .routes(routes!(ownership::next_task_id))
        .routes(routes!(ownership::forget))
        .routes(routes!(ownership::acknowledge))
        .routes(routes!(ownership::reap))
        .routes(routes!(ownership::register))
        .routes(routes!(status::status))
        .routes(routes!(status::tree))
        .routes(routes!(status::healthz))
        .routes(routes!(status::readyz))
        .routes(routes!(status::metrics))
        .routes(routes!(status::document))
}

/// What may wait for a run, or goes on as a stream: these bound each step themselves.
pub(super) fn waiting() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(tasks::run))
        .routes(routes!(runs::get))
        .routes(routes!(runs::retry))
        .routes(routes!(events::of_run))
        .routes(routes!(events::of_all))
        .routes(routes!(ownership::release_session))
        .routes(routes!(ownership::watch))
}

/// The interface as an OpenAPI 3.1 document.
#[must_use]
pub fn openapi() -> OpenApi {
    let mut document = Head::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document.merge(bounded().merge(waiting()).into_openapi());
    let token = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    if let Some(components) = &mut document.components {
        components.add_security_scheme("token", token);
    }
    let paths = std::mem::take(&mut document.paths.paths);
    for (path, mut item) in paths {
        let operations = [
            (&mut item.get, false),
            (&mut item.post, true),
            (&mut item.patch, true),
            (&mut item.delete, false),
        ];
        for (operation, takes_body) in operations {
            operation.iter_mut().for_each(|operation| complete(operation, &path, takes_body));
        }
        // The rest of a path is a name like any other in the document.
        document.paths.paths.insert(path.replace("{*", "{"), item);
    }
    document
}

/// Operations that ask nothing of the store.
const WITHOUT_STORE: [&str; 3] = ["tree", "list_agents", "get_agent"];

/// What every operation of its kind may answer.
fn common(operation: &Operation, path: &str, takes_body: bool) -> Vec<(u16, &'static str)> {
    let id = operation.operation_id.as_deref().unwrap_or_default();
    let mut common = Vec::new();
    let mut may = |applies: bool, status: u16, description: &'static str| {
        if applies {
            common.push((status, description));
        }
    };
    let takes_name = path.contains('{');
    let work = is_work(path);
    let owned = path.starts_with("/ownership/");
    let guarded = !auth::OPEN.contains(&path);
    may(takes_name || takes_body, 400, "the request cannot be read");
    may(guarded, 401, "a token is needed");
    may(guarded, 403, "a page of another site asked, and no token is set");
    may(takes_name, 404, "there is no such thing");
    may(owned, 404, "another namespace, or ownership, is not served here");
    may(work && id != "read_file", 406, "no answer is of an accepted media type");
    may(takes_body, 408, "the body took too long to arrive");
    may(takes_body, 413, "the body is too large");
    may(takes_body, 415, "the body is no JSON by its media type");
    may(guarded, 421, "this host has another name, and no token is set");
    may(work, 422, "what was given cannot be taken; `errors` names each field");
    let stored = work && !WITHOUT_STORE.contains(&id);
    may(stored, 503, "the store does not answer, too much is asked at once, or the host is shutting down");
    common
}

fn complete(operation: &mut Operation, path: &str, takes_body: bool) {
    for (status, description) in common(operation, path, takes_body) {
        let responses = &mut operation.responses.responses;
        responses.entry(status.to_string()).or_insert_with(|| RefOr::T(failure(description)));
    }
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response
            && (status.starts_with('4') || status.starts_with('5'))
            && let Some(content) = response.content.shift_remove("application/json")
        {
            let kind = if is_problem(&content) { problem::MEDIA_TYPE } else { "application/json" };
            response.content.insert(kind.to_owned(), content);
        }
    }
}

fn is_problem(content: &RefOr<utoipa::openapi::Content>) -> bool {
    let reference = Ref::from_schema_name("Problem");
    let RefOr::T(content) = content else { return false };
    matches!(&content.schema, Some(RefOr::Ref(schema)) if schema.ref_location == reference.ref_location)
}

fn failure(description: &str) -> Response {
    let schema = Some(Ref::from_schema_name("Problem"));
    let content = ContentBuilder::new().schema(schema).build();
    ResponseBuilder::new().description(description).content("application/json", content).build()
}
