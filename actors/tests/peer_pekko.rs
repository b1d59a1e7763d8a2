//! What the supervision, watch and back-off suites of Pekko assert, in our terms. `docs/PEER_CASES.md` lists
//! every case.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is how a test fails")]

#[path = "peer/kit.rs"]
mod kit;

#[path = "peer/pekko/actors.rs"]
mod actors;
#[path = "peer/pekko/backoff.rs"]
mod backoff;
#[path = "peer/pekko/closing.rs"]
mod closing;
#[path = "peer/pekko/limits.rs"]
mod limits;
#[path = "peer/pekko/watch.rs"]
mod watch;
