//! What a program is told by its environment.

use std::ffi::OsString;
use std::path::Path;

use serde_json::json;

use crate::agents::check::HOST_PREFIXES;
use crate::agents::progress::{ADDRESS_VARIABLE, TOKEN_VARIABLE, Ticket};
use crate::instance::RunContext;
use crate::model::{Approval, ApprovalAnswer};

/// The longest query that is in the environment as well: a system takes no variable without end.
const MOST_IN_QUERY: usize = 32 * 1024;

/// The variables of one attempt.
pub(super) struct Given {
    /// By name.
    pub(super) variables: Vec<(&'static str, OsString)>,
    /// What every process of the attempt has in its environment, and no other process.
    pub(super) mark: Option<String>,
}

impl Given {
    pub(super) fn of(context: &RunContext, folder: Option<&Path>, ticket: Option<&Ticket>) -> Self {
        let (spec, query) = (context.spec(), context.query());
        let mut variables: Vec<(&'static str, OsString)> = vec![
            ("TENURE_RUN_ID", context.run_id().as_str().into()),
            ("TENURE_TASK_ID", spec.task_id.as_str().into()),
            ("TENURE_AGENT_ID", spec.agent_id.as_str().into()),
            ("TENURE_ATTEMPT", context.attempt().to_string().into()),
            ("TENURE_FENCE", context.fence().fence.to_string().into()),
            ("TENURE_SESSION_ID", context.session_id().into()),
        ];
        if query.len() <= MOST_IN_QUERY {
            variables.push(("TENURE_QUERY", query.into()));
        }
        if let Some(folder) = folder {
            variables.push(("TENURE_WORKSPACE", folder.into()));
        }
        if let Some(deadline) = crate::agents::deadline(context) {
            variables.push(("TENURE_DEADLINE", deadline.to_string().into()));
        }
        if let Some(answer) = context.approval() {
            variables.push(("TENURE_APPROVAL", answer_of(answer).into()));
        }
        if let Some(ticket) = ticket {
            variables.push((ADDRESS_VARIABLE, ticket.address.clone().into()));
            variables.push((TOKEN_VARIABLE, ticket.token.clone().into()));
        }
        // No variable can hold NUL; the query has it on standard input all the same.
        variables.retain(|(_, value)| !value.as_encoded_bytes().contains(&0));
        let mark = ticket.map(|ticket| format!("{TOKEN_VARIABLE}={}", ticket.token));
        Self { variables, mark }
    }
}

/// An answer from before answers had a limit may be longer than a variable can be: then yes or no is all that is told.
fn answer_of(answer: &ApprovalAnswer) -> String {
    // A little more for what is around the answer.
    let most = Approval::MOST_DATA_BYTES + 64;
    let whole = json!(answer).to_string();
    if whole.len() <= most { whole } else { json!({ "approved": answer.approved }).to_string() }
}

/// The variables of the host that its programs do not inherit: they hold its secrets.
#[allow(clippy::disallowed_methods, reason = "a program inherits the environment but for this")]
pub(super) fn kept_back() -> Vec<OsString> {
    let is_own = |name: &OsString| {
        let name = name.as_encoded_bytes();
        // What is told there is told of the host by itself.
        name == b"NOTIFY_SOCKET" || HOST_PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
    };
    std::env::vars_os().map(|(name, _)| name).filter(is_own).collect()
}
