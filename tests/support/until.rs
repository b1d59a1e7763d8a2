//! Waiting for what is seen by looking.

use std::time::{Duration, Instant};

/// Longer than anything takes that is waited for: who waits so long waits for what does not come.
pub(crate) const MOST: Duration = Duration::from_secs(60);

/// Waits until something is so. Each look takes its time: it is a request, a command or a look at a file.
pub(crate) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < MOST, "{what}");
        std::thread::yield_now();
    }
}
