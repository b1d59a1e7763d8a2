//! How a store is reached, and what of that may be shown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::tls::Tls;
use crate::clock::Clock;
use crate::store::tls::AUTHORITY;
use crate::store::{RefusedKind, StoreError};

/// The longest name of a schema, in bytes.
const LONGEST_NAME: usize = 63;

/// How a [`PostgresStore`](super::PostgresStore) is reached.
#[derive(Clone)]
pub struct PostgresOptions {
    config: Config,
    tls: Tls,
    /// The schema that holds the tables; made if there is none. Stores with different schemas know nothing of each
    /// other.
    pub schema: String,
    /// Goes by this clock instead of the server's: for tests that say what time it is.
    pub clock: Option<Arc<dyn Clock>>,
    /// How long the server, or another instance that writes, is waited for.
    pub patience: Duration,
    /// How long an instance that was stopped in the middle of a transaction may keep others from writing.
    pub most_idle: Duration,
    /// Whether an answered write survives a crash of the server. Without, the newest writes may be lost with it.
    pub synchronous_commit: bool,
}

impl PostgresOptions {
    /// Reads `postgres://user:password@host:port/database?schema=name`. Defaults: schema `tenure`, 30 s of patience,
    /// 5 s of idleness, durable before it is answered, the server's clock, no TLS.
    ///
    /// `sslmode=require` is TLS with whoever answers, `verify-ca` with a server that an authority vouches for, and
    /// `verify-full` with one that is vouched for under the name in the address. The authority is one that the system
    /// trusts, or that of `sslrootcert=FILE`, with which `require` means `verify-ca`.
    ///
    /// # Errors
    /// [`RefusedKind::Invalid`], saying what was expected. What was given is not repeated: it may hold a password.
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        let (url, own) = take_own(url)?;
        if let Some(option) = ["sslcert", "sslkey"].into_iter().find(|option| own.contains_key(option)) {
            let why = "a host shows no certificate of its own; log in with a password";
            return Err(StoreError::refused(RefusedKind::NotSupported, format!("{option}: {why}")));
        }
        let mode = own.get("sslmode").map(String::as_str);
        let tls = Tls::of(mode, own.get(AUTHORITY).cloned()).map_err(invalid)?;
        let schema = own.get("schema").cloned().unwrap_or_else(|| "tenure".to_owned());
        let mut config: Config = url.parse().map_err(|_| {
            invalid("the address cannot be read; expected postgres://user:password@host:port/database?schema=name")
        })?;
        if config.get_hosts().is_empty() {
            return Err(invalid("the address names no host; expected postgres://user@host/database"));
        }
        // A host that is gone without a word is noticed, also by who only listens.
        config.keepalives_idle(Duration::from_secs(30)).keepalives_interval(Duration::from_secs(10));
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        Ok(Self {
            config,
            tls,
            schema,
            clock: None,
            patience: Duration::from_secs(30),
            most_idle: Duration::from_secs(5),
            synchronous_commit: true,
        })
    }

    /// What the driver is given.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// What is asked of its connections.
    pub(super) fn tls(&self) -> &Tls {
        &self.tls
    }

    pub(super) fn check(&self) -> Result<(), StoreError> {
        let fits = (1..=LONGEST_NAME).contains(&self.schema.len()) && !self.schema.contains('\0');
        if fits && !self.schema.starts_with("pg_") {
            return Ok(());
        }
        let shown: String = self.schema.chars().take(40).collect();
        Err(invalid(format!(
            "the schema {shown:?} cannot be; expected 1 to {LONGEST_NAME} bytes that do not begin with pg_"
        )))
    }

    pub(super) fn quoted_schema(&self) -> String {
        format!("\"{}\"", self.schema.replace('"', "\"\""))
    }

    /// The channel of the hints of this schema: a database has one list of channels for all.
    pub(super) fn channel(&self) -> String {
        format!("tenure_{:016x}", fnv(&self.schema))
    }

    /// Where it is, without user and password.
    pub(super) fn place(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "localhost".to_owned(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("postgres://{host}:{port}/{database}?schema={}", self.schema)
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("place", &self.place())
            .field("clock", &self.clock)
            .field("patience", &self.patience)
            .field("most_idle", &self.most_idle)
            .field("synchronous_commit", &self.synchronous_commit)
            .finish_non_exhaustive()
    }
}

/// The parameters of an address that are read here, and not by the driver.
const OWN: [&str; 5] = ["schema", "sslmode", AUTHORITY, "sslcert", "sslkey"];

/// Takes our own parameters out of an address.
fn take_own(url: &str) -> Result<(String, BTreeMap<&'static str, String>), StoreError> {
    let mut own = BTreeMap::new();
    let Some((address, query)) = url.split_once('?') else { return Ok((url.to_owned(), own)) };
    let mut rest = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match OWN.into_iter().find(|own| *own == name) {
            Some(name) => {
                let value = decoded(value).ok_or_else(|| invalid(format!("the {name} is no text")))?;
                own.insert(name, value);
            }
            None => rest.push(part),
        }
    }
    let url = if rest.is_empty() { address.to_owned() } else { format!("{address}?{}", rest.join("&")) };
    Ok((url, own))
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// FNV-1a: tells texts apart; nobody has to be kept from forging it.
pub(super) fn fnv(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn invalid(message: impl Into<String>) -> StoreError {
    StoreError::refused(RefusedKind::Invalid, message)
}
