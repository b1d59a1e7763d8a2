//! What is asked of ownership, read from the fields of a body: all that is wrong with them is told at once.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::http::fields::Fields;
use crate::http::query::shown;
use crate::model::{CancelMode, InstanceId, Seconds, Token};
use crate::ownership::{
    Acquire, Cancel, CancelScope, Declared, Held, IdempotencyKey, Outcome, Release, Retention, SessionKey,
    TaskKey, digest, token_text,
};

/// The most leases that are renewed by one request.
pub(super) const MOST_LEASES: usize = 10_000;

/// The longest that somebody may say why, and who they are.
const MOST_REASON_BYTES: usize = 4 << 10;
const MOST_NAME_BYTES: usize = 255;

/// How long a release waits for what runs if nothing is said.
const WAIT: Seconds = Seconds::new(10);

pub(super) fn session(fields: &mut Fields) -> Option<SessionKey> {
    let (namespace, source) = (fields.need::<String>("namespace"), fields.need::<String>("source"));
    let session = fields.need::<String>("session");
    fields.take(SessionKey::new(namespace?, source?, session?))
}

pub(super) fn task(fields: &mut Fields) -> Option<TaskKey> {
    let (session, task) = (session(fields), fields.need("task"));
    Some(session?.task(task?))
}

/// A token as it is shown.
#[derive(Deserialize)]
struct Shown(#[serde(deserialize_with = "token_text::deserialize")] Token);

pub(super) fn held(fields: &mut Fields) -> Option<Held> {
    let (key, run, token) = (task(fields), fields.need("run"), fields.need::<Shown>("token"));
    Some(Held { key: key?, run: run?, token: token?.0 })
}

/// One start of a program, by the id that it drew.
pub(super) fn instance(fields: &mut Fields, name: &'static str) -> Option<InstanceId> {
    let text = fields.need::<String>(name)?;
    let read = serde_json::from_value(Value::String(text.clone()));
    if read.is_err() {
        let expected = "32 hexadecimal digits, drawn at each start of the program";
        fields.refuse(name, format!("{expected}, found {}", shown(&text)));
    }
    read.ok()
}

/// A length of time; that of the settings if nothing is said.
pub(super) fn ttl(fields: &mut Fields, lease: Seconds) -> Seconds {
    fields.may("ttl").unwrap_or(lease)
}

/// What makes a repeated start the same task. The digest of who asks, or ours.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeated {
    key: Arc<str>,
    #[serde(default)]
    digest: Option<u64>,
}

pub(super) fn acquire(fields: &mut Fields, lease: Seconds) -> Option<Acquire> {
    let key = task(fields);
    let (owner, request_id) = (instance(fields, "owner"), fields.need("request_id"));
    let (revision, ttl) = (fields.may("revision"), ttl(fields, lease));
    let expect = fields.may("expect").unwrap_or_default();
    let (supersedes, idempotency) = (fields.may("supersedes"), fields.may::<Repeated>("idempotency"));
    let input: Arc<str> = fields.may("input").unwrap_or_default();
    let (agent, description) = (fields.may::<Arc<str>>("agent"), fields.may("description"));
    let (parent, with_parent) = (fields.may("parent"), fields.may("with_parent").unwrap_or_default());
    let of_input = || digest(&[agent.as_deref().unwrap_or_default(), &input]);
    let idempotency = idempotency
        .map(|given| IdempotencyKey { digest: given.digest.unwrap_or_else(of_input), key: given.key });
    let (key, owner, request_id) = (key?, owner?, request_id?);
    Some(Acquire {
        key,
        owner,
        request_id,
        revision,
        ttl,
        expect,
        supersedes,
        parent,
        with_parent,
        idempotency,
        input,
        agent,
        description,
    })
}

/// A lease among many.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lease {
    namespace: Arc<str>,
    source: Arc<str>,
    session: Arc<str>,
    task: u64,
    run: u32,
    #[serde(deserialize_with = "token_text::deserialize")]
    token: Token,
}

pub(super) fn leases(fields: &mut Fields) -> Option<Vec<Held>> {
    let leases = fields.need::<Vec<Lease>>("leases")?;
    if leases.len() > MOST_LEASES {
        fields.refuse("leases", format!("at most {MOST_LEASES}, found {}", leases.len()));
        return None;
    }
    let mut all = Vec::with_capacity(leases.len());
    for (n, Lease { namespace, source, session, task, run, token }) in leases.into_iter().enumerate() {
        match SessionKey::new(namespace, source, session) {
            Ok(session) => all.push(Held { key: session.task(task), run, token }),
            Err(invalid) => {
                for problem in invalid.problems {
                    fields.refuse(format!("leases[{n}].{}", problem.field), problem.expected);
                }
            }
        }
    }
    Some(all)
}

pub(super) fn publish(fields: &mut Fields) -> Option<(Held, Outcome)> {
    let (held, outcome) = (held(fields), fields.need("outcome"));
    Some((held?, outcome?))
}

/// What is to be cancelled.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Scope {
    Run,
    Task,
    Session,
}

pub(super) fn cancel(fields: &mut Fields) -> Option<(CancelScope, Cancel)> {
    let scope = match fields.need("scope") {
        Some(Scope::Run) => {
            let (key, run) = (task(fields), fields.need("run"));
            key.zip(run).map(|(key, run)| CancelScope::Run { key, run })
        }
        Some(Scope::Task) => task(fields).map(CancelScope::Task),
        Some(Scope::Session) => session(fields).map(CancelScope::Session),
        // What else is needed, or too much, is told once it is known what is meant.
        None => {
            for name in ["namespace", "source", "session", "task", "run"] {
                fields.may::<Value>(name);
            }
            None
        }
    };
    let mode = fields.may::<CancelMode>("mode").unwrap_or_default();
    let reason = text(fields, "reason", "asked for", MOST_REASON_BYTES);
    let requested_by = text(fields, "requested_by", "http", MOST_NAME_BYTES);
    let force_after = fields.may("force_after");
    Some((scope?, Cancel { mode, reason: reason?, requested_by: requested_by?, force_after }))
}

fn text(fields: &mut Fields, name: &'static str, default: &str, most: usize) -> Option<Arc<str>> {
    let text: Arc<str> = fields.may(name).unwrap_or_else(|| default.into());
    if text.len() > most {
        fields.refuse(name, format!("at most {most} bytes, found {}", text.len()));
        return None;
    }
    Some(text)
}

/// What becomes of what runs in a session that is released.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Running {
    #[default]
    Refuse,
    Cancel,
}

pub(super) fn release(fields: &mut Fields, longest: Seconds) -> Option<(SessionKey, Release)> {
    let session = session(fields);
    let running = fields.may::<Running>("running").unwrap_or_default();
    let wait = fields.may::<Seconds>("wait");
    if running == Running::Refuse && wait.is_some() {
        fields.refuse("wait", "nothing, unless \"running\" is \"cancel\"");
    }
    let wait = wait.unwrap_or(WAIT).min(longest);
    let release = if running == Running::Cancel { Release::Cancel { wait } } else { Release::Refuse };
    Some((session?, release))
}

pub(super) fn retention(fields: &mut Fields, usual: Retention) -> Retention {
    Retention {
        acknowledged: fields.may("acknowledged").unwrap_or(usual.acknowledged),
        unacknowledged: fields.may("unacknowledged").unwrap_or(usual.unacknowledged),
        sessions: fields.may("sessions").unwrap_or(usual.sessions),
        batch: fields.may("batch").unwrap_or(usual.batch),
    }
}

pub(super) fn declared(fields: &mut Fields) -> Option<(Arc<str>, Declared, bool)> {
    let (host, namespace, source) = (fields.need("host"), fields.need("namespace"), fields.need("source"));
    let (lease, grace) = (fields.need("lease"), fields.need("grace"));
    let replace = fields.may("replace").unwrap_or(false);
    let declared = Declared { namespace: namespace?, source: source?, lease: lease?, grace: grace? };
    Some((host?, declared, replace))
}
