//! Ownership for hosts in other languages: one path a verb. Bodies and answers are those of [`crate::ownership`].
//!
//! A status of 2xx says that what was asked for is so. What a verb answers instead is a problem document that carries
//! the answer, so that nobody who looks at the status alone takes a task for theirs, or an outcome for published.

use axum::extract::State;
use axum::http::request::Parts;
use serde::Serialize;

use super::body::Given;
use super::events::{self, Asked};
use super::fields::Fields;
use super::limits;
use super::problem::{Answer, Kind, Problem};
use super::query::{self, Words, text};
use super::stream::closed;
use super::text::Only;
use super::{Api, answer, schemas};
use crate::model::{InstanceId, Seconds};
use crate::ownership::{
    Acknowledgement, Acquired, CancelAnswer, DeclaredLost, Forgotten, Inspection, Ownership, Published,
    Registered, Regranted, Released, Renewed, SessionKey, TaskState,
};

mod read;

/// A request of a verb: what it asks of, and with which fields.
struct Verb {
    own: Ownership,
    fields: Fields,
    /// How long a lease is that says nothing.
    lease: Seconds,
}

impl Verb {
    fn of(api: &Api, parts: &Parts, given: &Given) -> Result<Self, Problem> {
        let own = served(api, parts)?;
        query::nothing(parts)?;
        Ownership::is_looked_after_by(api.tenure());
        let options = api.options();
        let lease = options.ownership.as_ref().and_then(|ownership| ownership.lease);
        let lease = lease.unwrap_or_else(|| api.tenure().settings().lease);
        let lease = Seconds::from_ms(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
        Ok(Self { own, fields: Fields::of(given)?, lease })
    }

    /// What was read of the fields, if all was well.
    fn read<T>(mut self, read: impl FnOnce(&mut Fields) -> Option<T>) -> Result<(Ownership, T), Problem> {
        let read = read(&mut self.fields);
        Ok((self.own, self.fields.done(read)?))
    }
}

fn served(api: &Api, parts: &Parts) -> Result<Ownership, Problem> {
    api.ownership().ok_or_else(|| {
        Problem::new(Kind::NotFound, format!("nothing is served at {:?}", parts.uri.path()))
            .hint("the settings of this host leave ownership out: set ownership.serve = true")
    })
}

/// What a verb answered instead of what was asked for.
fn instead<T: Serialize>(kind: Kind, why: impl Into<String>, answer: &T) -> Problem {
    Problem::new(kind, why).answer(answer)
}

/// A task, its latest run and how it stands, in words.
fn stands(state: &Inspection) -> String {
    format!("\"{}\" is {}, run {}", state.key, state.state.as_str(), state.run)
}

fn fenced<T: Serialize>(state: &Inspection, answer: &T) -> Problem {
    let hint = match state.state {
        TaskState::Lost { .. } => "stop the work; reinstate says whether it can be had back",
        _ => "stop the work: it has no effect any more, and its outcome counts for nothing",
    };
    instead(Kind::Fenced, format!("the token is not the current one: {}", stands(state)), answer).hint(hint)
}

// --- owning -------------------------------------------------------------------------------------------------

/// Makes the owner of a task whoever asks, if what they expect stands
///
/// Idempotent by `request_id`: asked again with it, the answer is the same grant. Work must not begin before it.
#[utoipa::path(post, path = "/ownership/acquire", tag = "ownership", operation_id = "acquire",
    request_body = schemas::Acquire,
    responses(
        (status = 200, description = "it is owned", body = schemas::Grant),
        (status = 409, description = "`held` by another or an earlier request, `conflict` with what stands, \
         `session_released`, or `key_conflict`: the idempotency key was used for another input",
         body = schemas::Problem),
    ))]
pub(super) async fn acquire(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let verb = Verb::of(&api, &parts, &given)?;
    let lease = verb.lease;
    let (own, request) = verb.read(|fields| read::acquire(fields, lease))?;
    let answer = own.acquire(&request).await?;
    let problem = match &answer {
        Acquired::Acquired(_) => return answer::ok(&answer),
        Acquired::Held { key, owner, run, .. } => {
            let why = format!("run {run} of \"{key}\" is owned by {owner}");
            instead(Kind::Held, why, &answer).hint("do not begin it: ask how it stands, or watch")
        }
        Acquired::Conflict { actual } => {
            let why = format!("something else was expected: {}", stands(actual));
            instead(Kind::Conflict, why, &answer)
        }
        Acquired::SessionReleased { revision } => {
            let why = format!("\"{}\" was released, its revision is {revision}", request.key.session);
            instead(Kind::SessionReleased, why, &answer)
        }
        Acquired::IdempotencyConflict { key } => {
            let why = format!("the idempotency key belongs to \"{key}\", which was begun with another input");
            instead(Kind::KeyConflict, why, &answer)
        }
    };
    Err(problem)
}

#[derive(Serialize)]
struct Renewals {
    answers: Vec<Renewed>,
}

/// Renews leases, up to 10,000 in one request
///
/// Each answer is a command to the owner of the lease in the same place: go on (`renewed`; with `cancel`, somebody
/// wants it stopped), or stop (`fenced`, `gone`). One whose record cannot be read is `unreadable`; the others are
/// renewed.
#[utoipa::path(post, path = "/ownership/renew", tag = "ownership", operation_id = "renew",
    request_body = schemas::Renew,
    responses((status = 200, body = schemas::Renewals)))]
pub(super) async fn renew(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let verb = Verb::of(&api, &parts, &given)?;
    let lease = verb.lease;
    let (own, (owner, ttl, leases)) = verb.read(|fields| {
        let (owner, ttl) = (read::instance(fields, "owner"), read::ttl(fields, lease));
        let leases = read::leases(fields);
        Some((owner?, ttl, leases?))
    })?;
    answer::ok(&Renewals { answers: own.renew(owner, &leases, ttl).await? })
}

/// Publishes what a run came to, under its token
///
/// Idempotent: the same outcome is published once. What is refused is kept in the history of the session.
#[utoipa::path(post, path = "/ownership/publish", tag = "ownership", operation_id = "publish",
    request_body = schemas::Publish,
    responses(
        (status = 200, description = "`committed`, or `already_committed` before", body = schemas::VerbDone),
        (status = 409, description = "`fenced`: the token has lost its authority; `already_terminal`: another \
         outcome was published under it", body = schemas::Problem),
    ))]
pub(super) async fn publish(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let (own, (held, outcome)) = Verb::of(&api, &parts, &given)?.read(read::publish)?;
    let answer = own.publish(&held, outcome).await?;
    Err(match &answer {
        Published::Committed | Published::AlreadyCommitted => return answer::ok(&answer),
        Published::AlreadyTerminal { outcome } => {
            let why = format!("run {} of \"{}\" has ended as {} already", held.run, held.key, outcome.status);
            instead(Kind::AlreadyTerminal, why, &answer)
        }
        Published::Fenced { state } => fenced(state, &answer),
        Published::TooLarge { limit } => {
            let why = format!("the outcome has more than {limit} bytes, which is the limit");
            instead(Kind::TooLarge, why, &answer).hint("keep it elsewhere, and publish where it is")
        }
    })
}

/// Declares that the owner of a run is gone
///
/// It is so only if the lease that was seen under this fence has been expired for the whole grace by the store's clock.
/// For a grace after the store was away, or its clock jumped, this server takes nobody for gone: owners have to renew.
#[utoipa::path(post, path = "/ownership/declare-lost", tag = "ownership", operation_id = "declare_lost",
    request_body = schemas::DeclareLost,
    responses(
        (status = 200, description = "it is lost: by this request, or one before", body = schemas::Standing),
        (status = 409, description = "`not_lost`: it was renewed, has ended, or has not been expired for long enough, \
         as far as this server has seen", body = schemas::Problem),
    ))]
pub(super) async fn declare_lost(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let (own, (key, run, fence, grace)) = Verb::of(&api, &parts, &given)?.read(|fields| {
        let (key, run, fence) = (read::task(fields), fields.need("run"), fields.need("fence"));
        let grace: Option<Seconds> = fields.may("grace");
        Some((key?, run?, fence?, grace))
    })?;
    // As it is now: a host that was told other settings judges by them.
    let least = api.tenure().settings().grace();
    let grace = grace.map_or(least, |grace| grace.duration().max(least));
    let answer = own.declare_lost(&key, run, fence, Some(grace)).await?;
    match &answer {
        DeclaredLost::Lost { .. } => answer::ok(&answer),
        DeclaredLost::Changed { state } => Err(instead(Kind::NotLost, stands(state), &answer)),
    }
}

/// Gives a lost run back to who proves by its token that it was theirs
#[utoipa::path(post, path = "/ownership/reinstate", tag = "ownership", operation_id = "reinstate",
    request_body = schemas::Regrant,
    responses(
        (status = 200, description = "the same run, under a new token", body = schemas::Grant),
        (status = 409, description = "`fenced`: somebody took its place, or it is not lost", body = schemas::Problem),
    ))]
pub(super) async fn reinstate(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let verb = Verb::of(&api, &parts, &given)?;
    let lease = verb.lease;
    let (own, (held, owner, ttl)) = verb.read(|fields| regrant(fields, "owner", lease))?;
    granted(&own.reinstate(&held, owner, ttl).await?)
}

/// Gives a run that is held to another owner, at once
#[utoipa::path(post, path = "/ownership/hand-over", tag = "ownership", operation_id = "hand_over",
    request_body = schemas::HandOver,
    responses(
        (status = 200, description = "the same run, under a new token of the other owner", body = schemas::Grant),
        (status = 409, description = "`fenced`: it is not held under this token", body = schemas::Problem),
    ))]
pub(super) async fn hand_over(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let verb = Verb::of(&api, &parts, &given)?;
    let lease = verb.lease;
    let (own, (held, to, ttl)) = verb.read(|fields| regrant(fields, "to", lease))?;
    granted(&own.hand_over(&held, to, ttl).await?)
}

fn regrant(
    fields: &mut Fields,
    who: &'static str,
    lease: Seconds,
) -> Option<(crate::ownership::Held, InstanceId, Seconds)> {
    let (held, owner) = (read::held(fields), read::instance(fields, who));
    let ttl = read::ttl(fields, lease);
    Some((held?, owner?, ttl))
}

fn granted(answer: &Regranted) -> Answer {
    match answer {
        Regranted::Acquired(_) => answer::ok(answer),
        Regranted::Fenced { state } => Err(fenced(state, answer)),
    }
}

// --- looking ------------------------------------------------------------------------------------------------

/// How a task stands, read in one step
#[utoipa::path(post, path = "/ownership/inspect", tag = "ownership", operation_id = "inspect",
    request_body = schemas::TaskName,
    responses((status = 200, body = schemas::Inspection)))]
pub(super) async fn inspect(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let (own, key) = Verb::of(&api, &parts, &given)?.read(read::task)?;
    answer::ok(&own.inspect(&key).await?)
}

/// How the tasks of a session stand
///
/// An answer has about 8 MiB of outcomes, those of the latest tasks: results and snapshots past that are left out, and
/// `left_out` names their tasks, each of which can be asked for by itself.
#[utoipa::path(post, path = "/ownership/inspect-session", tag = "ownership", operation_id = "inspect_session",
    request_body = schemas::SessionName,
    responses((status = 200, body = schemas::SessionInspection)))]
pub(super) async fn inspect_session(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let (own, key) = Verb::of(&api, &parts, &given)?.read(read::session)?;
    answer::ok(&own.inspect_session(&key).await?)
}

/// What happens to what hosts own, in order
///
/// Of a session, if one is named, else of all. As `text/event-stream`, if that is accepted: what came after
/// `Last-Event-ID` (or `after`), or, without either, what comes from now on. `run_id` ends in the numbers of the task
/// and of its run. An event says that something happened; how a task stands is said by asking.
#[utoipa::path(get, path = "/ownership/watch", tag = "ownership", operation_id = "watch",
    params(
        ("namespace" = Option<String>, Query, description = "of the session; all three or none"),
        ("source" = Option<String>, Query, description = "of the session"),
        ("session" = Option<String>, Query, description = "of the session"),
        schemas::EventQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "the cursor of the last event that was seen"),
    ),
    responses(
        (status = 200, content((schemas::AllEvents = "application/json"), (String = "text/event-stream"))),
        (status = 406, description = "neither media type is accepted", body = schemas::Problem),
    ))]
pub(super) async fn watch(State(api): State<Api>, parts: Parts) -> Answer {
    let own = served(&api, &parts)?;
    let mut words = Words::of(&parts)?;
    let named = ["namespace", "source", "session"].map(|name| words.one(name, text));
    let asked = Asked::read(&api, &parts, words)?;
    let only = match named {
        [None, None, None] if own.settings().namespace.is_none() => Only::Owned,
        [Some(namespace), Some(source), Some(session)] => {
            let key = SessionKey::new(namespace, source, session)?;
            limits::within(&api, own.revision(&key)).await?;
            Only::Task(key.id()?)
        }
        _ => {
            let all = if own.settings().namespace.is_none() { "all three or none" } else { "all three" };
            return Err(Problem::field("session", format!("namespace, source and session: {all}")));
        }
    };
    events::told(&api, asked.only(Some(only))).await
}

// --- stopping -----------------------------------------------------------------------------------------------

/// Asks for a run, a task or all that runs in a session to be cancelled
///
/// `cooperative` asks the owners to stop: they hear of it by their next renewal at the latest. `force` ends the runs,
/// and with them the authority of their tokens. Who does not get a 2xx must not believe that anything was cancelled.
#[utoipa::path(post, path = "/ownership/cancel", tag = "ownership", operation_id = "request_cancel",
    request_body = schemas::OwnedCancel,
    responses(
        (status = 200, description = "how many were asked to stop, or ended by it", body = schemas::Requested),
        (status = 404, description = "there is no such task, or nothing is served here", body = schemas::Problem),
        (status = 409, description = "`already_terminal`: it had ended", body = schemas::Problem),
        (status = 410, description = "it is no longer kept", body = schemas::Problem),
    ))]
pub(super) async fn cancel(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let (own, (scope, cancel)) = Verb::of(&api, &parts, &given)?.read(read::cancel)?;
    let answer = own.request_cancel(&scope, &cancel).await?;
    Err(match &answer {
        CancelAnswer::Requested { .. } => return answer::ok(&answer),
        CancelAnswer::AlreadyTerminal { outcome } => {
            instead(Kind::AlreadyTerminal, format!("it had ended as {} before", outcome.status), &answer)
        }
        CancelAnswer::Expired => instead(Kind::Expired, "it has ended, and is no longer kept", &answer),
        CancelAnswer::NotFound => instead(Kind::NotFound, "there is no such run, task or session", &answer),
    })
}

/// Releases a session: what was seen of it before begins nothing any more
///
/// With `"running": "cancel"` what runs is asked to stop and waited for; what has not ended then loses its authority.
#[utoipa::path(post, path = "/ownership/release-session", tag = "ownership", operation_id = "release_session",
    request_body = schemas::ReleaseSession,
    responses(
        (status = 200, body = schemas::Released),
        (status = 409, description = "`still_running`: refused while anything runs", body = schemas::Problem),
    ))]
pub(super) async fn release_session(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let longest = api.options().max_wait;
    let longest = Seconds::from_ms(u64::try_from(longest.as_millis()).unwrap_or(u64::MAX));
    let (own, (key, release)) =
        Verb::of(&api, &parts, &given)?.read(|fields| read::release(fields, longest))?;
    let most = api.options().max_waits;
    let _place = api.waits().enter(most).ok_or_else(|| limits::full("requests wait", most))?;
    let mut closing = api.closing();
    let answer = tokio::select! {
        answer = own.release_session(&key, release) => answer?,
        () = closed(&mut closing) => {
            let why = format!("\"{key}\" may have been released, and not all that runs be asked to stop");
            return Err(Problem::new(Kind::Draining, why).retry_after(5).hint("release it again, at another host"));
        }
    };
    match &answer {
        Released::Released { .. } => answer::ok(&answer),
        Released::Refused { running } => {
            let why = format!("{running} of \"{key}\" run");
            Err(instead(Kind::StillRunning, why, &answer).hint("ask again with \"running\": \"cancel\""))
        }
    }
}

// --- numbers, delivery, retention -----------------------------------------------------------------------------

#[derive(Serialize)]
struct NextTask {
    task: u64,
}

/// The number of the next task of a session: given out once
#[utoipa::path(post, path = "/ownership/next-task-id", tag = "ownership", operation_id = "next_task_id",
    request_body = schemas::SessionName,
    responses((status = 200, body = schemas::NextTask)))]
pub(super) async fn next_task_id(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let (own, key) = Verb::of(&api, &parts, &given)?.read(read::session)?;
    answer::ok(&NextTask { task: own.next_task_id(&key).await? })
}

/// Removes a task that nobody executes, with its runs and their outcomes, for every replica
#[utoipa::path(post, path = "/ownership/forget", tag = "ownership", operation_id = "forget",
    request_body = schemas::TaskName,
    responses(
        (status = 200, body = schemas::VerbDone),
        (status = 404, description = "there is no such task, or nothing is served here", body = schemas::Problem),
        (status = 409, description = "`still_running`: cancel it first; `held_up`: a hook of the host has to remove \
            what it keeps of others first", body = schemas::Problem),
    ))]
pub(super) async fn forget(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let (own, key) = Verb::of(&api, &parts, &given)?.read(read::task)?;
    let answer = own.forget(&key).await?;
    match &answer {
        Forgotten::Forgotten => answer::ok(&answer),
        Forgotten::StillRunning { state } => {
            Err(instead(Kind::StillRunning, stands(state), &answer).hint("cancel it first"))
        }
        Forgotten::HeldUp { waiting } => {
            let why = format!("{waiting} places of \"{}\" wait for a hook of the host", key.session);
            let hint =
                "its log says why the hook does not remove what lies there; forget the task again after that";
            Err(instead(Kind::HeldUp, why, &answer).hint(hint))
        }
        Forgotten::NotFound => {
            Err(instead(Kind::NotFound, format!("task \"{key}\" does not exist"), &answer))
        }
    }
}

/// Says that a consumer has had the outcome of a run: it expires after its retention
#[utoipa::path(post, path = "/ownership/acknowledge", tag = "ownership", operation_id = "acknowledge",
    request_body = schemas::Acknowledge,
    responses(
        (status = 200, body = schemas::VerbDone),
        (status = 404, description = "there is no such task, or nothing is served here", body = schemas::Problem),
        (status = 409, description = "`not_terminal`, or `superseded` by a later run", body = schemas::Problem),
        (status = 410, description = "it is no longer kept", body = schemas::Problem),
    ))]
pub(super) async fn acknowledge(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let (own, (key, run, consumer)) = Verb::of(&api, &parts, &given)?.read(|fields| {
        let (key, run, consumer) =
            (read::task(fields), fields.need("run"), fields.need::<String>("consumer"));
        Some((key?, run?, consumer?))
    })?;
    let answer = own.ack(&key, run, &consumer).await?;
    Err(match &answer {
        Acknowledgement::Acknowledged => return answer::ok(&answer),
        Acknowledgement::NotTerminal => {
            instead(Kind::NotTerminal, format!("run {run} of \"{key}\" has not ended"), &answer)
        }
        Acknowledgement::Superseded => {
            instead(Kind::Superseded, format!("there is a run of \"{key}\" after run {run}"), &answer)
        }
        Acknowledgement::Expired => instead(Kind::Expired, format!("\"{key}\" is no longer kept"), &answer),
        Acknowledgement::NotFound => {
            instead(Kind::NotFound, format!("run {run} of \"{key}\" does not exist"), &answer)
        }
    })
}

/// Removes what was kept long enough, a batch of sessions in each request
///
/// Hosts of this program do so by themselves, after the times of their settings, which hold for what is left out.
#[utoipa::path(post, path = "/ownership/reap", tag = "ownership", operation_id = "reap",
    request_body = Option<schemas::Reap>,
    responses((status = 200, body = schemas::Reaped)))]
pub(super) async fn reap(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let usual = api.tenure().settings().retain_owned;
    let (own, retention) =
        Verb::of(&api, &parts, &given)?.read(|fields| Some(read::retention(fields, usual)))?;
    answer::ok(&own.reap(retention).await?)
}

/// Declares what every replica of a host has to agree on
///
/// The first replica says what it is; the next ones are told where they differ. `replace` declares it anew.
#[utoipa::path(post, path = "/ownership/register", tag = "ownership", operation_id = "register",
    request_body = schemas::Register,
    responses(
        (status = 200, description = "`first`, `same` or `replaced`", body = schemas::VerbDone),
        (status = 409, description = "`mismatch`: other replicas were told otherwise", body = schemas::Problem),
    ))]
pub(super) async fn register(State(api): State<Api>, parts: Parts, given: Given) -> Answer {
    let (own, (host, declared, replace)) = Verb::of(&api, &parts, &given)?.read(read::declared)?;
    let answer = own.register(&host, &declared, replace).await?;
    match &answer {
        Registered::First | Registered::Same | Registered::Replaced => answer::ok(&answer),
        Registered::Mismatch { fields, .. } => {
            let why = format!("other replicas of \"{host}\" were told another {}", fields.join(", "));
            Err(instead(Kind::Mismatch, why, &answer)
                .hint("give all replicas the same settings, or declare these with \"replace\": true"))
        }
    }
}
