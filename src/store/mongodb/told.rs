//! Tasks, occurrences, attempts and events as documents, and back.

use std::sync::Arc;

use mongodb::bson::{Bson, Document, doc};
use serde_json::Value;

use super::doc::{Fields as _, instance, json, parsed, signed, status, unreadable};
use super::fault::Step;
use crate::model::{
    AgentId, Attempt, AttemptStatus, Event, EventKind, Occurrence, RunId, ScheduleState, Task, TaskId,
    TaskSpec, Timestamp,
};
use crate::store::memory::part;

pub(super) fn of_task(task: &Task, schedule: &ScheduleState) -> Step<Document> {
    let task_id = task.spec.task_id.as_str();
    let mut doc = doc! {
        "_id": task_id,
        "rev": signed(task.revision),
        "ca": task.created_at.ms(),
        "ua": task.updated_at.ms(),
        "le": signed(task.last_event),
        "spec": json(&task.spec)?,
        "sv": signed(schedule.version),
        "place": json(&schedule.place)?,
    };
    doc.extend(schedule.last_due.map(|at| ("ld".to_owned(), Bson::Int64(at.ms()))));
    if let Some(at) = schedule.fire_at().filter(|_| task.spec.enabled) {
        doc.insert("fire", doc! { "at": at.ms(), "id": task_id });
    }
    Ok(doc)
}

pub(super) fn to_task(doc: &Document) -> Step<(Task, ScheduleState)> {
    let spec: TaskSpec = parsed("the task", doc.word("spec")?)?;
    let schedule = ScheduleState {
        task_id: spec.task_id.clone(),
        version: doc.unsigned("sv")?,
        last_due: doc.maybe_at("ld")?,
        place: parsed("the schedule", doc.word("place")?)?,
    };
    let task = Task {
        spec,
        created_at: doc.at("ca")?,
        updated_at: doc.at("ua")?,
        revision: doc.unsigned("rev")?,
        last_event: doc.unsigned("le")?,
    };
    Ok((task, schedule))
}

/// The name of an occurrence: no task has a slash in its name.
pub(super) fn occurrence_id(task_id: &TaskId, due_at: Timestamp) -> String {
    format!("{task_id}/{}", due_at.ms())
}

pub(super) fn of_occurrence(occurrence: &Occurrence) -> Step<Document> {
    Ok(doc! {
        "_id": occurrence_id(&occurrence.task_id, occurrence.due_at),
        "t": occurrence.task_id.as_str(),
        "due": occurrence.due_at.ms(),
        "at": occurrence.recorded_at.ms(),
        "record": json(occurrence)?,
    })
}

pub(super) fn to_occurrence(doc: &Document) -> Step<Occurrence> {
    parsed("the occurrence", doc.word("record")?)
}

pub(super) fn of_attempt(run_id: &RunId, attempt: &Attempt) -> Step<Document> {
    let mut doc = doc! {
        "of": run_id.as_str(),
        "no": i64::from(attempt.number),
        "s": i32::from(attempt.status.number()),
        "ins": attempt.instance.to_string(),
        "f": signed(attempt.fence),
        "sa": attempt.started_at.ms(),
    };
    doc.extend(attempt.finished_at.map(|at| ("fa".to_owned(), Bson::Int64(at.ms()))));
    if let Some(error) = &attempt.error {
        doc.insert("error", json(error)?);
    }
    Ok(doc)
}

pub(super) fn to_attempt(doc: &Document) -> Step<Attempt> {
    let run_id = RunId::new(doc.word("of")?).map_err(|invalid| unreadable(invalid.to_string()))?;
    let (number, how) = (doc.number("no")?, doc.number("s")?);
    let number = u32::try_from(number).map_err(|_| unreadable(format!("{number} is no attempt")))?;
    let known = u8::try_from(how).ok().and_then(AttemptStatus::from_number);
    Ok(Attempt {
        attempt_id: run_id.attempt(number),
        number,
        status: known.ok_or_else(|| unreadable(format!("{how} is the number of no status of an attempt")))?,
        instance: instance(doc.word("ins")?)?,
        fence: doc.unsigned("f")?,
        started_at: doc.at("sa")?,
        finished_at: doc.maybe_at("fa")?,
        error: doc.maybe_word("error")?.map(|error| parsed("the error", error)).transpose()?,
    })
}

/// Whose events they are: of a run, of a task, of a former task of the same name.
pub(super) fn of_run(run_id: &str) -> String {
    format!("r:{run_id}")
}

pub(super) fn of_named(task_id: &str) -> String {
    format!("t:{task_id}")
}

pub(super) fn of_former(task_id: &str) -> String {
    format!("x:{task_id}")
}

pub(super) fn of_event(told: &part::Event) -> Document {
    let event = &told.event;
    let mut doc = doc! {
        "_id": signed(told.cursor),
        "q": signed(event.sequence),
        "k": i32::from(event.kind.number()),
        "ts": event.at.ms(),
        "at": i64::from(event.attempt),
        "f": signed(event.fence),
    };
    doc.extend(event.status.map(|status| ("s".to_owned(), Bson::Int32(i32::from(status.number())))));
    doc.extend(event.instance.map(|instance| ("ins".to_owned(), Bson::String(instance.to_string()))));
    doc.extend(event.data.as_deref().map(|data| ("d".to_owned(), Bson::String(data.to_owned()))));
    match &told.of {
        part::Of::Run(run_id, spec) => {
            doc.insert("of", of_run(run_id.as_str()));
            doc.insert("r", run_id.as_str());
            doc.insert("t", spec.task_id.as_str());
            doc.insert("a", spec.agent_id.as_str());
            doc.insert("ss", &*spec.session_id);
            doc.extend(spec.occurrence.map(|at| ("oc".to_owned(), Bson::Int64(at.ms()))));
        }
        part::Of::Task { task_id, agent_id, former } => {
            let name = if *former { of_former } else { of_named };
            doc.insert("of", name(task_id.as_str()));
            doc.insert("t", task_id.as_str());
            doc.insert("a", agent_id.as_str());
            // By which they are found when they are old; those of runs go with them.
            doc.insert("ta", event.at.ms());
        }
    }
    doc
}

pub(super) fn to_event(doc: &Document) -> Step<Event> {
    let kind = doc.number("k")?;
    let known = u8::try_from(kind).ok().and_then(EventKind::from_number);
    let invalid = |invalid: crate::model::Invalid| unreadable(invalid.to_string());
    let data = doc.maybe_word("d")?;
    let attempt = doc.number("at")?;
    Ok(Event {
        event: known.ok_or_else(|| unreadable(format!("{kind} is the number of no event")))?,
        timestamp: doc.at("ts")?,
        sequence: doc.unsigned("q")?,
        cursor: doc.unsigned("_id")?,
        agent_id: AgentId::new(doc.word("a")?).map_err(invalid)?,
        task_id: TaskId::new(doc.word("t")?).map_err(invalid)?,
        run_id: doc.maybe_word("r")?.map(RunId::new).transpose().map_err(invalid)?,
        session_id: doc.maybe_word("ss")?.map(Arc::from),
        status: doc.maybe_number("s")?.map(status).transpose()?,
        attempt: u32::try_from(attempt).map_err(|_| unreadable(format!("{attempt} is no attempt")))?,
        fence: doc.unsigned("f")?,
        instance: doc.maybe_word("ins")?.map(instance).transpose()?,
        occurrence: doc.maybe_at("oc")?,
        // JSON that is nested too deeply to be read is shown as its text: an event is never unreadable.
        data: data.map_or(Value::Null, |data| {
            serde_json::from_str(data).unwrap_or_else(|_| Value::String(data.to_owned()))
        }),
    })
}
