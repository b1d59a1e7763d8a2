//! What the reads answer, as the port wants it. Pages are in [`super::list`].

use std::sync::Arc;

use redis::Value;

use super::answer::{self, Commons, List};
use super::bytes::{Get, text};
use super::fault::{Fault, Step, unreadable};
use super::record::{self, Record, Whose};
use super::task as stored;
use crate::model::{AgentId, Attempt, Event, Run, RunId, RunStatus, ScheduleState, Task, TaskId, Timestamp};
use crate::store::{Agenda, LaneRun, LaneView};

/// The most entries of one call: the server does nothing else meanwhile.
pub(super) const MOST: usize = 5000;

/// The server's clock, as `TIME` tells it.
pub(super) fn time(value: Value, _: &mut Commons) -> Step<Timestamp> {
    let mut list = List::of(value)?;
    let (seconds, micros): (i64, i64) = (list.number()?, list.number()?);
    Ok(Timestamp::from_ms(seconds.saturating_mul(1000).saturating_add(micros / 1000)))
}

pub(super) fn agenda(value: Value) -> Step<Agenda> {
    let mut list = List::of(value)?;
    let now = answer::score(&list.bytes()?)?;
    let mut next = || list.maybe()?.map(|at| answer::score(&at)).transpose();
    let (schedule, run, wake) = (next()?, next()?, next()?);
    let ready = list.number::<u64>()? > 0 || run.is_some_and(|due_at| due_at <= now);
    Ok(Agenda { now, schedule, run, wake, ready })
}

/// A task with its schedule, or why it cannot be read.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) read: Step<(Task, ScheduleState)>,
}

pub(super) fn tasks(value: Value) -> Step<Vec<Entry>> {
    let mut list = List::of(value)?;
    let mut found = Vec::with_capacity(list.len());
    while !list.is_empty() {
        let mut one = list.list()?;
        let id = one.bytes()?;
        let name = String::from_utf8_lossy(&id).into_owned();
        let (task, schedule) = (one.maybe()?, one.maybe()?);
        let read = || {
            let task = stored::read_task(&task.ok_or_else(|| unreadable("the task is gone"))?)?;
            let schedule = schedule.ok_or_else(|| unreadable("its schedule is gone"))?;
            let schedule = stored::read_schedule(task.spec.task_id.clone(), &schedule)?;
            Ok((task, schedule))
        };
        found.push(Entry { name, read: read() });
    }
    Ok(found)
}

pub(super) fn task(value: Value) -> Step<Option<(Task, ScheduleState)>> {
    tasks(value)?.pop().map(|entry| entry.read).transpose()
}

/// Those that can be read: another does not fire.
pub(super) fn readable_tasks(value: Value) -> Step<Vec<(Task, ScheduleState)>> {
    let mut found = Vec::new();
    for Entry { name, read } in tasks(value)? {
        match read {
            Ok(entry) => found.push(entry),
            Err(Fault::Unreadable(why)) => tracing::error!(task = name, why, "a schedule cannot be read"),
            Err(fault) => return Err(fault),
        }
    }
    Ok(found)
}

pub(super) fn attempts(value: Value, run_id: &RunId) -> Step<Vec<Attempt>> {
    let mut list = List::of(value)?;
    let mut found = Vec::with_capacity(list.len());
    for number in 1.. {
        if list.is_empty() {
            break;
        }
        if let Some(frame) = list.maybe()? {
            found.push(record::read_attempt(run_id, number, &frame)?);
        }
    }
    Ok(found)
}

/// Events of one answer of a listing, how far was looked, and whether that was all.
pub(super) struct Told {
    pub(super) events: Vec<Event>,
    pub(super) at: u64,
    pub(super) done: bool,
}

pub(super) fn events(value: Value, commons: &mut Commons) -> Step<Told> {
    let mut list = List::of(value)?;
    let (mut told, mut runs) = (list.list()?, list.list()?);
    let (at, done) = (list.number()?, list.number::<u8>()? == 1);
    let (mut records, of_runs) = (runs.list()?, runs.list()?);
    let of_runs = commons.of(of_runs)?;
    let mut known = foldhash::HashMap::default();
    while !records.is_empty() {
        let (rid, bytes, _) = (records.bytes()?, records.bytes()?, records.maybe()?);
        let whose = Record::read(&bytes).and_then(|record| {
            let common = of_runs.get(record.sid).ok_or_else(|| unreadable("its specification is gone"))?;
            let (common, own) = (common.as_ref().map_err(Clone::clone)?, record.own()?);
            Ok(Whose {
                agent_id: common.agent_id.clone(),
                task_id: common.task_id.clone(),
                session_id: Some(common.session.with(own.run_id.as_str())),
                run_id: Some(own.run_id),
                occurrence: own.occurrence,
            })
        });
        known.insert(rid, whose);
    }
    let mut events = Vec::with_capacity(told.len() / 3);
    while !told.is_empty() {
        let (cursor, who, what) = (told.number()?, told.bytes()?, told.bytes()?);
        let event = match known.get(&who) {
            Some(Ok(whose)) => record::read_event(cursor, whose, &what),
            Some(Err(fault)) => Err(fault.clone()),
            None => of_task(&what).and_then(|(whose, told)| record::read_event(cursor, &whose, told)),
        };
        match event {
            Ok(event) => events.push(event),
            Err(Fault::Unreadable(why)) => tracing::error!(cursor, why, "an event cannot be read"),
            Err(fault) => return Err(fault),
        }
    }
    Ok(Told { events, at, done })
}

/// An event of a task says itself whose it is.
fn of_task(event: &[u8]) -> Step<(Whose, &[u8])> {
    let mut get = Get(event);
    let task_id = TaskId::new(get.id()?).map_err(|odd| unreadable(odd.to_string()))?;
    let agent_id = AgentId::new(get.id()?).map_err(|odd| unreadable(odd.to_string()))?;
    Ok((Whose { agent_id, task_id, run_id: None, session_id: None, occurrence: None }, get.0))
}

pub(super) fn lane(value: Value) -> Step<LaneView> {
    if value == Value::Nil {
        return Ok(LaneView::default());
    }
    let mut list = List::of(value)?;
    let (version, total) = (list.number()?, list.number()?);
    let scheduled = list.number::<u8>()? == 1;
    let mut shown = list.list()?;
    let mut active = Vec::with_capacity(shown.len());
    while !shown.is_empty() {
        let mut one = shown.list()?;
        let (rid, bytes) = (one.bytes()?, one.maybe()?);
        let bytes = bytes.ok_or_else(|| unreadable(format!("a run of the lane is gone: {rid:?}")))?;
        let record = Record::read(&bytes)?;
        let own = record.own()?;
        active.push(LaneRun { run_id: own.run_id, status: record.status, trigger: own.trigger });
    }
    // The last one is shown for itself.
    let scheduled_waiting = if scheduled { active.pop().map(|run| run.run_id) } else { None };
    Ok(LaneView { version, active, total, scheduled_waiting })
}

pub(super) fn counts(value: Value) -> Step<Vec<(RunStatus, u64)>> {
    let mut list = List::of(value)?;
    let mut found = Vec::new();
    for status in RunStatus::ALL {
        match list.maybe()?.map(|count| answer::number::<i64>(&count)).transpose()? {
            Some(count) if count > 0 => found.push((status, count.unsigned_abs())),
            _ => {}
        }
    }
    Ok(found)
}

pub(super) fn agents(value: Value) -> Step<Vec<(AgentId, Arc<str>)>> {
    let mut list = List::of(value)?;
    let mut found = Vec::with_capacity(list.len() / 2);
    while !list.is_empty() {
        let (id, said) = (list.bytes()?, list.bytes()?);
        let id = AgentId::new(text(&id)?).map_err(|odd| unreadable(odd.to_string()))?;
        found.push((id, text(&said)?.into()));
    }
    found.sort();
    Ok(found)
}

/// Runs of one answer of a listing, how far was looked, and whether that was all.
pub(super) struct Looked {
    pub(super) found: Vec<(u64, String, Step<Run>)>,
    pub(super) at: u64,
    pub(super) done: bool,
}

pub(super) fn looked(value: Value, commons: &mut Commons) -> Step<Looked> {
    let mut list = List::of(value)?;
    let found = commons.runs(list.next()?)?.into_iter();
    let found = found.map(|answered| (answered.number, answered.name, answered.run)).collect();
    Ok(Looked { found, at: list.number()?, done: list.number::<u8>()? == 1 })
}

/// How many runs of a listing were found, how far was looked, and whether that was all.
pub(super) fn counted(value: Value, _: &mut Commons) -> Step<(u64, u64, bool)> {
    let mut list = List::of(value)?;
    list.next()?;
    let (at, done) = (list.number()?, list.number::<u8>()? == 1);
    Ok((list.number()?, at, done))
}
