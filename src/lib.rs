//! Background work for agent applications, under supervision.
//!
//! [`actors`] is the supervision kernel: application, generation, registry, operations and the commit gate.
pub use tenure_actors as actors;
