//! Seeded disorder, for tests: at each of our own hooks a few turns are given away, so that the ready queue
//! is shuffled in a way that a seed repeats (rulings, transcript rule 9).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives turns away at random; by default it does nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chaos {
    state: Option<Arc<AtomicU64>>,
}

impl Chaos {
    #[cfg(feature = "testkit")]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { state: Some(Arc::new(AtomicU64::new(seed))) }
    }

    /// Lets others run, or not.
    pub(crate) async fn pause(&self) {
        let Some(state) = &self.state else {
            return;
        };
        for _ in 0..splitmix(state) % 4 {
            tokio::task::yield_now().await;
        }
    }
}

/// Steele, Lea and Flood's splitmix64: one addition and a mix, good enough to shuffle with.
fn splitmix(state: &AtomicU64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mixed = state.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
