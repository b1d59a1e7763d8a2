//! What the supervision suites of OTP assert, in our terms. `docs/PEER_CASES.md` lists every case.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is how a test fails")]

#[path = "peer/kit.rs"]
mod kit;

#[path = "peer/otp/hanging.rs"]
mod hanging;
#[path = "peer/otp/restarts.rs"]
mod restarts;
#[path = "peer/otp/scale.rs"]
mod scale;
#[path = "peer/otp/specs.rs"]
mod specs;
#[path = "peer/otp/strategies.rs"]
mod strategies;
