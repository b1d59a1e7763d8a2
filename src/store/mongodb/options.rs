//! How a store is reached, and what of that may be shown.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::store::{RefusedKind, StoreError};

/// How a [`MongoStore`](super::MongoStore) is reached.
#[derive(Clone)]
pub struct MongoOptions {
    url: String,
    hosts: String,
    /// The database that holds the collections. Stores in different databases know nothing of each other.
    pub database: String,
    /// Goes by this clock instead of the server's: for tests that say what time it is.
    pub clock: Option<Arc<dyn Clock>>,
    /// How long the server, or other instances that write, are waited for.
    pub patience: Duration,
}

impl MongoOptions {
    /// From `mongodb://user:password@host:port/database?...`; the database has to be named.
    ///
    /// # Errors
    /// [`StoreError::Refused`]: it is not such an address. What was given is not repeated, as it may hold a password.
    pub fn parse(url: &str) -> Result<Self, StoreError> {
        let parts = parts(url).ok_or_else(|| {
            StoreError::refused(
                RefusedKind::Invalid,
                "the address of the store: expected \"mongodb://user:password@host:port/database\", found another form",
            )
        })?;
        let (hosts, database) = (parts.0.to_owned(), parts.1.to_owned());
        Ok(Self { url: url.to_owned(), hosts, database, clock: None, patience: Duration::from_secs(30) })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// What errors name it.
    pub(super) fn place(&self) -> String {
        format!("mongodb://{}/{}", self.hosts, self.database)
    }
}

/// The hosts and the database of an address.
fn parts(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("mongodb://")?;
    let (address, path) = rest.split_once('/')?;
    let hosts = address.rsplit_once('@').map_or(address, |(_, hosts)| hosts);
    let database = path.split_once('?').map_or(path, |(database, _)| database);
    let fits = (1..=63).contains(&database.len());
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (fits && !hosts.is_empty() && database.chars().all(known)).then_some((hosts, database))
}

impl fmt::Debug for MongoOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoOptions")
            .field("place", &self.place())
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_who_comes() {
        let options = MongoOptions::parse("mongodb://u:hunter2@one:1,two:2/runs?replicaSet=a&x=hunter2");
        let options = options.map_err(|error| error.to_string());
        let shown = options.as_ref().map(MongoOptions::place);
        assert_eq!(shown.as_deref(), Ok("mongodb://one:1,two:2/runs"));
        assert!(!format!("{options:?}").contains("hunter2"));
        let odd = [
            "mongodb://h",
            "mongodb://h/",
            "mongodb:///d",
            "mongodb://h/a b",
            "mongodb://h/a.b",
            "redis://h/d",
        ];
        for odd in odd {
            assert!(MongoOptions::parse(odd).is_err(), "{odd}");
        }
        let error = MongoOptions::parse("mongodb://u:hunter2@h").map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| !error.contains("hunter2")));
    }
}
