//! The sums of a transcript for tests that need none: whatever they did, everything is gone afterwards.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use crate::application::Application;
use crate::error::CloseError;
use crate::generation::Generation;

/// An application that is checked at its end: every report balances, nothing was abandoned, and index, ledger
/// and operations are empty.
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

/// What a closed generation should no longer know of.
pub(super) fn leftovers(generation: &Generation) -> Vec<String> {
    let (core, epoch) = (generation.core(), generation.epoch());
    let names = core.names.load(Ordering::Acquire);
    let checks = [
        (names == 0, format!("{names} ids of generation {epoch} are taken")),
        (core.indexed().is_empty(), format!("the index of generation {epoch} is not empty")),
        (core.all_children().is_empty(), format!("the ledger of generation {epoch} is not empty")),
        (core.operations.is_empty(), format!("the operations of generation {epoch} are not empty")),
    ];
    checks.into_iter().filter(|(holds, _)| !holds).map(|(_, problem)| problem).collect()
}
