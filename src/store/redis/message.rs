//! Decisions as the script `commit` reads them.

use foldhash::{HashMap, HashMapExt};
use redis::Cmd;

use super::bytes::Put;
use super::fault::Step;
use super::record;
use super::spec::Kept;
use super::task;
use crate::model::{Occurrence, Timestamp};
use crate::store::{Decision, Expect, RunWrite, ScheduleWrite, TaskChange, TaskWrite};

/// Decisions of one call in the making.
#[derive(Debug, Default)]
pub(super) struct Message {
    arguments: Vec<Vec<u8>>,
    specs: HashMap<Vec<u8>, usize>,
    in_order: Vec<(u64, Vec<u8>)>,
    pub(super) decisions: usize,
    pub(super) bytes: usize,
}

impl Message {
    pub(super) fn new() -> Self {
        Self { specs: HashMap::new(), ..Self::default() }
    }

    /// Puts the decisions behind the arguments that a command has.
    pub(super) fn put_into(&self, command: &mut Cmd) {
        command.arg(self.in_order.len());
        for (digest, text) in &self.in_order {
            command.arg(&digest.to_be_bytes()[..]).arg(&text[..]);
        }
        command.arg(self.decisions);
        for argument in &self.arguments {
            command.arg(&argument[..]);
        }
    }

    /// Where the message ends now.
    pub(super) fn mark(&self) -> (usize, usize) {
        (self.arguments.len(), self.decisions)
    }

    /// Takes back what was added since.
    pub(super) fn back_to(&mut self, (arguments, decisions): (usize, usize)) {
        self.arguments.truncate(arguments);
        self.decisions = decisions;
    }

    /// Adds a decision. A grant is made only if the run can still be had.
    pub(super) fn add(&mut self, decision: &Decision, grant: bool) -> Step<()> {
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let mut head = Put::default();
        head.u8(u8::from(decision.task.is_some())).u8(u8::from(decision.schedule.is_some()));
        head.u32(count(decision.runs.len())).u32(count(decision.lanes.len()));
        head.u32(count(decision.occurrences.len()));
        let begun = self.arguments.len();
        self.arguments.push(head.0);
        let added = self.add_parts(decision, grant);
        match &added {
            // Nothing of it is sent.
            Err(_) => self.arguments.truncate(begun),
            Ok(()) => {
                self.decisions += 1;
                self.bytes += self.arguments[begun..].iter().map(Vec::len).sum::<usize>();
            }
        }
        added
    }

    fn add_parts(&mut self, decision: &Decision, grant: bool) -> Step<()> {
        if let Some(write) = &decision.task {
            self.add_task(write)?;
        }
        if let Some(ScheduleWrite { expect, state }) = &decision.schedule {
            let record = task::schedule(state)?;
            self.arguments.extend([state.task_id.as_str().into(), optional(*expect), record]);
        }
        for write in &decision.runs {
            self.add_run(write, grant)?;
        }
        for lane in &decision.lanes {
            self.arguments.extend([lane.name.as_bytes().to_vec(), lane.version.to_string().into()]);
        }
        for occurrence in &decision.occurrences {
            self.add_occurrence(occurrence)?;
        }
        Ok(())
    }

    fn add_task(&mut self, write: &TaskWrite) -> Step<()> {
        let (change, record) = match &write.change {
            TaskChange::Keep => ("K", Vec::new()),
            TaskChange::Put(task) => ("P", task::task(task)?),
            TaskChange::Delete => ("D", Vec::new()),
        };
        self.arguments.extend([write.task_id.as_str().into(), optional(write.expect), change.into(), record]);
        self.arguments.extend([task::idle(&write.task_id)?, write.events.len().to_string().into()]);
        for event in &write.events {
            self.arguments.extend([event.at.ms().to_string().into(), record::event(event)]);
        }
        Ok(())
    }

    fn add_run(&mut self, write: &RunWrite, grant: bool) -> Step<()> {
        let run = &write.run;
        let (kind, version, token, unrenewed, spec_at) = match write.expect {
            Expect::Absent => (0, 0, None, None, self.spec(write)?),
            Expect::At { version, token, unrenewed } => (1, version, token, unrenewed, 0),
        };
        let alarm = record::alarm(run);
        let flags = record::flags(run, alarm);
        let ended = run.status.is_terminal().then(|| run.finished_at.unwrap_or(run.spec.queued_at));
        let key = run.spec.idempotency.as_ref();
        let told = u8::try_from(write.events.len());
        let told = told.map_err(|_| super::fault::invalid("more than 255 events of one write"))?;
        let mut head = Put::default();
        head.u8(kind).u8(u8::from(token.is_some())).u8(u8::from(unrenewed.is_some()));
        head.u8(u8::from(grant)).u8(u8::from(ended.is_some())).u16(spec_at);
        head.u32(write.attempt.as_ref().map_or(0, |attempt| attempt.number)).u8(told);
        head.u64(version).u64(token.map_or(0, |token| token.fence)).u64(token.map_or(0, |token| token.nonce));
        head.i64(unrenewed.map_or(0, Timestamp::ms)).u64(key.map_or(0, |key| key.digest));
        head.i64(ended.map_or(0, Timestamp::ms));
        let mut front = Put::default();
        front.u8(run.status.number()).u8(flags).u8(0).u8(0).u64(run.version).u64(run.stamp).u64(run.fence);
        front.i64(run.due_at.ms()).i64(alarm.map_or(0, Timestamp::ms));
        let name = run.run_id.as_str();
        self.arguments.extend([head.0, front.0, name.into(), record::kept_name(name)]);
        self.arguments.extend([record::lease(run), record::own(run)?]);
        self.arguments.extend(key.map(|key| record::key_field(run.spec.task_id.as_str(), &key.key)));
        self.arguments.extend(run.result.as_ref().map(record::result));
        if let Some(attempt) = write.attempt.as_ref().filter(|attempt| attempt.number > 0) {
            self.arguments.push(record::attempt(attempt)?);
        }
        self.arguments.extend(write.events.iter().map(record::event));
        Ok(())
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
        self.arguments.extend([occurrence.task_id.as_str().into(), due.0, recorded.into(), record]);
        Ok(())
    }
}

/// A number that must stand, or nothing.
fn optional(number: Option<u64>) -> Vec<u8> {
    number.map_or_else(Vec::new, |number| number.to_be_bytes().to_vec())
}
