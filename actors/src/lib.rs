//! The supervision kernel of tenure.

mod gate;
mod sync;
