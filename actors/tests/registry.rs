//! The promises of the process registry, one test each: supervision contract, R1 to R42 and G1 to G13.
//!
//! Every test waits for facts: a door that was reached, an answer that came, an end that was seen. Time is the
//! paused clock, except where threads are blocked on purpose.

#![allow(clippy::expect_used, clippy::panic, reason = "a test says so by panicking")]

mod registry {
    #[macro_use]
    mod support;

    mod authority;
    mod callers;
    mod closing;
    mod generations;
    mod guarantees;
    mod identifiers;
    mod inside;
    mod messages;
    mod panics;
    mod panics_told;
    mod patience;
    mod removing;
    mod starting;
    mod storms;
    mod waiting;
}
