//! What the log tells of a store that fails: one line when it begins to, one a minute while it lasts, and one when it
//! answers again, however many services ask it over and over meanwhile. Of calls outside the pauses of a service it
//! tells by themselves.
//!
//! Whoever asks over and over is part of the outage from its first failure to its next answer: a store that takes no
//! writes may answer looks all the time, and is not well for that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::StoreError;

/// How often it is told that an outage lasts.
const BETWEEN_WORDS: Duration = Duration::from_secs(60);

/// The outage of the store as one host sees it, if there is one.
#[derive(Default)]
pub(crate) struct Outage {
    lasting: Mutex<Option<Lasting>>,
    /// When it was told of calls that are no part of it.
    seldom: Mutex<BTreeMap<&'static str, Instant>>,
}

struct Lasting {
    since: Instant,
    told: Instant,
    /// What does not happen meanwhile.
    meanwhile: BTreeSet<&'static str>,
}

impl Outage {
    /// A call has failed that is made again soon, until it is [answered](Self::answered); `meanwhile` is what does not
    /// happen until then.
    pub(super) fn failed(&self, meanwhile: &'static str, error: &StoreError) {
        let now = Instant::now();
        let mut lasting = self.lasting.lock();
        let Some(outage) = lasting.as_mut() else {
            let meanwhile = BTreeSet::from([meanwhile]);
            let outage = lasting.insert(Lasting { since: now, told: now, meanwhile });
            return tracing::warn!(%error, meanwhile = outage.all(), "the store fails; it is asked until it answers");
        };
        outage.meanwhile.insert(meanwhile);
        if now - outage.told < BETWEEN_WORDS {
            return tracing::debug!(%error, meanwhile, "the store still fails");
        }
        outage.told = now;
        tracing::warn!(%error, meanwhile = outage.all(), lasting = ?outage.length(), "the store still fails");
    }

    /// A call was answered. The outage is over when nobody is left whose last call has failed.
    pub(super) fn answered(&self, meanwhile: &'static str) {
        let mut lasting = self.lasting.lock();
        let Some(outage) = lasting.as_mut() else { return };
        outage.meanwhile.remove(meanwhile);
        if outage.meanwhile.is_empty() {
            tracing::info!(lasted = ?outage.length(), "the store answers again");
            *lasting = None;
        }
    }

    /// Whoever made the call asks no more, without an answer: somebody else will see how the store is.
    pub(super) fn left(&self, meanwhile: &'static str) {
        if let Some(outage) = self.lasting.lock().as_mut() {
            outage.meanwhile.remove(meanwhile);
        }
    }

    /// A call has failed outside the pauses of a service: seldom is it told, once a minute, and not at all while the
    /// outage is known. It is no part of the outage, whose end those tell who are.
    pub(crate) fn seldom(&self, meanwhile: &'static str, error: &impl fmt::Display) {
        let known = self.lasting.lock().is_some();
        let now = Instant::now();
        let mut seldom = self.seldom.lock();
        if known || seldom.get(meanwhile).is_some_and(|told| now - *told < BETWEEN_WORDS) {
            return tracing::debug!(%error, meanwhile, "the store still fails");
        }
        seldom.insert(meanwhile, now);
        tracing::warn!(%error, meanwhile, "the store has failed");
    }
}

impl Lasting {
    fn all(&self) -> String {
        self.meanwhile.iter().copied().collect::<Vec<_>>().join(", ")
    }

    /// So far, as precise as anybody wants it.
    fn length(&self) -> Duration {
        Duration::from_millis(super::ms(self.since.elapsed()))
    }
}
