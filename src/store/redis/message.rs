//! Decisions as the script `commit` reads them.

use foldhash::{HashMap, HashMapExt};
use redis::Cmd;

use super::bytes::{Parts, Put};
use super::fault::Step;
use super::record;
use super::spec::Kept;
use super::task;
use crate::model::Occurrence;
use crate::store::{Decision, Expect, RunWrite, ScheduleWrite, TaskChange, TaskWrite};

/// What a command has in front of its decisions: arguments and bytes, at most.
const FRONT: usize = 12;
const FRONT_BYTES: usize = 512;

/// Before the write of a run that is a decision by itself.
const ALONE: u8 = 1;

/// What a write of a run has.
mod with {
    pub(super) const ABSENT: u8 = 1;
    pub(super) const TOKEN: u8 = 2;
    pub(super) const GRANT: u8 = 4;
    pub(super) const END: u8 = 8;
    pub(super) const RESULT: u8 = 16;
    pub(super) const ATTEMPT: u8 = 32;
    pub(super) const UNRENEWED: u8 = 64;
    pub(super) const KEY: u8 = 128;
}

/// A place in a message.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    names: usize,
    arguments: usize,
    decisions: usize,
}

/// Decisions of one call in the making.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// The names of the runs that decisions are about, in order: the script looks for all of them at once.
    names: Parts,
    arguments: Parts,
    specs: HashMap<Vec<u8>, usize>,
    in_order: Vec<(u64, Vec<u8>)>,
    pub(super) decisions: usize,
    pub(super) bytes: usize,
}

impl Message {
    pub(super) fn new() -> Self {
        Self { specs: HashMap::new(), ..Self::default() }
    }

    /// A command with room for all of it.
    pub(super) fn command(&self) -> Cmd {
        let count = self.names.len() + self.arguments.len() + 2 * self.in_order.len();
        let bytes = self.bytes + self.names.bytes();
        Cmd::with_capacity(count + FRONT, bytes + 8 * self.in_order.len() + FRONT_BYTES)
    }

    /// Puts the decisions behind the arguments that a command has.
    pub(super) fn put_into(&self, command: &mut Cmd) {
        command.arg(self.in_order.len());
        for (digest, text) in &self.in_order {
            command.arg(&digest.to_be_bytes()[..]).arg(&text[..]);
        }
        command.arg(self.decisions).arg(self.names.len());
        for argument in self.names.iter().chain(self.arguments.iter()) {
            command.arg(argument);
        }
    }

    /// Where the message ends now.
    pub(super) fn mark(&self) -> Mark {
        Mark { names: self.names.len(), arguments: self.arguments.len(), decisions: self.decisions }
    }

    /// Takes back what was added since.
    pub(super) fn back_to(&mut self, mark: Mark) {
        self.names.truncate(mark.names);
        self.arguments.truncate(mark.arguments);
        self.decisions = mark.decisions;
    }

    /// Adds a decision. A grant is made only if the run can still be had.
    pub(super) fn add(&mut self, decision: &Decision, grant: bool) -> Step<()> {
        let (begun, bytes) = (self.mark(), self.arguments.bytes());
        let added = match decision {
            Decision { task: None, schedule: None, runs, lanes, occurrences, forget }
                if lanes.is_empty() && occurrences.is_empty() && forget.is_empty() && runs.len() == 1 =>
            {
                self.add_run(&runs[0], grant, Some(ALONE))
            }
            _ => self.add_parts(decision, grant),
        };
        match &added {
            // Nothing of it is sent.
            Err(_) => self.back_to(begun),
            Ok(()) => {
                self.decisions += 1;
                self.bytes += self.arguments.bytes() - bytes;
            }
        }
        added
    }

    fn add_parts(&mut self, decision: &Decision, grant: bool) -> Step<()> {
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let mut head = Put::default();
        head.u8(0).u8(u8::from(decision.task.is_some())).u8(u8::from(decision.schedule.is_some()));
        head.u32(count(decision.runs.len())).u32(count(decision.lanes.len()));
        head.u32(count(decision.occurrences.len())).u32(count(decision.forget.len()));
        self.arguments.push(&head.0);
        if let Some(write) = &decision.task {
            self.add_task(write)?;
        }
        if let Some(ScheduleWrite { expect, state }) = &decision.schedule {
            let record = task::schedule(state)?;
            self.push_all([state.task_id.as_str().as_bytes(), &optional(*expect), &record]);
        }
        for write in &decision.runs {
            self.add_run(write, grant, None)?;
        }
        for lane in &decision.lanes {
            self.push_all([lane.name.as_bytes(), lane.version.to_string().as_bytes()]);
        }
        for occurrence in &decision.occurrences {
            self.add_occurrence(occurrence)?;
        }
        for run_id in &decision.forget {
            self.names.write(|put| record::put_name(put, run_id.as_str()));
        }
        Ok(())
    }

    fn add_task(&mut self, write: &TaskWrite) -> Step<()> {
        let (change, record) = match &write.change {
            TaskChange::Keep => ("K", Vec::new()),
            TaskChange::Put(task) => ("P", task::task(task)?),
            TaskChange::Delete => ("D", Vec::new()),
        };
        let (task_id, expect) = (write.task_id.as_str().as_bytes(), optional(write.expect));
        self.push_all([task_id, &expect, change.as_bytes(), &record]);
        self.push_all([&task::idle(&write.task_id)?, write.events.len().to_string().as_bytes()]);
        for event in &write.events {
            self.arguments.push(event.at.ms().to_string().as_bytes());
            self.arguments.write(|put| record::put_event(put, event));
        }
        Ok(())
    }

    fn push_all<const N: usize>(&mut self, arguments: [&[u8]; N]) {
        arguments.into_iter().for_each(|argument| self.arguments.push(argument));
    }

    fn add_run(&mut self, write: &RunWrite, grant: bool, alone: Option<u8>) -> Step<()> {
        let spec = if write.expect == Expect::Absent { self.spec(write)? } else { 0 };
        self.names.write(|put| record::put_name(put, write.run.run_id.as_str()));
        self.arguments.write(|put| put_run(put, write, spec, grant, alone))
    }

    /// The place of a run's common part among those of the message, from 1: each is sent once.
    fn spec(&mut self, write: &RunWrite) -> Step<u16> {
        let kept = Kept::of(&write.run.spec, write.run.run_id.as_str())?;
        let next = self.in_order.len() + 1;
        let at = *self.specs.entry(kept.text.clone()).or_insert(next);
        if at == next {
            self.bytes += kept.text.len();
            self.in_order.push((kept.digest, kept.text));
        }
        u16::try_from(at).map_err(|_| super::fault::invalid("more than 65,535 kinds of runs in one call"))
    }

    fn add_occurrence(&mut self, occurrence: &Occurrence) -> Step<()> {
        let mut due = Put::default();
        due.i64(occurrence.due_at.ms());
        let recorded = occurrence.recorded_at.ms().to_string();
        let record = task::json(occurrence)?;
        self.push_all([occurrence.task_id.as_str().as_bytes(), &due.0, recorded.as_bytes(), &record]);
        Ok(())
    }
}

/// One argument: what is expected, the run, what only some writes have, and what is told of it.
fn put_run(put: &mut Put, write: &RunWrite, spec: u16, grant: bool, alone: Option<u8>) -> Step<()> {
    let run = &write.run;
    let ended = run.status.is_terminal().then(|| run.finished_at.unwrap_or(run.spec.queued_at));
    let attempt = write.attempt.as_ref().filter(|attempt| attempt.number > 0);
    let mut bits = if grant { with::GRANT } else { 0 };
    put.raw(alone.as_slice());
    let bits_at = put.0.len();
    bits |= expected(put.u8(0), write.expect);
    put.part32(|put| record::put_run(put, run))?;
    match write.expect {
        Expect::Absent => {
            put.u16(spec);
            if let Some(key) = &run.spec.idempotency {
                bits |= with::KEY;
                put.u64(key.digest).text32(&record::key_field(run.spec.task_id.as_str(), &key.key));
            }
        }
        Expect::At { unrenewed: Some(expires_at), .. } => {
            bits |= with::UNRENEWED;
            put.i64(expires_at.ms());
        }
        Expect::At { unrenewed: None, .. } => {}
    }
    if let Some(ended) = ended {
        bits |= with::END;
        put.i64(ended.ms());
    }
    if let Some(result) = &run.result {
        bits |= with::RESULT;
        put.part32(|put| record::put_result(put, result));
    }
    if let Some(attempt) = attempt {
        bits |= with::ATTEMPT;
        put.u32(attempt.number).part32(|put| record::put_attempt(put, attempt))?;
    }
    for event in &write.events {
        put.part32(|put| record::put_event(put, event));
    }
    put.0[bits_at] = bits;
    Ok(())
}

/// The version that is expected, and the token behind it, as they follow each other in a record.
fn expected(put: &mut Put, expect: Expect) -> u8 {
    match expect {
        Expect::Absent => {
            put.u8(0);
            with::ABSENT
        }
        Expect::At { version, token: None, .. } => {
            put.u8(8).u64(version);
            0
        }
        Expect::At { version, token: Some(token), .. } => {
            put.u8(24).u64(version).u64(token.fence).u64(token.nonce);
            with::TOKEN
        }
    }
}

/// A number that must stand, or nothing.
fn optional(number: Option<u64>) -> Vec<u8> {
    number.map_or_else(Vec::new, |number| number.to_be_bytes().to_vec())
}
