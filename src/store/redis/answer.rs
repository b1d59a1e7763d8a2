//! What the scripts answer, taken apart.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use redis::Value;

use super::bytes::text;
use super::fault::{Fault, Step, unreadable};
use super::record::{self, Record};
use super::spec::Common;
use crate::model::{Run, RunId, Timestamp};
use crate::store::{Decision, Hint, Refusal, RefusedKind};

/// A list, of which one takes element after element.
#[derive(Debug)]
pub(super) struct List(std::vec::IntoIter<Value>);

impl List {
    pub(super) fn of(value: Value) -> Step<Self> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            Value::Nil => Ok(Self(Vec::new().into_iter())),
            other => Err(odd(&other)),
        }
    }

    pub(super) fn next(&mut self) -> Step<Value> {
        self.0.next().ok_or_else(|| unreadable("the answer of the server is too short"))
    }

    pub(super) fn list(&mut self) -> Step<Self> {
        Self::of(self.next()?)
    }

    pub(super) fn bytes(&mut self) -> Step<Vec<u8>> {
        self.maybe()?.ok_or_else(|| odd(&Value::Nil))
    }

    /// Bytes, if there are any.
    pub(super) fn maybe(&mut self) -> Step<Option<Vec<u8>>> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::SimpleString(text) => Ok(Some(text.into_bytes())),
            Value::Int(number) => Ok(Some(number.to_string().into_bytes())),
            Value::Nil => Ok(None),
            other => Err(odd(&other)),
        }
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self) -> Step<T> {
        number(&self.bytes()?)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

fn odd(value: &Value) -> Fault {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "a text",
        _ => "something else",
    };
    Fault::Refused(
        RefusedKind::Corrupt,
        format!("the server answered {kind} where the script answers otherwise"),
    )
}

pub(super) fn number<T: std::str::FromStr>(bytes: &[u8]) -> Step<T> {
    let parsed = text(bytes)?.parse();
    parsed.map_err(|_| unreadable("the server answered with a number that is none"))
}

/// An instant of a sorted set: past 2^53 a score is only near it.
#[allow(clippy::cast_possible_truncation, reason = "what lies beyond the range is pulled to its ends")]
pub(super) fn score(bytes: &[u8]) -> Step<Timestamp> {
    match number::<i64>(bytes) {
        Ok(ms) => Ok(Timestamp::from_ms(ms)),
        Err(_) => number::<f64>(bytes).map(|ms| Timestamp::from_ms(ms as i64)),
    }
}

/// What a script tells of what it changed.
pub(super) fn hint(value: Value) -> Step<Option<Hint>> {
    if value == Value::Nil {
        return Ok(None);
    }
    let mut list = List::of(value)?;
    let mut bit = || -> Step<bool> { Ok(list.number::<u8>()? == 1) };
    let (ready, agenda, agents) = (bit()?, bit()?, bit()?);
    let cursor = list.number()?;
    Ok(Some(Hint { ready, agenda, agents, cancels: names(text(&list.bytes()?)?), cursor }))
}

/// What another tells over the channel: who it is, and the same.
pub(super) fn told(message: &str) -> Option<(&str, Hint)> {
    let mut words = message.split(' ');
    let sender = words.next()?;
    let mut bit = || Some(words.next()? == "1");
    let (ready, agenda, agents) = (bit()?, bit()?, bit()?);
    let cursor = words.next()?.parse().ok()?;
    Some((sender, Hint { ready, agenda, agents, cancels: names(words.next()?), cursor }))
}

fn names(text: &str) -> Vec<RunId> {
    text.split(',').filter_map(|name| RunId::new(name).ok()).collect()
}

/// A run that was answered: it can be read or not.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) run: Step<Run>,
}

/// The common parts of runs, each read once.
#[derive(Debug, Default)]
pub(super) struct Commons {
    by_text: HashMap<Vec<u8>, Arc<Common>>,
    /// How long their texts are together.
    bytes: usize,
}

/// How many are remembered.
const MOST_COMMONS: usize = 4096;
/// How long their texts are together: a query may be a million bytes.
const MOST_BYTES: usize = 8 << 20;

impl Commons {
    fn read(&mut self, kept: Vec<u8>) -> Step<Arc<Common>> {
        if let Some(common) = self.by_text.get(&kept) {
            return Ok(Arc::clone(common));
        }
        let common = Arc::new(Common::read(&kept)?);
        self.bytes += kept.len();
        if self.by_text.len() >= MOST_COMMONS || self.bytes > MOST_BYTES {
            self.by_text.clear();
            self.bytes = kept.len();
        }
        self.by_text.insert(kept, Arc::clone(&common));
        Ok(common)
    }

    /// The common parts of one answer, by their number.
    pub(super) fn of(&mut self, mut list: List) -> Step<HashMap<Vec<u8>, Step<Arc<Common>>>> {
        let mut found = HashMap::with_capacity(list.len() / 2);
        while !list.is_empty() {
            let sid = list.bytes()?;
            let common = match list.maybe()? {
                Some(kept) => self.read(kept),
                None => Err(unreadable("its specification is gone")),
            };
            found.insert(sid, common);
        }
        Ok(found)
    }

    /// Runs as every script answers them.
    pub(super) fn runs(&mut self, value: Value) -> Step<Vec<Answered>> {
        let mut list = List::of(value)?;
        let (mut records, commons) = (list.list()?, list.list()?);
        let commons = self.of(commons)?;
        let mut found = Vec::with_capacity(records.len() / 3);
        while !records.is_empty() {
            let (rid, record, result) = (records.bytes()?, records.bytes()?, records.maybe()?);
            let number = rid.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            let run = Record::read(&record).and_then(|record| match commons.get(record.sid) {
                Some(Ok(common)) => record.run(common, result.as_deref()),
                Some(Err(fault)) => Err(fault.clone()),
                None => Err(unreadable("its specification is gone")),
            });
            let name = match &run {
                Ok(run) => run.run_id.to_string(),
                Err(_) => match Record::read(&record).and_then(|record| record.own()) {
                    Ok(own) => own.run_id.to_string(),
                    Err(_) => format!("number {number}"),
                },
            };
            found.push(Answered { number, name, run });
        }
        Ok(found)
    }

    /// One run, if there is one.
    pub(super) fn run(&mut self, value: Value) -> Step<Option<Run>> {
        self.runs(value)?.pop().map(|answered| answered.run).transpose()
    }

    /// The runs that can be read. Of the others only the name is told.
    pub(super) fn readable(&mut self, value: Value) -> Step<Vec<Run>> {
        let mut found = Vec::new();
        for Answered { name, run, .. } in self.runs(value)? {
            match run {
                Ok(run) => found.push(run),
                Err(Fault::Unreadable(why)) => tracing::error!(run = name, why, "a run cannot be read"),
                Err(fault) => return Err(fault),
            }
        }
        Ok(found)
    }
}

/// What became of a decision.
pub(super) fn verdict(value: Value, decision: &Decision) -> Step<Result<(), Refusal>> {
    if value == Value::Int(0) {
        return Ok(Ok(()));
    }
    let mut list = List::of(value)?;
    let kind = list.bytes()?;
    let run_at = |list: &mut List| -> Step<RunId> {
        let at: usize = list.number()?;
        let write = at.checked_sub(1).and_then(|at| decision.runs.get(at));
        write.map(|write| write.run.run_id.clone()).ok_or_else(|| unreadable("the script names no run"))
    };
    Ok(Err(match &kind[..] {
        b"gone" => Refusal::NoRun { run_id: run_at(&mut list)? },
        b"stale" => {
            let (run_id, version) = (run_at(&mut list)?, eight(&list.bytes()?)?);
            Refusal::StaleRun { run_id, version, status: record::status(list.number()?)? }
        }
        b"live" => {
            let at: usize = list.number()?;
            let run_id = at.checked_sub(1).and_then(|at| decision.forget.get(at)).cloned();
            let run_id = run_id.ok_or_else(|| unreadable("the script names no run"))?;
            let version = eight(&list.bytes()?)?;
            Refusal::StaleRun { run_id, version, status: record::status(list.number()?)? }
        }
        b"fenced" => {
            let (run_id, fence) = (run_at(&mut list)?, eight(&list.bytes()?)?);
            Refusal::Fenced { run_id, fence, status: record::status(list.number()?)? }
        }
        b"key" => {
            let name = list.bytes()?;
            let run_id = RunId::new(text(&name)?).map_err(|odd| unreadable(odd.to_string()))?;
            Refusal::KeyExists { run_id, digest: eight(&list.bytes()?)? }
        }
        b"task" => {
            let task_id = decision.task.as_ref().map(|write| write.task_id.clone());
            let task_id = task_id.ok_or_else(|| unreadable("the script names no task"))?;
            Refusal::StaleTask { task_id, revision: maybe_eight(&list.bytes()?)? }
        }
        b"schedule" => {
            let task_id = decision.schedule.as_ref().map(|write| write.state.task_id.clone());
            let task_id = task_id.ok_or_else(|| unreadable("the script names no schedule"))?;
            Refusal::StaleSchedule { task_id, version: maybe_eight(&list.bytes()?)? }
        }
        b"lane" => {
            let at: usize = list.number()?;
            let lane = at.checked_sub(1).and_then(|at| decision.lanes.get(at));
            let name =
                lane.map(|lane| lane.name.clone()).ok_or_else(|| unreadable("the script names no lane"))?;
            Refusal::StaleLane { name, version: list.number()? }
        }
        b"occurrences" => occurrences(list, decision)?,
        b"corrupt" => return Err(unreadable(format!("run \"{}\"", text(&list.bytes()?)?))),
        other => return Err(unreadable(format!("the script refuses with {other:?}"))),
    }))
}

/// Those of the first task among them.
fn occurrences(mut list: List, decision: &Decision) -> Step<Refusal> {
    let mut exist = Vec::new();
    while !list.is_empty() {
        let at: usize = list.number()?;
        exist.extend(at.checked_sub(1).and_then(|at| decision.occurrences.get(at)));
    }
    let task_id = exist.first().map(|occurrence| occurrence.task_id.clone());
    let task_id = task_id.ok_or_else(|| unreadable("the script names no occurrence"))?;
    let due_at = exist.iter().filter(|occurrence| occurrence.task_id == task_id);
    let due_at = due_at.map(|occurrence| occurrence.due_at).collect();
    Ok(Refusal::OccurrenceExists { task_id, due_at })
}

pub(super) fn eight(bytes: &[u8]) -> Step<u64> {
    super::bytes::Get(bytes).u64()
}

fn maybe_eight(bytes: &[u8]) -> Step<Option<u64>> {
    if bytes.is_empty() { Ok(None) } else { eight(bytes).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::super::bytes::Put;
    use super::*;

    fn kept(number: u64, query: &str) -> Vec<u8> {
        let mut put = Put::default();
        put.id("agent").id("task").u32(0).u8(0).u16(1).text32(b"s");
        put.text32(format!("{number} {query}").as_bytes());
        put.raw(
            br#"{"workspace":["w"],"write_run_json":false,"write_events_jsonl":false,"timeout":null,
            "retry_policy":{},"overlap_policy":"skip_if_running"}"#,
        );
        put.0
    }

    #[test]
    fn large_queries_are_not_remembered_without_a_bound() {
        let mut commons = Commons::default();
        let query = "q".repeat(1 << 20);
        for number in 0..64 {
            commons.read(kept(number, &query)).expect("a common part");
            let bytes: usize = commons.by_text.keys().map(Vec::len).sum();
            assert!(bytes <= MOST_BYTES, "{bytes} bytes of {number}");
        }
        let (one, other) = (commons.read(kept(0, "small")), commons.read(kept(0, "small")));
        assert!(Arc::ptr_eq(&one.expect("it is read"), &other.expect("it is remembered")));
    }
}
