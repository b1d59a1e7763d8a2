//! What settings must be besides well-formed.

use std::net::IpAddr;
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
    (("server.max_connections", "at least 1"), |config| config.server.max_connections >= 1),
    (
        ("server.token", "1 or more visible characters of ASCII without blanks, or no token at all"),
        |config| config.server.token.as_ref().is_none_or(|token| is_a_token(token.reveal())),
    ),
    (("server.allowed_hosts", "names or addresses alone, without \"http://\", a port or a path"), |config| {
        config.server.allowed_hosts.iter().all(|host| is_a_host(host))
    }),
    (("store.prune_every", "at least 1s"), |config| config.store.prune_every.0 >= Duration::from_secs(1)),
    (("worker.concurrency", "at least 1"), |config| config.worker.concurrency >= 1),
    (("worker.lease", "at least 100ms"), |config| config.worker.lease.0 >= Duration::from_millis(100)),
    (("worker.heartbeat", "more than nothing, and less than half of the lease"), |config| {
        let lease = config.worker.lease.0;
        config.worker.heartbeat.is_none_or(|beat| !beat.0.is_zero() && beat.0 < lease / 2)
    }),
    (("worker.poll", "at least 10ms"), |config| config.worker.poll.0 >= Duration::from_millis(10)),
    (("workspace.root", "the name of a folder, found nothing"), |config| {
        !config.workspace.root.as_os_str().is_empty()
    }),
    (("worker.stall", "more than nothing"), |config| {
        config.worker.stall.is_none_or(|stall| !stall.0.is_zero())
    }),
];

/// The settings that cannot be.
pub(crate) fn faults(config: &Config) -> impl Iterator<Item = Fault> + use<'_> {
    RULES.iter().filter(|(_, holds)| !holds(config)).map(|(fault, _)| *fault)
}

/// Whether it can be shown in a header of a request, as it is.
fn is_a_token(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether it is a name or an address, without a scheme, a port or a path.
fn is_a_host(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let of_a_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    bare.parse::<IpAddr>().is_ok() || (!host.is_empty() && host.chars().all(of_a_name))
}
