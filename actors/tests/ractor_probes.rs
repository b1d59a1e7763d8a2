//! What ractor 0.16.5 really does, where the kernel relies on it or guards against it.
//!
//! One test per behaviour. A red test after an upgrade of ractor means that the design decision named above
//! it has to be thought over again; it does not mean that ractor is wrong.
//!
//! Most tests run on one thread under the paused clock, where [`kit::quiet`] is a barrier: virtual time moves
//! only when nothing else can run. Tests of real parallelism use worker threads and block them on standard
//! channels.

#[path = "ractor_probes/calls.rs"]
mod calls;
#[path = "ractor_probes/clock.rs"]
mod clock;
#[path = "ractor_probes/close.rs"]
mod close;
#[path = "ractor_probes/end.rs"]
mod end;
#[path = "ractor_probes/features.rs"]
mod features;
#[path = "ractor_probes/kit.rs"]
mod kit;
#[path = "ractor_probes/names.rs"]
mod names;
#[path = "ractor_probes/ports.rs"]
mod ports;
#[path = "ractor_probes/start.rs"]
mod start;
#[path = "ractor_probes/tree.rs"]
mod tree;
