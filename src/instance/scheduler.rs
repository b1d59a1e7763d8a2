//! Fires schedules: each due occurrence gets a record, and a run if it is to have one, in one decision with the
//! schedule's next place. Who else fires at the same time is refused by the store (T30, field S6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_actors::{ProcessContext, ProcessResult};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;

use super::pause::Pause;
use super::{Fate, Instance, figures};
use crate::model::{
    EventKind, NewEvent, Occurrence, OccurrenceOutcome, RunId, RunStatus, ScheduleState, SkipReason, Task,
    Timestamp, Trigger,
};
use crate::rules::{self, DueError, DueOccurrence, Look, Moment, Wanted};
use crate::store::{Decision, Hint, Refusal, ScheduleWrite, StoreError, TaskChange, TaskWrite};

/// The most schedules that are fired in one commit.
const PAGE: usize = 100;

/// How often the firing of one schedule is decided again because others were first.
const TRIES: u32 = 8;

/// The longest pause while the store does not answer (field G9).
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn serve(instance: Arc<Instance>, context: ProcessContext) -> ProcessResult {
    let generation = context.generation();
    let mut hints = instance.store.watch();
    let mut pause = Pause::up_to(LONGEST_PAUSE, &instance.outage, "schedules wait");
    loop {
        // A generation that was sealed fires nothing: its successor does.
        let fires = generation.is_open() && !instance.is_draining();
        let wait = if fires {
            instance.fire_all_and_wait(&mut pause).await
        } else {
            pause.give_up();
            instance.settings().poll
        };
        tokio::select! {
            () = context.cancelled() => return Ok(()),
            () = moved(&mut hints) => {}
            () = sleep(wait) => {}
        }
    }
}

/// Waits for a hint that something may be due earlier.
async fn moved(hints: &mut broadcast::Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(hint) if !hint.agenda => {}
            Ok(_) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Instance {
    async fn fire_all_and_wait(&self, pause: &mut Pause<'_>) -> Duration {
        let poll = self.settings().poll;
        let agenda = match self.fire_all().await {
            Ok(moved) => self.vitals.watch(self.store.agenda()).await.map(|agenda| (agenda, moved)),
            Err(error) => Err(error),
        };
        match agenda {
            Ok((agenda, _)) if agenda.schedule.is_none_or(|due| due > agenda.now) => {
                pause.reset();
                agenda.schedule.map_or(poll, |due| due.since(agenda.now).min(poll))
            }
            // Others became due meanwhile.
            Ok((_, true)) => Duration::ZERO,
            // It could not be fired: others were first again and again.
            Ok((_, false)) => pause.longer(),
            Err(error) => pause.after_failure(&error),
        }
    }

    /// Whether any schedule has moved.
    async fn fire_all(&self) -> Result<bool, StoreError> {
        let mut moved = false;
        loop {
            let due = self.vitals.watch(self.store.due_schedules(PAGE)).await?;
            let full = due.len() == PAGE;
            if due.is_empty() {
                return Ok(moved);
            }
            let moment = self.moment().await?;
            let mut decisions = Vec::with_capacity(due.len());
            for (task, state) in &due {
                decisions.push(self.firing(task, state, Look::at(moment.now)).await?);
            }
            let answers = self.commit(decisions).await?;
            for ((task, _), answer) in due.iter().zip(answers) {
                match answer {
                    Ok(()) => moved = true,
                    Err(refusal) => self.fire_again(task, refusal).await?,
                }
            }
            if !full {
                return Ok(moved);
            }
        }
    }

    /// Fires one schedule whose firing was refused: by who fired it first, or for occurrences that have a
    /// record from before, which are passed over.
    async fn fire_again(&self, task: &Task, mut refusal: Refusal) -> Result<(), StoreError> {
        let task_id = &task.spec.task_id;
        let mut recorded: Vec<Timestamp> = Vec::new();
        for _ in 0..TRIES {
            if let Refusal::OccurrenceExists { due_at, .. } = refusal {
                recorded.extend(due_at);
            }
            let Some((task, state)) = self.vitals.watch(self.store.task(task_id)).await? else {
                return Ok(());
            };
            let now = self.vitals.watch(self.store.now()).await?;
            if !task.spec.enabled || state.fire_at().is_none_or(|at| at > now) {
                // The history names who fired it; that this host tried is told here (field S7).
                tracing::debug!(task = %task_id, "another host has fired the schedule");
                figures::forestalled();
                return Ok(());
            }
            let look = Look { recorded: &recorded, ..Look::at(now) };
            let decision = self.firing(&task, &state, look).await?;
            match self.commit_one(decision).await? {
                Ok(()) => return Ok(()),
                Err(again) => refusal = again,
            }
        }
        tracing::warn!(task = %task_id, %refusal, "a schedule could not be fired; it is tried again");
        Ok(())
    }

    /// The decision to fire a schedule, made on its task, its state and its lane as they stand.
    pub(crate) async fn firing(
        &self,
        task: &Task,
        state: &ScheduleState,
        look: Look<'_>,
    ) -> Result<Decision, StoreError> {
        let schedule = &task.spec.schedule;
        let firing = match rules::Plan::of(schedule) {
            Ok(plan) => rules::fire(&plan, schedule, state, look),
            Err(error) => return Ok(failing(task, state, &error, look.now)),
        };
        let mut plan = self.plan(task).await?;
        let mut wanted = BTreeMap::new();
        for occurrence in &firing.due {
            if let rules::Fate::Runs { not_before } = occurrence.fate {
                let wants = wants(occurrence, not_before);
                let moment = Moment { now: look.now, stamp: self.draw() };
                wanted.insert(occurrence.due_at, plan.want(wants, moment, self.settings().patience));
            }
        }
        let mut decision = plan.decision;
        decision.occurrences = self.records(&firing.due, &wanted, &decision, look.now);
        decision.schedule = Some(ScheduleWrite { expect: Some(state.version), state: firing.next });
        Ok(decision)
    }

    fn records(
        &self,
        due: &[DueOccurrence],
        wanted: &BTreeMap<Timestamp, Fate>,
        decision: &Decision,
        now: Timestamp,
    ) -> Vec<Occurrence> {
        let of = |due_at: &Timestamp| wanted.get(due_at).map(|fate| outcome(fate, decision));
        let record = |occurrence: &DueOccurrence| {
            let task = decision.task.as_ref()?;
            let outcome = match &occurrence.fate {
                rules::Fate::Runs { .. } => of(&occurrence.due_at),
                rules::Fate::Coalesced { into } => of(into).map(stands_for),
                rules::Fate::Skipped(reason) => Some(OccurrenceOutcome::Skipped { reason: reason.clone() }),
            };
            Some(Occurrence {
                task_id: task.task_id.clone(),
                due_at: occurrence.due_at,
                outcome: outcome?,
                late_by_ms: occurrence.late_by_ms,
                recorded_at: now,
                recorded_by: self.id,
                count: occurrence.count,
            })
        };
        due.iter().filter_map(record).collect()
    }
}

fn wants(occurrence: &DueOccurrence, not_before: Timestamp) -> Wanted {
    Wanted {
        trigger: Trigger::Schedule,
        due_at: occurrence.due_at,
        not_before,
        occurrence: Some(occurrence.due_at),
        ..Wanted::now(RunId::generate(), not_before)
    }
}

/// What became of an occurrence that wanted a run, in the decision as it has become.
fn outcome(fate: &Fate, decision: &Decision) -> OccurrenceOutcome {
    let run = match fate {
        Fate::Coalesced(into) => return OccurrenceOutcome::Coalesced { into: into.clone() },
        Fate::Run(run) => run,
    };
    // A later occurrence of the same decision may have replaced it.
    let written = decision.runs.iter().map(|write| &write.run).find(|written| written.run_id == run.run_id);
    match written.unwrap_or(run) {
        run if run.status == RunStatus::Skipped => {
            let blocked_by = run.blocked_by.clone().unwrap_or_else(|| run.run_id.clone());
            OccurrenceOutcome::Skipped { reason: SkipReason::Overlap { blocked_by } }
        }
        run => OccurrenceOutcome::Ran { run_id: run.run_id.clone() },
    }
}

/// What became of an occurrence for which another stands, by what became of that one.
fn stands_for(other: OccurrenceOutcome) -> OccurrenceOutcome {
    match other {
        OccurrenceOutcome::Ran { run_id } => OccurrenceOutcome::Coalesced { into: run_id },
        coalesced_or_skipped => coalesced_or_skipped,
    }
}

/// A schedule that cannot be fired says so, and is tried again; others go on (T36).
fn failing(task: &Task, state: &ScheduleState, error: &DueError, now: Timestamp) -> Decision {
    let mut told = task.clone();
    told.last_event += 1;
    let event = NewEvent {
        sequence: told.last_event,
        kind: EventKind::ScheduleFailing,
        at: now,
        status: None,
        attempt: 0,
        fence: 0,
        instance: None,
        data: Some(serde_json::json!({ "error": error.to_string() }).to_string().into()),
    };
    let write = TaskWrite {
        task_id: task.spec.task_id.clone(),
        expect: Some(task.revision),
        change: TaskChange::Put(Box::new(told)),
        events: vec![event],
    };
    let state = rules::failing(state, &error.to_string(), now);
    Decision {
        task: Some(write),
        schedule: Some(ScheduleWrite { expect: Some(state.version - 1), state }),
        ..Decision::default()
    }
}
