//! Follows a run to its end, and cancels it when somebody wants that.

use std::path::Path;

use tenure::Tenure;
use tenure::model::{CancelMode, Event, Run, RunStatus, Subject};
use tenure::rules::CancelRequest;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::LOOKS_EVERY;
use super::tail::Tail;
use super::view::View;
use crate::exit::Failure;
use crate::signals::Signals;

/// How long a run waits before it is said why.
const SAYS_WHY_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// A run that is followed.
pub(super) struct Watch<'a> {
    tenure: &'a Tenure,
    run: Run,
    view: View,
    tail: Tail,
    events: Vec<Event>,
    /// How often somebody wanted it cancelled.
    asked: u32,
    says_why: Instant,
}

/// What was seen of it.
pub(super) struct Watched {
    pub(super) run: Run,
    pub(super) events: Vec<Event>,
    /// Whether all that it answered was shown as it came.
    pub(super) output_shown: bool,
    /// Whether it was cancelled by force.
    pub(super) forced: bool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(tenure: &'a Tenure, run: Run, view: View, workspace: &Path) -> Self {
        let tail = Tail::of(&workspace.join(run.spec.workspace_path.as_ref()));
        let says_why = Instant::now() + SAYS_WHY_EVERY;
        Self { tenure, run, view, tail, events: Vec::new(), asked: 0, says_why }
    }

    pub(super) async fn until_settled(mut self, signals: &mut Signals) -> Result<Watched, Failure> {
        let mut events = self.tenure.follow(Subject::Run(self.run.run_id.clone()), 0);
        let mut ticks = interval(LOOKS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                event = events.next() => if self.tell(event?) {
                    break;
                },
                // A terminal that is closed wants it stopped as well.
                _told = signals.next() => self.cancel().await?,
                _ = ticks.tick() => self.look().await,
            }
        }
        self.show_output();
        let view = &self.view;
        self.tail.finish(|line| view.output(line));
        let output_shown = self.tail.is_whole() && self.view.shows_output();
        self.view.end();
        let run = self.tenure.run(&self.run.run_id).await?;
        Ok(Watched { run, events: self.events, output_shown, forced: self.asked > 1 })
    }

    /// Whether the run has settled.
    fn tell(&mut self, event: Event) -> bool {
        // What the attempt wrote before comes before.
        self.show_output();
        self.view.event(&event);
        let settled = event.status.is_some_and(RunStatus::is_settled);
        self.run.status = event.status.unwrap_or(self.run.status);
        self.events.push(event);
        settled
    }

    fn show_output(&mut self) {
        if self.view.shows_output() {
            let view = &self.view;
            self.tail.read(|line| view.output(line));
        }
    }

    async fn look(&mut self) {
        self.show_output();
        self.view.tick();
        let waits = self.run.status == RunStatus::Queued;
        if waits && Instant::now() >= self.says_why {
            self.says_why = Instant::now() + SAYS_WHY_EVERY;
            // It is shown if it is known; what follows the run tells of a store that does not answer.
            if let Ok(run) = self.tenure.run(&self.run.run_id).await
                && let Ok(Some(waiting)) = self.tenure.waiting(&run).await
            {
                self.view.waits(&waiting);
            }
        }
    }

    /// First the run is asked to stop; then it is cut off.
    async fn cancel(&mut self) -> Result<(), Failure> {
        self.asked += 1;
        let (mode, note) = match self.asked {
            1 => (CancelMode::Cooperative, "asked to stop; once more cuts it off"),
            _ => (CancelMode::Force, "cut off"),
        };
        self.view.note(note);
        let request = CancelRequest {
            mode,
            reason: "stopped by a signal to tenure run".into(),
            requested_by: "tenure run".into(),
            force_after: Some(self.tenure.settings().patience),
        };
        self.tenure.cancel_run(&self.run.run_id, &request).await?;
        Ok(())
    }
}
