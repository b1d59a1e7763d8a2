//! Problem documents, as failures of the program.

use serde::Deserialize;

use crate::exit::{Exit, Failure};

/// What is read of a problem document; whatever else is in it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    r#type: String,
    title: Option<String>,
    detail: Option<String>,
    instance: Option<String>,
    hint: Option<String>,
    #[serde(alias = "problems")]
    errors: Vec<Field>,
}

/// A field that was not taken.
#[derive(Debug, Deserialize)]
struct Field {
    field: String,
    expected: String,
}

/// The most fields that are told.
const MOST_FIELDS: usize = 20;

/// The failure that an answer with this status tells.
pub(super) fn failure(status: u16, retry_after: Option<&str>, body: &str) -> Failure {
    let problem: Problem = serde_json::from_str(body).unwrap_or_default();
    let failure = Failure::new(exit(status), message(status, &problem));
    match hint(status, retry_after, &problem) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn exit(status: u16) -> Exit {
    match status {
        400 | 405 | 411 | 413 | 414 | 415 | 422 => Exit::Usage,
        401 | 403 => Exit::NotAllowed,
        404 | 410 => Exit::NotFound,
        409 => Exit::Conflict,
        408 | 504 => Exit::Timeout,
        429 | 502 | 503 => Exit::Unavailable,
        _ => Exit::Failed,
    }
}

fn message(status: u16, problem: &Problem) -> String {
    let told = problem.detail.as_deref().or(problem.title.as_deref()).filter(|text| !text.trim().is_empty());
    if problem.errors.is_empty() {
        // What follows is said in the words of requests; the hint says it in those of the command line.
        let paused = problem.r#type.ends_with(":paused");
        let told = told.map(|told| if paused { told.split(": ").next().unwrap_or(told) } else { told });
        return told.map_or_else(|| format!("the server answered with status {status}"), str::to_owned);
    }
    let mut lines = vec!["not everything can be taken as it was given:".to_owned()];
    for Field { field, expected } in problem.errors.iter().take(MOST_FIELDS) {
        let expected = expected.strip_prefix("expected ").unwrap_or(expected);
        lines.push(format!("  {field}: expected {expected}"));
    }
    if let Some(more) = problem.errors.len().checked_sub(MOST_FIELDS).filter(|more| *more > 0) {
        lines.push(format!("  and {more} more"));
    }
    lines.join("\n")
}

/// The task that was asked for.
fn task_id(problem: &Problem) -> Option<&str> {
    let mut parts = problem.instance.as_deref()?.split('/').skip_while(|part| *part != "tasks");
    parts.nth(1).filter(|name| tenure::model::TaskId::new(*name).is_ok())
}

/// What to do next, in the words of the command line; else in those of the server.
fn hint(status: u16, retry_after: Option<&str>, problem: &Problem) -> Option<String> {
    let kind = problem.r#type.rsplit(':').next().unwrap_or_default();
    let hint = match (status, kind) {
        (401, _) => "give the server's token in the environment variable TENURE_TOKEN",
        (_, "paused") => {
            let task_id = task_id(problem).unwrap_or("TASK");
            return Some(format!(
                "resume it with `tenure tasks resume {task_id}`, or run it all the same with --override-pause"
            ));
        }
        (_, "exists") => "use another name, or change the one there is",
        _ => {
            let again = retry_after.map(|seconds| format!("try again in {seconds} s"));
            let said = problem.hint.clone();
            return said
                .or(again)
                .or_else(|| (status == 500).then(|| "the server's log says more".to_owned()));
        }
    };
    Some(hint.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn each_problem_has_its_exit_code_and_says_what_to_do() {
        let fields =
            r#"{"title": "invalid", "errors": [{"field": "query", "expected": "text that is not blank"}]}"#;
        let cases: [(u16, Option<&str>, &str); 14] = [
            (400, None, r#"{"detail": "the body is no JSON"}"#),
            (401, None, r#"{"title": "a token is needed"}"#),
            (403, None, r#"{"detail": "not over HTTP", "hint": "write it into the file"}"#),
            (404, None, r#"{"detail": "task \"x\" does not exist"}"#),
            (409, None, r#"{"type": "urn:tenure:problem:paused", "detail": "task \"x\" is paused"}"#),
            (409, None, r#"{"type": "urn:tenure:problem:exists", "detail": "task \"x\" already exists"}"#),
            (413, None, ""),
            (422, None, fields),
            (422, None, r#"{"title": "unprocessable", "detail": " "}"#),
            (429, Some("3"), "{}"),
            (500, None, "<html>"),
            (503, Some("1"), r#"{"detail": "the store refused: unavailable"}"#),
            (504, None, "null"),
            (302, None, "[]"),
        ];
        let mut table = String::new();
        for (status, retry_after, body) in cases {
            let Failure { exit, message, hint, .. } = failure(status, retry_after, body);
            writeln!(table, "{status} -> {exit:?}: {message}").unwrap();
            writeln!(table, "    hint: {}", hint.as_deref().unwrap_or("-")).unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn of_many_fields_the_first_are_told() {
        let field = r#"{"field": "a", "expected": "b"}"#;
        let body = format!("{{\"errors\": [{}]}}", vec![field; 50].join(","));
        let told = failure(422, None, &body).message;
        assert_eq!(told.lines().count(), 22);
        assert!(told.ends_with("  and 30 more"), "{told}");
    }
}
