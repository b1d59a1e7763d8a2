//! Seeded disorder for tests that are no scenarios.

use crate::application::{Application, OpenError};
use crate::chaos::Chaos;
use crate::journal::Journal;
use crate::settings::ApplicationSpec;

/// [`Application::open`], with a few turns given away at each hook of the kernel, as the seed says: another
/// order of the same story, repeated by the same seed on a current-thread runtime.
///
/// # Errors
/// As [`Application::open`].
///
/// Cancel safety: as [`Application::open`].
pub async fn open_shuffled(spec: impl Into<ApplicationSpec>, seed: u64) -> Result<Application, OpenError> {
    let spec = spec.into();
    let journal = Journal::open(spec.journal_capacity);
    Application::open_with(spec, journal, Chaos::seeded(seed)).await
}
