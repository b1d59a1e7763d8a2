//! Background work for agent applications, under supervision.
//!
//! [`actors`] is the supervision kernel: application, generation, registry, operations and the commit gate.
pub use tenure_actors as actors;

/// The start that the README shows compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
