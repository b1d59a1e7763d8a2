//! Scenarios: a story of supervised work, told several times, that comes out the same.
//!
//! Each run has a runtime, an application and a clock of its own. The first two runs are alike and must give
//! the same text; the others have their ready queues shuffled, each by its seed, and must give that text too,
//! or one of the alternatives that the scenario names (transcript, rule 9).

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::application::Application;
use crate::chaos::Chaos;
use crate::exit::ProcessResult;
use crate::journal::{Journal, Recorder};
use crate::rules::Patience;
use crate::settings::{ApplicationSpec, GenerationSpec};
use crate::testkit::balance::leftovers;
use crate::testkit::idle::Idle;
use crate::testkit::quiet::Quiet;
use crate::testkit::{Recording, Transcript};
use crate::tree::Tree;

mod failure;
mod stage;

pub use failure::Failure;
pub use stage::Stage;

/// How long a story may take, on its own clock. One that waits for nothing gets there at once.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// The seed of the runs that are not shuffled.
const UNSHUFFLED: u64 = 0;

/// A story of supervised work, to be told by [`Scenario::run`].
///
/// Run it from a plain `#[test]`: it makes its own runtime, and tokio panics when that is done inside another.
/// Specs are made anew for every run, so that no run sees what another left; a story has to make anew what it
/// shares with its processes.
pub struct Scenario {
    name: String,
    spec: Box<dyn Fn() -> ApplicationSpec>,
    patience: Option<Patience>,
    close_deadline: Option<Duration>,
    alternatives: Vec<Alternative>,
    seeds: u64,
}

struct Alternative {
    name: String,
    is_it: Box<dyn Fn(&Transcript) -> bool>,
}

/// What came out of a scenario: one transcript, or one for each alternative.
#[derive(Debug)]
pub struct Outcomes {
    found: Vec<(String, Transcript)>,
}

impl Outcomes {
    /// The transcript of an alternative.
    #[must_use]
    pub fn get(&self, alternative: &str) -> Option<&Transcript> {
        self.iter().find(|(name, _)| *name == alternative).map(|(_, transcript)| transcript)
    }

    /// Name and transcript of every alternative, sorted by name; one without a name if none was declared.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Transcript)> {
        self.found.iter().map(|(name, transcript)| (name.as_str(), transcript))
    }
}

impl Scenario {
    /// A scenario of an application with default settings. The name says in one line what happens.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            spec: Box::new(ApplicationSpec::default),
            patience: None,
            close_deadline: None,
            alternatives: Vec::new(),
            seeds: 8,
        }
    }

    /// What the application is made of, made anew for every run.
    #[must_use]
    pub fn application(mut self, spec: impl Fn() -> ApplicationSpec + 'static) -> Self {
        self.spec = Box::new(spec);
        self
    }

    /// What its generations are made of, made anew for every run; the application has default settings.
    #[must_use]
    pub fn generation(self, spec: impl Fn() -> GenerationSpec + 'static) -> Self {
        self.application(move || spec().into())
    }

    /// How long children that name none of their own are waited for when they are told to stop, in
    /// milliseconds.
    #[must_use]
    pub fn patience(mut self, ms: u64) -> Self {
        self.patience = Some(Patience::Time(ms));
        self
    }

    /// The longest that a close may take.
    #[must_use]
    pub fn close_deadline(mut self, deadline: Duration) -> Self {
        self.close_deadline = Some(deadline);
        self
    }

    /// Names an outcome that may come instead of others, and how to tell it. Every outcome has to be one of
    /// those that are named, with the same text in every run, and each of them has to come up.
    #[must_use]
    pub fn alternative(mut self, name: &str, is_it: impl Fn(&Transcript) -> bool + 'static) -> Self {
        self.alternatives.push(Alternative { name: name.to_owned(), is_it: Box::new(is_it) });
        self
    }

    /// How many shuffled runs there are. Default 8.
    #[must_use]
    pub fn seeds(mut self, seeds: u64) -> Self {
        self.seeds = seeds;
        self
    }

    /// Tells the story and answers its transcript. At the end of the story the application is closed, unless
    /// the story did that itself.
    ///
    /// # Panics
    /// When the scenario fails, with the text of its [`Failure`]; and when it names alternatives: use
    /// [`Scenario::run_all`] for those.
    #[track_caller]
    #[allow(clippy::panic, reason = "failing the test is what it is for")]
    pub fn run(&self, story: impl AsyncFn(&Stage) -> ProcessResult) -> Transcript {
        let outcomes = self.run_all(story);
        match <[_; 1]>::try_from(outcomes.found) {
            Ok([(_, transcript)]) => transcript,
            Err(_) => panic!("scenario \"{}\" names alternatives; take them from run_all", self.name),
        }
    }

    /// [`Scenario::run`] for a scenario with alternatives: all of them.
    ///
    /// # Panics
    /// When the scenario fails.
    #[track_caller]
    #[allow(clippy::panic, reason = "failing the test is what it is for")]
    pub fn run_all(&self, story: impl AsyncFn(&Stage) -> ProcessResult) -> Outcomes {
        match self.try_run(story) {
            Ok(outcomes) => outcomes,
            Err(failure) => panic!("{failure}"),
        }
    }

    /// [`Scenario::run_all`] with the failure as a value.
    ///
    /// # Errors
    /// [`Failure`]: the story panicked, failed or did not end, something does not add up, leaked or was left,
    /// two runs that are alike differ, or a shuffled run gave an outcome that is not named.
    pub fn try_run(&self, story: impl AsyncFn(&Stage) -> ProcessResult) -> Result<Outcomes, Failure> {
        let first = self.perform(UNSHUFFLED, &story)?;
        let again = self.perform(UNSHUFFLED, &story)?;
        if first != again {
            return Err(self
                .failure(UNSHUFFLED, "gave two texts in two runs that are alike")
                .differing(&first, &again));
        }
        let mut found = Vec::new();
        self.admit(&mut found, UNSHUFFLED, first)?;
        for seed in 1..=self.seeds {
            let transcript = self.perform(seed, &story)?;
            self.admit(&mut found, seed, transcript)?;
        }
        let missing = self.alternatives.iter().find(|one| !found.iter().any(|(name, _)| *name == one.name));
        if let Some(Alternative { name, .. }) = missing {
            let what = format!("never came out as \"{name}\"; drop that alternative, or try more seeds");
            return Err(self.failure(self.seeds, &what));
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(Outcomes { found })
    }

    /// Compares an outcome with those found before.
    fn admit(
        &self,
        found: &mut Vec<(String, Transcript)>,
        seed: u64,
        transcript: Transcript,
    ) -> Result<(), Failure> {
        let name = if self.alternatives.is_empty() {
            String::new()
        } else if let Some(one) = self.alternatives.iter().find(|one| (one.is_it)(&transcript)) {
            one.name.clone()
        } else {
            let failure = self.failure(seed, "came out in a way that no alternative names");
            return Err(failure.with(&transcript));
        };
        match found.iter().find(|(known, _)| *known == name) {
            None => found.push((name, transcript)),
            Some((_, known)) if *known == transcript => {}
            Some((_, known)) => {
                let what = match name.as_str() {
                    "" => "came out differently with a shuffled ready queue".to_owned(),
                    name => format!("came out as \"{name}\" with another text"),
                };
                return Err(self.failure(seed, &what).differing(known, &transcript));
            }
        }
        Ok(())
    }

    fn failure(&self, seed: u64, what: &str) -> Failure {
        Failure::new(&self.name, seed, what)
    }

    /// One run.
    fn perform(
        &self,
        seed: u64,
        story: &impl AsyncFn(&Stage) -> ProcessResult,
    ) -> Result<Transcript, Failure> {
        let _quiet = Quiet::begin();
        let idle = Idle::default();
        let on_park = idle.clone();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .on_thread_park(move || on_park.on_park())
            .build()
            .map_err(|error| self.failure(seed, &format!("got no runtime: {error}")))?;
        let transcript = runtime.block_on(self.tell(seed, idle, story))?;
        match transcript.verdict().holds() {
            true => Ok(transcript),
            false => Err(self.failure(seed, "does not add up").with(&transcript)),
        }
    }

    fn spec(&self) -> ApplicationSpec {
        let mut spec = (self.spec)();
        let limits = &mut spec.generation.limits;
        limits.patience = self.patience.unwrap_or(limits.patience);
        limits.close_deadline = self.close_deadline.unwrap_or(limits.close_deadline);
        spec
    }

    async fn tell(
        &self,
        seed: u64,
        idle: Idle,
        story: &impl AsyncFn(&Stage) -> ProcessResult,
    ) -> Result<Transcript, Failure> {
        let spec = self.spec();
        let limits = spec.generation.limits.clone();
        let journal = Journal::open(spec.journal_capacity);
        let recorder = journal.record();
        let chaos = if seed == UNSHUFFLED { Chaos::default() } else { Chaos::seeded(seed) };
        let opened = Application::open_with(spec, journal, chaos).await;
        let application = opened.map_err(|error| self.failure(seed, &format!("did not open: {error}")))?;
        let stage = Stage::new(application, idle, seed);
        let told = timeout(LONGEST, AssertUnwindSafe(story(&stage)).catch_unwind()).await;
        let problem = match told {
            Ok(Ok(Ok(()))) => self.end(&stage).await,
            Ok(Ok(Err(error))) => Some(format!("answered an error: {error}")),
            Ok(Err(_)) => Some(format!("failed: {}", Quiet::last_panic())),
            Err(_) => Some(format!("did not end within {LONGEST:?} of its own time: it waits for nothing")),
        };
        let transcript = Transcript::of(&self.recording(limits, &recorder, &stage));
        match problem {
            None => Ok(transcript.with_problems(left_behind(&stage))),
            Some(problem) => Err(self.failure(seed, &problem).with(&transcript)),
        }
    }

    /// Closes what the story left open.
    async fn end(&self, stage: &Stage) -> Option<String> {
        stage.mark_open();
        let closed = timeout(LONGEST, stage.application().close()).await;
        stage.settle().await;
        match closed {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(format!("could not be closed: {error}")),
            Err(_) => Some(format!("was not closed within {LONGEST:?} of its own time")),
        }
    }

    fn recording(&self, limits: crate::settings::Limits, recorder: &Recorder, stage: &Stage) -> Recording {
        let events = recorder.events();
        let mut tree_at_end = Tree::default();
        events.iter().for_each(|event| tree_at_end.apply(event));
        let generations = stage.application().shared().recorded.lock();
        Recording {
            scenario: self.name.clone(),
            is_virtual: true,
            limits,
            events,
            tree_at_open: stage.tree_at_open(),
            tree_at_end,
            reports: generations.iter().filter_map(|generation| generation.report()).collect(),
        }
    }
}

fn left_behind(stage: &Stage) -> Vec<String> {
    let generations = stage.application().shared().recorded.lock().clone();
    let mut problems: Vec<_> = generations.iter().flat_map(leftovers).collect();
    let alive = stage.guards().alive();
    if alive > 0 {
        problems.push(format!("{alive} guards of the stage are alive; what holds them leaked"));
    }
    problems
}
