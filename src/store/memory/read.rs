//! What is due, and single records.

use super::index::TaskKey;
use super::state::State;
use crate::model::{Attempt, Event, Run, RunId, ScheduleState, Subject, Task, Timestamp};
use crate::store::{Agenda, LaneRun, LaneView};

/// How many runs of a lane are shown.
const LANE_SHOWN: usize = 100;

impl State {
    pub(super) fn agenda(&self, now: Timestamp) -> Agenda {
        Agenda {
            now,
            schedule: self.fires.first().map(|(at, _)| *at),
            run: self.places.next_due().map(|(at, _)| at),
            wake: self.index.wakes.first().map(|(at, _)| *at),
            ready: self.places.any_ready(),
        }
    }

    pub(super) fn due_schedules(&self, limit: usize, now: Timestamp) -> Vec<(Task, ScheduleState)> {
        let due = self.fires.iter().take_while(|(at, _)| *at <= now).take(limit);
        due.filter_map(|(_, task_id)| Some(self.tasks.get(task_id)?.read())).collect()
    }

    pub(super) fn due_runs(
        &self,
        after: Option<(Timestamp, RunId)>,
        limit: usize,
        now: Timestamp,
    ) -> Vec<Run> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let due = self.index.wakes.range((from, Unbounded)).take_while(|(at, _)| *at <= now).take(limit);
        due.filter_map(|(_, run_id)| Some(self.runs.by_id(run_id)?.run.clone())).collect()
    }

    pub(super) fn run_by_key(&self, key: &TaskKey) -> Option<&Run> {
        self.runs.get(self.index.by_key(key)?).map(|record| &record.run)
    }

    pub(super) fn attempts(&self, run_id: &RunId) -> Vec<Attempt> {
        let record = self.runs.by_id(run_id);
        record.map_or_else(Vec::new, |record| record.attempts.values().cloned().collect())
    }

    pub(super) fn events(&self, subject: &Subject, after: u64, limit: usize) -> Vec<Event> {
        match subject {
            Subject::All => self.journal.all(after, limit),
            Subject::Task(task_id) => self.journal.of_task(task_id, after, limit),
            Subject::Run(run_id) => {
                let cursors = self.runs.by_id(run_id).map_or(&[][..], |record| &record.events);
                self.journal.some(cursors, after, limit)
            }
        }
    }

    pub(super) fn lane(&self, name: &str) -> LaneView {
        let Some(lane) = self.lanes.get(name) else { return LaneView::default() };
        let run = |number: &u64| self.runs.get(*number).map(|record| &record.run);
        let shown =
            |run: &Run| LaneRun { run_id: run.run_id.clone(), status: run.status, trigger: run.spec.trigger };
        LaneView {
            version: lane.version,
            active: lane.active.iter().take(LANE_SHOWN).filter_map(run).map(shown).collect(),
            total: lane.active.len() as u64,
            scheduled_waiting: lane.scheduled.first().and_then(run).map(|run| run.run_id.clone()),
        }
    }
}
