//! Every setting, in one table: what it is called in the file, in the environment and as a flag, and what it
//! means. The environment and the flags are read by it, `tenure config` shows it, and
//! `docs/CONFIGURATION.md` is written from it.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use super::places::{Listen, StoreUrl};
use super::sections::Config;
use super::values::{Length, LogFormat, Secret, Sync};

/// One setting.
pub(crate) struct Setting {
    /// Its place in the file: `server.listen`.
    pub(crate) key: &'static str,
    /// Its variable of the environment.
    pub(crate) env: &'static str,
    /// Its flag, if it has one, without the dashes.
    pub(crate) flag: Option<&'static str>,
    /// Whether every command has that flag, and not only those that concern a host which serves.
    pub(crate) everywhere: bool,
    /// What its value is, in a word.
    pub(crate) value: &'static str,
    /// What it says, in a sentence.
    pub(crate) meaning: &'static str,
    /// Whether it can change only with a new start.
    pub(crate) restart: bool,
    /// Its value as text; none while there is none.
    pub(crate) get: fn(&Config) -> Option<String>,
    /// Takes a value as text, or says what was expected.
    pub(crate) set: fn(&mut Config, &str) -> Result<(), String>,
}

impl Setting {
    const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    const fn everywhere(mut self) -> Self {
        self.everywhere = true;
        self
    }

    const fn restart(mut self) -> Self {
        self.restart = true;
        self
    }
}

/// A setting of the field at this path. `opt` for one that may have no value.
macro_rules! setting {
    ($section:ident . $field:ident, $env:literal, $value:literal, $meaning:literal) => {
        setting!(@ $section . $field, $env, $value, $meaning,
            |config| Some(shown(&config.$section.$field)),
            |config, text| take(&mut config.$section.$field, text))
    };
    (opt $section:ident . $field:ident, $env:literal, $value:literal, $meaning:literal) => {
        setting!(@ $section . $field, $env, $value, $meaning,
            |config| config.$section.$field.as_ref().map(shown),
            |config, text| take_some(&mut config.$section.$field, text))
    };
    (@ $section:ident . $field:ident, $env:literal, $value:literal, $meaning:literal, $get:expr, $set:expr) => {
        Setting {
            key: concat!(stringify!($section), ".", stringify!($field)),
            env: $env,
            flag: None,
            everywhere: false,
            value: $value,
            meaning: $meaning,
            restart: false,
            get: $get,
            set: $set,
        }
    };
}

/// All of them, in the order of the sections.
pub(crate) const TABLE: &[Setting] = &[
    setting!(server.listen, "TENURE_LISTEN", "ADDR",
        "Where the HTTP interface listens. Port 0 takes a free one. Any but that of this machine needs a token.")
        .flag("listen").restart(),
    setting!(opt server.token, "TENURE_TOKEN", "TOKEN",
        "The token that every request has to show. Better kept in the environment than in the file."),
    setting!(opt server.token_env, "TENURE_TOKEN_ENV", "NAME",
        "The variable of the environment that holds the token, if it is another."),
    setting!(server.allow_agents, "TENURE_ALLOW_AGENTS", "BOOL",
        "Whether agents may be made and removed over HTTP. Those that run programs come from the file alone.")
        .flag("allow-agents"),
    setting!(server.agent_env, "TENURE_AGENT_ENV", "NAME,NAME",
        "The variables whose values agents made over HTTP may send. Without it they may name none."),
    setting!(opt server.default_agent, "TENURE_DEFAULT_AGENT", "AGENT",
        "The agent of tasks that name none. One that is the only agent needs no mention.")
        .flag("default-agent"),
    setting!(
        server.allowed_hosts,
        "TENURE_ALLOWED_HOSTS",
        "NAME,NAME",
        "Names of this host, besides those of this machine, that callers without a token may use: of a proxy before it."
    ),
    setting!(server.max_body_bytes, "TENURE_MAX_BODY_BYTES", "BYTES", "The largest body of a request."),
    setting!(server.max_page, "TENURE_MAX_PAGE", "N", "The most entries in a page of a list."),
    setting!(server.max_waits, "TENURE_MAX_WAITS", "N", "How many requests may wait for runs at once."),
    setting!(server.max_wait, "TENURE_MAX_WAIT", "LENGTH", "The longest that a request waits for a run."),
    setting!(server.max_streams, "TENURE_MAX_STREAMS", "N", "How many event streams may be open at once."),
    setting!(server.max_connections, "TENURE_MAX_CONNECTIONS", "N", "How many connections may be open at once."),
    setting!(ownership.serve, "TENURE_OWNERSHIP", "BOOL",
        "Whether hosts in other languages are served below `/ownership`: who owns what they execute."),
    setting!(opt ownership.namespace, "TENURE_OWNERSHIP_NAMESPACE", "NAME",
        "The only namespace that is served there. If nothing is said: all are."),
    setting!(opt ownership.lease, "TENURE_OWNERSHIP_LEASE", "LENGTH",
        "How long a lease is that names no length. If nothing is said: `worker.lease`. The grace is `worker.grace`."),
    setting!(ownership.max_outcome_bytes, "TENURE_OWNERSHIP_MAX_OUTCOME_BYTES", "BYTES",
        "The largest outcome of owned work, with its snapshot."),
    setting!(ownership.retain_acknowledged, "TENURE_OWNERSHIP_RETAIN_ACKNOWLEDGED", "LENGTH",
        "How long outcomes of owned work are kept after somebody acknowledged them."),
    setting!(ownership.retain_unacknowledged, "TENURE_OWNERSHIP_RETAIN_UNACKNOWLEDGED", "LENGTH",
        "How long outcomes are kept that nobody acknowledged, and tasks that stay lost."),
    setting!(ownership.retain_sessions, "TENURE_OWNERSHIP_RETAIN_SESSIONS", "LENGTH",
        "How long a session is remembered after its last task is gone."),
    setting!(store.url, "TENURE_STORE", "URL",
        "Where records are kept: `memory:`, `sqlite:PATH`, `postgres://...`, `redis://...` or \
         `mongodb://...`. The folder of a file is made.")
        .flag("store").everywhere().restart(),
    setting!(store.synchronous, "TENURE_SYNCHRONOUS", "full|normal",
        "What an answered write survives: a loss of power, or the end of the program.").restart(),
    setting!(store.busy_timeout, "TENURE_BUSY_TIMEOUT", "LENGTH",
        "How long another program that writes to the same file is waited for.").restart(),
    setting!(store.retain_for, "TENURE_RETAIN_FOR", "LENGTH", "How long finished runs are kept."),
    setting!(store.retain_runs, "TENURE_RETAIN_RUNS", "N", "How many finished runs are kept at most."),
    setting!(store.prune_every, "TENURE_PRUNE_EVERY", "LENGTH", "How often finished runs are pruned."),
    setting!(worker.concurrency, "TENURE_CONCURRENCY", "N", "How many runs execute at once.")
        .flag("concurrency"),
    setting!(worker.lease, "TENURE_LEASE", "LENGTH",
        "How long a run is held without a sign of life before others may take it over."),
    setting!(opt worker.heartbeat, "TENURE_HEARTBEAT", "LENGTH",
        "How often leases are renewed. If nothing is said: a third of the lease."),
    setting!(opt worker.grace, "TENURE_GRACE", "LENGTH",
        "How long an expired lease may still be renewed. If nothing is said: two heartbeats."),
    setting!(worker.poll, "TENURE_POLL", "LENGTH",
        "The longest that a change nobody told of stays unnoticed."),
    setting!(worker.drain, "TENURE_DRAIN", "LENGTH",
        "How long running attempts may go on when the host is told to stop.").flag("drain"),
    setting!(worker.patience, "TENURE_PATIENCE", "LENGTH",
        "How long an attempt that was told to stop is waited for before it is cut off. When the host ends and the \
         store does not answer, it is asked to store outcomes for this or `worker.drain`, whichever is longer, and at \
         most a lease; and then for as long once more."),
    setting!(opt worker.stall, "TENURE_STALL", "LENGTH",
        "How long an attempt may go without telling its progress. If nothing is said: without limit."),
    setting!(worker.max_result_bytes, "TENURE_MAX_RESULT_BYTES", "BYTES", "The largest result of a run."),
    setting!(workspace.root, "TENURE_WORKSPACE", "FOLDER", "Where runs keep their files; made if it is not there.")
        .flag("workspace").everywhere().restart(),
    setting!(workspace.shared, "TENURE_WORKSPACE_SHARED", "BOOL",
        "Whether all hosts of this store keep the files of runs in this same folder.").restart(),
    setting!(workspace.max_file_bytes, "TENURE_MAX_FILE_BYTES", "BYTES", "The largest file of a run.").restart(),
    setting!(workspace.max_files, "TENURE_MAX_FILES", "N", "The most files of a run.").restart(),
    setting!(workspace.max_total_bytes, "TENURE_MAX_TOTAL_BYTES", "BYTES", "The most bytes of all files of a run.")
        .restart(),
    setting!(log.level, "TENURE_LOG", "LEVEL",
        "What is logged: `error`, `warn`, `info`, `debug`, `trace`, `off`, or directives as in `RUST_LOG`, which wins.")
        .flag("log").everywhere().restart(),
    setting!(log.format, "TENURE_LOG_FORMAT", "text|json", "How it is logged.")
        .flag("log-format").everywhere().restart(),
];

/// A value that has a text of its own.
trait Text: Sized {
    fn show(&self) -> String;
    fn read(text: &str) -> Result<Self, String>;
}

macro_rules! text {
    ($($type:ty),+) => { $(impl Text for $type {
        fn show(&self) -> String {
            self.to_string()
        }

        fn read(text: &str) -> Result<Self, String> {
            read(text)
        }
    })+ };
}

text!(Length, Listen, LogFormat, StoreUrl, Sync);

impl Text for String {
    fn show(&self) -> String {
        self.clone()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() { Err("a text, found nothing".to_owned()) } else { Ok(text.to_owned()) }
    }
}

impl Text for PathBuf {
    fn show(&self) -> String {
        self.display().to_string()
    }

    fn read(text: &str) -> Result<Self, String> {
        String::read(text).map(Self::from)
    }
}

impl Text for Secret {
    fn show(&self) -> String {
        "***".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        String::read(text).map(Self::new)
    }
}

/// Names, with commas between them.
impl Text for Vec<String> {
    fn show(&self) -> String {
        self.join(",")
    }

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }
}

impl Text for bool {
    fn show(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err(format!("true or false, found {text:?}")),
        }
    }
}

macro_rules! number {
    ($($type:ty),+) => { $(impl Text for $type {
        fn show(&self) -> String {
            self.to_string()
        }

        fn read(text: &str) -> Result<Self, String> {
            text.parse().map_err(|_| format!("a whole number, found {text:?}"))
        }
    })+ };
}

number!(usize, u64);

fn read<T: FromStr<Err = String> + Display>(text: &str) -> Result<T, String> {
    text.parse()
}

fn shown<T: Text>(value: &T) -> String {
    value.show()
}

fn take<T: Text>(place: &mut T, text: &str) -> Result<(), String> {
    *place = T::read(text)?;
    Ok(())
}

fn take_some<T: Text>(place: &mut Option<T>, text: &str) -> Result<(), String> {
    *place = Some(T::read(text)?);
    Ok(())
}
