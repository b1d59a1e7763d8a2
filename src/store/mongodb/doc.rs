//! Records as documents, and back. What cannot be read is a [`Fault::Unreadable`], never a panic.
//!
//! What a query looks for has a field of its own; fields of an index that most runs are not in lie together in a
//! document that only those have which are in it, so that the index can be sparse. What is never looked for is JSON.

use std::sync::Arc;

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fault::{Fault, Step};
use crate::model::{
    InstanceId, Lease, Payload, Place, Run, RunId, RunResult, RunSpec, RunStatus, Timestamp, Token, Trigger,
};
use crate::rules;

/// A run that was read: its number, in the order in which runs were queued.
pub(super) type Numbered = (u64, Run);

/// What a run waits in.
pub(super) mod queue {
    pub(in super::super) const READY: &str = "R";
    pub(in super::super) const FUTURE: &str = "F";
    pub(in super::super) const LANE: &str = "L";
    pub(in super::super) const PAUSED: &str = "P";
    /// Out of the way: it could not be read when it was to be claimed.
    pub(in super::super) const UNREADABLE: &str = "U";
}

/// The server knows signed numbers only; all 64 bits are kept.
pub(super) const fn signed(number: u64) -> i64 {
    number.cast_signed()
}

pub(super) fn unreadable(why: impl Into<String>) -> Fault {
    Fault::Unreadable(why.into())
}

/// A record as JSON.
pub(super) fn json<T: Serialize>(record: &T) -> Step<String> {
    serde_json::to_string(record).map_err(|error| Fault::Invalid(format!("it cannot be kept: {error}")))
}

/// The record that a field holds.
pub(super) fn parsed<T: DeserializeOwned>(what: &str, text: &str) -> Step<T> {
    serde_json::from_str(text).map_err(|error| unreadable(format!("{what} cannot be read: {error}")))
}

/// Reads of fields that say which one is missing.
pub(super) trait Fields {
    fn number(&self, name: &str) -> Step<i64>;
    fn word(&self, name: &str) -> Step<&str>;
    fn maybe_number(&self, name: &str) -> Step<Option<i64>>;
    fn maybe_word(&self, name: &str) -> Step<Option<&str>>;
    fn unsigned(&self, name: &str) -> Step<u64> {
        self.number(name).map(i64::cast_unsigned)
    }
    fn at(&self, name: &str) -> Step<Timestamp> {
        self.number(name).map(Timestamp::from_ms)
    }
    fn maybe_at(&self, name: &str) -> Step<Option<Timestamp>> {
        Ok(self.maybe_number(name)?.map(Timestamp::from_ms))
    }
}

impl Fields for Document {
    fn number(&self, name: &str) -> Step<i64> {
        self.maybe_number(name)?.ok_or_else(|| unreadable(format!("it has no field \"{name}\"")))
    }

    fn word(&self, name: &str) -> Step<&str> {
        self.maybe_word(name)?.ok_or_else(|| unreadable(format!("it has no field \"{name}\"")))
    }

    fn maybe_number(&self, name: &str) -> Step<Option<i64>> {
        match self.get(name) {
            None | Some(Bson::Null) => Ok(None),
            Some(Bson::Int64(number)) => Ok(Some(*number)),
            Some(Bson::Int32(number)) => Ok(Some(i64::from(*number))),
            Some(_) => Err(unreadable(format!("its field \"{name}\" is no number"))),
        }
    }

    fn maybe_word(&self, name: &str) -> Step<Option<&str>> {
        match self.get(name) {
            None | Some(Bson::Null) => Ok(None),
            Some(Bson::String(text)) => Ok(Some(text)),
            Some(_) => Err(unreadable(format!("its field \"{name}\" is no text"))),
        }
    }
}

/// The key under which a run is found by what its caller named it.
pub(super) fn key(task_id: &str, key: &str) -> String {
    format!("{task_id}/{key}")
}

/// What one claim was granted.
pub(super) fn grant(owner: InstanceId, nonce: u64) -> String {
    format!("{owner}:{nonce:016x}")
}

/// A run as it is kept.
pub(super) fn of_run(number: u64, run: &Run) -> Step<Document> {
    let spec = &run.spec;
    let mut doc = doc! {
        "_id": run.run_id.as_str(),
        "n": signed(number),
        "t": spec.task_id.as_str(),
        "a": spec.agent_id.as_str(),
        "s": i32::from(run.status.number()),
        "v": signed(run.version),
        "st": signed(run.stamp),
        "due": run.due_at.ms(),
        "at": i64::from(run.attempt),
        "fl": i64::from(run.failures),
        "ir": i64::from(run.interruptions),
        "f": signed(run.fence),
        "le": signed(run.last_event),
        "spec": json(&**spec)?,
    };
    if let Some(lease) = &run.lease {
        doc.insert("own", lease.owner.to_string());
        doc.insert("no", signed(lease.nonce));
        doc.insert("ex", lease.expires_at.ms());
        doc.insert("hb", lease.heartbeat_at.ms());
    }
    let times = [
        ("ca", run.claimed_at),
        ("sa", run.started_at),
        ("asa", run.attempt_started_at),
        ("fa", run.finished_at),
    ];
    for (name, at) in times {
        doc.extend(at.map(|at| (name.to_owned(), Bson::Int64(at.ms()))));
    }
    if let Some(token) = run.lost_token {
        doc.insert("lost", doc! { "f": signed(token.fence), "n": signed(token.nonce) });
    }
    doc.extend(run.blocked_by.as_ref().map(|by| ("by".to_owned(), by.as_str().into())));
    texts(&mut doc, run)?;
    doc.extend(run.result.as_ref().map(|result| ("res".to_owned(), Bson::Document(of_result(result)))));
    derived(&mut doc, number, run);
    Ok(doc)
}

/// What is seldom there, as JSON.
fn texts(doc: &mut Document, run: &Run) -> Step<()> {
    let parts = [
        ("cancel", run.cancel.as_ref().map(json).transpose()?),
        ("error", run.error.as_ref().map(json).transpose()?),
        ("progress", run.progress.as_ref().map(json).transpose()?),
        ("approval", run.approval.as_ref().map(json).transpose()?),
    ];
    for (name, text) in parts {
        doc.extend(text.map(|text| (name.to_owned(), Bson::String(text))));
    }
    Ok(())
}

/// What queries look for, and what follows from the rest.
fn derived(doc: &mut Document, number: u64, run: &Run) {
    let (spec, n) = (&run.spec, signed(number));
    let line = |queue: String| {
        // The highest priority first.
        let priority = -i64::from(spec.priority);
        doc! { "q": queue, "a": spec.agent_id.as_str(), "p": priority, "d": run.due_at.ms(), "n": n }
    };
    let waits = match &run.place {
        Place::Nowhere => None,
        Place::Ready => Some(line(queue::READY.to_owned())),
        Place::Lane { lane } => Some(line(format!("{}{lane}", queue::LANE))),
        Place::Future => Some(doc! { "q": queue::FUTURE, "a": "", "p": 0_i64, "d": run.due_at.ms(), "n": n }),
        Place::Paused => {
            let queue = format!("{}{}", queue::PAUSED, spec.task_id);
            Some(doc! { "q": queue, "a": "", "p": 0_i64, "d": 0_i64, "n": n })
        }
    };
    doc.extend(waits.map(|waits| ("w".to_owned(), Bson::Document(waits))));
    if let Some(at) = rules::wake_at(run) {
        doc.insert("k", doc! { "at": at.ms(), "id": run.run_id.as_str() });
    }
    if run.status.is_terminal() {
        let at = run.finished_at.unwrap_or(spec.queued_at);
        doc.insert("e", doc! { "at": at.ms(), "n": n });
    }
    if !spec.lanes.is_empty() && run.status.is_active() {
        let mut names: Vec<&str> = spec.lanes.iter().map(|lane| &*lane.name).collect();
        names.sort_unstable();
        names.dedup();
        let scheduled = run.status == RunStatus::Queued && spec.trigger == Trigger::Schedule;
        if scheduled {
            doc.insert("o", doc! { "in": names.clone(), "n": n });
        }
        doc.insert("l", doc! { "in": names, "n": n });
    }
    if let Some(idempotency) = &spec.idempotency {
        doc.insert("key", key(spec.task_id.as_str(), &idempotency.key));
    }
    if let Some(lease) = run.lease.filter(|_| run.status == RunStatus::Claimed) {
        doc.insert("g", grant(lease.owner, lease.nonce));
    }
}

fn of_result(result: &RunResult) -> Document {
    match result {
        RunResult::Inline(Payload { media_type, bytes }) => {
            let bytes = Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() };
            doc! { "type": &**media_type, "bytes": bytes }
        }
        RunResult::File { media_type, size, path, preview } => {
            doc! { "type": &**media_type, "size": signed(*size), "path": &**path, "preview": &**preview }
        }
    }
}

/// A run as it was kept.
pub(super) fn to_run(doc: &Document) -> Step<Numbered> {
    let run_id = RunId::new(doc.word("_id")?).map_err(|invalid| unreadable(invalid.to_string()))?;
    let spec: RunSpec = parsed("the specification", doc.word("spec")?)?;
    let small = |name: &str| -> Step<u32> {
        let number = doc.number(name)?;
        u32::try_from(number).map_err(|_| unreadable(format!("its field \"{name}\" is {number}")))
    };
    let run = Run {
        run_id,
        spec: Arc::new(spec),
        status: status(doc.number("s")?)?,
        version: doc.unsigned("v")?,
        stamp: doc.unsigned("st")?,
        due_at: doc.at("due")?,
        place: place(doc)?,
        attempt: small("at")?,
        failures: small("fl")?,
        interruptions: small("ir")?,
        fence: doc.unsigned("f")?,
        lease: lease(doc)?,
        lost_token: match doc.get_document("lost") {
            Ok(lost) => Some(Token { fence: lost.unsigned("f")?, nonce: lost.unsigned("n")? }),
            Err(_) => None,
        },
        cancel: text(doc, "cancel")?,
        claimed_at: doc.maybe_at("ca")?,
        started_at: doc.maybe_at("sa")?,
        attempt_started_at: doc.maybe_at("asa")?,
        finished_at: doc.maybe_at("fa")?,
        error: text(doc, "error")?,
        result: doc.get_document("res").ok().map(result).transpose()?,
        progress: text(doc, "progress")?,
        approval: text(doc, "approval")?,
        blocked_by: match doc.maybe_word("by")? {
            Some(by) => Some(RunId::new(by).map_err(|invalid| unreadable(invalid.to_string()))?),
            None => None,
        },
        last_event: doc.unsigned("le")?,
    };
    Ok((doc.unsigned("n")?, run))
}

fn text<T: DeserializeOwned>(doc: &Document, name: &str) -> Step<Option<T>> {
    doc.maybe_word(name)?.map(|text| parsed(&format!("its field \"{name}\""), text)).transpose()
}

fn lease(doc: &Document) -> Step<Option<Lease>> {
    let Some(owner) = doc.maybe_word("own")? else { return Ok(None) };
    Ok(Some(Lease {
        owner: instance(owner)?,
        nonce: doc.unsigned("no")?,
        expires_at: doc.at("ex")?,
        heartbeat_at: doc.at("hb")?,
    }))
}

fn place(doc: &Document) -> Step<Place> {
    let Ok(waits) = doc.get_document("w") else { return Ok(Place::Nowhere) };
    let queue = waits.word("q")?;
    Ok(match queue {
        queue::READY => Place::Ready,
        queue::FUTURE => Place::Future,
        _ if queue.starts_with(queue::PAUSED) => Place::Paused,
        _ => match queue.strip_prefix(queue::LANE) {
            Some(lane) => Place::Lane { lane: lane.into() },
            None => Place::Nowhere,
        },
    })
}

fn result(doc: &Document) -> Step<RunResult> {
    let media_type = doc.word("type")?.into();
    if let Some(Bson::Binary(Binary { bytes, .. })) = doc.get("bytes") {
        return Ok(RunResult::Inline(Payload { media_type, bytes: bytes.as_slice().into() }));
    }
    let (path, preview) = (doc.word("path")?.into(), doc.word("preview")?.into());
    Ok(RunResult::File { media_type, size: doc.unsigned("size")?, path, preview })
}

pub(super) fn status(number: i64) -> Step<RunStatus> {
    let known = u8::try_from(number).ok().and_then(RunStatus::from_number);
    known.ok_or_else(|| unreadable(format!("{number} is the number of no status")))
}

pub(super) fn instance(text: &str) -> Step<InstanceId> {
    let bits = u128::from_str_radix(text, 16);
    bits.map(InstanceId::from_bits).map_err(|_| unreadable(format!("{text:?} is no instance")))
}
