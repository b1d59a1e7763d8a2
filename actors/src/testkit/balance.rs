//! The sums of a transcript for tests that need none: whatever they did, everything is gone afterwards.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use crate::application::Application;
use crate::error::CloseError;
use crate::generation::Generation;

/// An application that is checked at its end: every report balances, nothing was abandoned, no process is
/// alive or bound, and no operation is active.
///
/// ```
/// # use tenure_actors::{Application, ApplicationSpec, testkit::Balance};
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let application = Balance::of(Application::open(ApplicationSpec::default()).await?);
/// // ... a test ...
/// application.finish().await?;
/// # Ok(())
/// # }
/// ```
///
/// It fails the test by a panic: from [`Balance::finish`], or when it is dropped without.
#[derive(Debug)]
pub struct Balance {
    application: Application,
    is_finished: bool,
}

impl Balance {
    /// Watches over an application. Generations before the current one are checked only if a recorder was
    /// attached when they were opened.
    #[must_use]
    pub fn of(application: Application) -> Self {
        Self { application, is_finished: false }
    }

    /// Closes the application and checks what is left of it.
    ///
    /// Cancel safety: the close goes on when the future is dropped, and nothing is checked.
    ///
    /// # Errors
    /// [`CloseError`], if the close cannot be waited for.
    ///
    /// # Panics
    /// When something does not add up or is left.
    pub async fn finish(mut self) -> Result<(), CloseError> {
        self.is_finished = true;
        self.application.close().await?;
        self.check();
        Ok(())
    }

    #[allow(clippy::panic, reason = "failing the test is what it is for")]
    fn check(&self) {
        let mut generations = self.application.shared().recorded.lock().clone();
        let current = self.application.current();
        if !generations.iter().any(|generation| generation.epoch() == current.epoch()) {
            generations.push(current);
        }
        let problems: Vec<_> = generations.iter().flat_map(all_problems).collect();
        assert!(problems.is_empty(), "out of balance:\n{}", problems.join("\n"));
    }
}

impl Deref for Balance {
    type Target = Application;

    fn deref(&self) -> &Application {
        &self.application
    }
}

impl Drop for Balance {
    fn drop(&mut self) {
        // A test that fails already says why by itself.
        if !self.is_finished && !std::thread::panicking() {
            self.check();
        }
    }
}

fn all_problems(generation: &Generation) -> Vec<String> {
    let epoch = generation.epoch();
    let Some(report) = generation.report() else {
        return vec![format!(
            "generation {epoch} has no close report; close the application before the test ends"
        )];
    };
    let mut problems = leftovers(generation);
    problems
        .extend(report.imbalance().map(|imbalance| format!("the report of generation {epoch}: {imbalance}")));
    let abandoned =
        report.abandoned.iter().map(|id| format!("process \"{id}\" of generation {epoch} leaked"));
    problems.extend(abandoned);
    problems
}

/// What a closed generation should no longer have. Its memory of what has ended is given back later.
pub(super) fn leftovers(generation: &Generation) -> Vec<String> {
    let (core, epoch) = (generation.core(), generation.epoch());
    let names = core.names.load(Ordering::Acquire);
    let bound = core.indexed().into_iter().filter(|child| child.is_bound());
    let alive = core.all_children().into_iter().filter(|child| child.exit().is_none());
    let named = bound.map(|child| format!("process \"{}\" of generation {epoch} is still bound", child.id));
    let alive = alive.map(|child| format!("{} of generation {epoch} has not ended", child.name));
    let mut problems: Vec<_> = named.chain(alive).collect();
    if names > 0 {
        problems.push(format!("{names} ids of generation {epoch} are taken"));
    }
    if !core.operations.is_empty() {
        problems.push(format!("the operations of generation {epoch} are not empty"));
    }
    problems
}
