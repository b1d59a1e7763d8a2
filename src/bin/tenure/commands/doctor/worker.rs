//! Whether the lease settings fit each other. What makes no sense at all is refused when the settings are read.

use std::time::Duration;

use super::Finding;
use crate::config::Config;

/// A lease that is shorter is lost to a short pause of the machine.
const SHORT: Duration = Duration::from_secs(3);

pub(super) fn look(config: &Config, found: &mut Vec<Finding>) {
    let settings = config.settings();
    found.push(leases(settings.lease, settings.heartbeat(), settings.grace()));
}

fn leases(lease: Duration, heartbeat: Duration, grace: Duration) -> Finding {
    let told =
        format!("a lease of {lease:?}, renewed every {heartbeat:?}, taken over {grace:?} after it expired");
    if lease < SHORT {
        let hint = "a short pause of the machine loses it: `worker.lease` of 30s is usual";
        return Finding::warn("leases", told).hint(hint);
    }
    if grace < heartbeat {
        let hint =
            "an owner that is late once loses its run: leave `worker.grace` out, or make it two heartbeats";
        return Finding::warn("leases", told).hint(hint);
    }
    Finding::ok("leases", told)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn short_leases_and_small_graces_are_warned_of() {
        let state = |lease, heartbeat, grace| {
            let seconds = Duration::from_secs;
            leases(seconds(lease), seconds(heartbeat), seconds(grace)).state
        };
        assert_eq!(state(30, 10, 20), State::Ok);
        assert_eq!(state(3, 1, 1), State::Ok);
        assert_eq!(state(2, 1, 2), State::Warn);
        assert_eq!(state(30, 10, 9), State::Warn);
    }
}
