//! What settings must be besides well-formed.

use std::time::Duration;

use super::sections::Config;
use crate::logging;

/// The setting that is at fault, and what was expected.
pub(crate) type Fault = (&'static str, &'static str);

/// What must hold, or else this is the fault.
type Rule = (Fault, fn(&Config) -> bool);

/// Setting by setting.
const RULES: &[Rule] = &[
    (("log.level", logging::EXPECTED), |config| logging::is_known(&config.log.level)),
    (("server.max_body_bytes", "at least 1"), |config| config.server.max_body_bytes >= 1),
    (("server.max_page", "at least 1"), |config| config.server.max_page >= 1),
    (("ownership.namespace", "1 to 142 bytes"), |config| {
        config.ownership.namespace.as_ref().is_none_or(|name| (1..=142).contains(&name.len()))
    }),
    (("ownership.lease", "at least 100ms, and at most a day"), |config| {
        let within = Duration::from_millis(100)..=Duration::from_secs(86_400);
        config.ownership.lease.is_none_or(|lease| within.contains(&lease.0))
    }),
    (("ownership.max_outcome_bytes", "at least 1"), |config| config.ownership.max_outcome_bytes >= 1),
    (("store.prune_every", "at least 1s"), |config| config.store.prune_every.0 >= Duration::from_secs(1)),
    (("worker.concurrency", "at least 1"), |config| config.worker.concurrency >= 1),
    (("worker.lease", "at least 100ms"), |config| config.worker.lease.0 >= Duration::from_millis(100)),
    (("worker.heartbeat", "more than nothing, and less than half of the lease"), |config| {
        let lease = config.worker.lease.0;
        config.worker.heartbeat.is_none_or(|beat| !beat.0.is_zero() && beat.0 < lease / 2)
    }),
    (("worker.poll", "at least 10ms"), |config| config.worker.poll.0 >= Duration::from_millis(10)),
    (("worker.stall", "more than nothing"), |config| {
        config.worker.stall.is_none_or(|stall| !stall.0.is_zero())
    }),
];

/// The first setting that cannot be.
pub(crate) fn fault(config: &Config) -> Option<Fault> {
    RULES.iter().find(|(_, holds)| !holds(config)).map(|(fault, _)| *fault)
}
