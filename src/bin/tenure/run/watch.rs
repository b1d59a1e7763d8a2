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
use crate::signals::{Signals, Told};

/// How long a run waits before it is said why.
const SAYS_WHY_EVERY: std::time::Duration = std::time::Duration::from_secs(1);
/// The most events that are read at once.
const PAGE: usize = 500;

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
    /// Whether somebody wanted it cancelled, and whether by force.
    pub(super) stopped: bool,
    pub(super) forced: bool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(tenure: &'a Tenure, run: Run, view: View, workspace: &Path) -> Self {
        let tail = Tail::of(&workspace.join(run.spec.workspace_path.as_ref()));
        let says_why = Instant::now() + SAYS_WHY_EVERY;
        Self { tenure, run, view, tail, events: Vec::new(), asked: 0, says_why }
    }

    /// What has happened to it is known, and not told again.
    pub(super) async fn after_what_is_known(mut self) -> Result<Self, Failure> {
        while (self.events.len() as u64) < self.run.last_event {
            let subject = Subject::Run(self.run.run_id.clone());
            let after = self.events.last().map_or(0, |event| event.sequence);
            let mut page = self.tenure.events(subject, after, PAGE).await?;
            page.retain(|event| event.sequence <= self.run.last_event);
            if page.is_empty() {
                break;
            }
            self.events.append(&mut page);
        }
        Ok(self)
    }

    pub(super) async fn until_settled(mut self, signals: &mut Signals) -> Result<Watched, Failure> {
        let known = self.events.last().map_or(0, |event| event.sequence);
        let mut events = self.tenure.follow(Subject::Run(self.run.run_id.clone()), known);
        let mut ticks = interval(LOOKS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                event = events.next() => if self.tell(event?) {
                    break;
                },
                // A terminal that is closed wants it stopped as well.
                told = signals.next() => self.cancel(told).await?,
                _ = ticks.tick() => self.look().await,
            }
        }
        self.show_output();
        let view = &self.view;
        self.tail.finish(|line| view.output(line));
        let output_shown = self.tail.is_whole() && self.view.shows_output();
        self.view.end();
        let run = self.tenure.run(&self.run.run_id).await?;
        Ok(Watched {
            run,
            events: self.events,
            output_shown,
            stopped: self.asked > 0,
            forced: self.asked > 1,
        })
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
    async fn cancel(&mut self, told: Told) -> Result<(), Failure> {
        self.asked += 1;
        let patience = self.tenure.settings().patience;
        let mode = match self.asked {
            1 => {
                self.view.stopping(patience);
                CancelMode::Cooperative
            }
            _ => {
                self.view.note("cut off");
                CancelMode::Force
            }
        };
        let request = CancelRequest {
            mode,
            reason: told.name().into(),
            requested_by: crate::who::this_user().into(),
            force_after: Some(patience),
        };
        self.tenure.cancel_run(&self.run.run_id, &request).await?;
        Ok(())
    }
}
