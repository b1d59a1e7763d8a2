//! The supervision kernel of tenure.

mod gate;
pub mod rules;
mod sync;
