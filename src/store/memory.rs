//! stub
use crate::clock::Clock;
/// stub
#[derive(Debug)]
pub struct MemoryStore;
