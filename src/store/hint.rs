//! Hints between instances: a few bytes over the server's own channel. Lossy: who misses one polls.

use serde::{Deserialize, Serialize};

use crate::model::RunId;
use crate::store::Hint;

/// PostgreSQL takes less than 8,000 bytes.
const MOST_BYTES: usize = 7000;

/// A hint as it travels.
#[derive(Serialize, Deserialize)]
struct Word {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ready: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    agenda: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    agents: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cancels: Vec<RunId>,
    cursor: u64,
}

/// What is sent. Of more cancels than fit the heartbeats find out.
pub(super) fn written(hint: &Hint) -> String {
    let mut bytes = 0;
    let fits = |run_id: &&RunId| {
        bytes += run_id.as_str().len() + 3;
        bytes < MOST_BYTES
    };
    let cancels = hint.cancels.iter().take_while(fits).cloned().collect();
    let Hint { ready, agenda, agents, cursor, .. } = *hint;
    let word = Word { ready, agenda, agents, cancels, cursor };
    // Words and numbers: they are always JSON.
    serde_json::to_string(&word).unwrap_or_default()
}

/// What was heard; nothing if it is not ours.
pub(super) fn read(payload: &str) -> Option<Hint> {
    let Word { ready, agenda, agents, cancels, cursor } = serde_json::from_str(payload).ok()?;
    Some(Hint { ready, agenda, agents, cancels, cursor })
}
