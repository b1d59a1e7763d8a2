//! Follows a run to its end, and cancels it when somebody wants that.

use std::path::Path;
use std::pin::pin;

use futures_util::{Stream, StreamExt, stream};
use tenure::model::{CancelMode, Event, Run, RunStatus, Subject, Waiting};
use tenure::rules::CancelRequest;
use tenure::{Error, Tenure};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::LOOKS_EVERY;
use super::tail::Tail;
use super::view::View;
use crate::exit::{Exit, Failure};
use crate::signals::{Signals, Told};

/// How long a run waits before it is said why.
const SAYS_WHY_EVERY: std::time::Duration = std::time::Duration::from_secs(1);
/// How long nothing is asked of a store that failed.
const AFTER_FAILURE: std::time::Duration = std::time::Duration::from_millis(500);
/// How long a store may take to hear that a run is cut off, before whoever wants that is let go.
const HEARS_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);
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
    /// Whether that was said.
    is_without_store: bool,
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
        Self { tenure, run, view, tail, events: Vec::new(), asked: 0, says_why, is_without_store: false }
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
        let mut events = pin!(follow(self.tenure, Subject::Run(self.run.run_id.clone()), known));
        let mut ticks = interval(LOOKS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(event) => if self.tell(event) {
                        break;
                    },
                    Err(error) => self.without_store(error)?,
                },
                // A terminal that is closed wants it stopped as well.
                told = signals.next() => self.cancel_or_cut_off(told, signals).await?,
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

    /// A store that does not answer is no end of a run: it is executed, and followed when the store is back.
    fn without_store(&mut self, error: Error) -> Result<(), Failure> {
        match &error {
            Error::Store(failed) if failed.is_transient() => {
                if !std::mem::replace(&mut self.is_without_store, true) {
                    self.view.note(&format!("{error}; the run goes on meanwhile"));
                }
                Ok(())
            }
            _ => Err(error.into()),
        }
    }

    /// Whether the run has settled.
    fn tell(&mut self, event: Event) -> bool {
        self.is_without_store = false;
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
            // It is shown if it is known soon; what follows the run tells of a store that does not answer.
            if let Ok(Some(waiting)) = timeout(LOOKS_EVERY, self.why()).await {
                self.view.waits(&waiting);
            }
        }
    }

    async fn why(&self) -> Option<Waiting> {
        let run = self.tenure.run(&self.run.run_id).await.ok()?;
        self.tenure.waiting(&run).await.ok()?
    }

    /// Who wants it stopped again, while the store is being told of the first time, has it cut off.
    async fn cancel_or_cut_off(&mut self, told: Told, signals: &mut Signals) -> Result<(), Failure> {
        let again = tokio::select! {
            biased;
            asked = self.cancel(told) => return asked,
            again = signals.next() => again,
        };
        timeout(HEARS_WITHIN, self.cancel(again)).await.unwrap_or_else(|_| Err(cut_off()))
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

/// The events of a run as they come. What is being read goes on being read whatever else is waited for: a store that is
/// slow is heard all the same.
fn follow(tenure: &Tenure, subject: Subject, after: u64) -> impl Stream<Item = Result<Event, Error>> + use<> {
    stream::unfold(tenure.follow(subject, after), |mut events| async {
        let event = events.next().await;
        if event.is_err() {
            sleep(AFTER_FAILURE).await;
        }
        Some((event, events))
    })
}

fn cut_off() -> Failure {
    Failure::new(Exit::Forced, "cut off, and the store was not told: it did not answer")
        .hint("once the lease of the run has ended it is lost, and tried again where its agent is")
}
