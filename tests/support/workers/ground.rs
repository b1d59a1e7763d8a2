//! Where the workers of a test keep their runs: in a file, or in a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tenure::clock::SystemClock;
use tenure::store::{
    Look, PostgresOptions, PostgresStore, RedisOptions, RedisStore, SqliteOptions, SqliteStore, Store,
    StoreError, Synchronous,
};
#[cfg(feature = "mongodb")]
use tenure::store::{MongoOptions, MongoStore};

use crate::servers;

/// A store, as a worker is told of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Kept {
    Sqlite {
        file: PathBuf,
    },
    Postgres {
        url: String,
        schema: String,
    },
    Redis {
        url: String,
        namespace: String,
    },
    #[cfg(feature = "mongodb")]
    Mongodb {
        url: String,
        database: String,
    },
}

/// How a store is asked.
pub(crate) struct Manner {
    /// How often a file is looked at for what others wrote.
    pub(crate) poll: Duration,
    /// How long a server is waited for.
    pub(crate) patience: Duration,
    /// Who looks into the transactions of a file.
    pub(crate) look: Option<Look>,
}

impl Kept {
    pub(crate) async fn open(&self, manner: Manner) -> Result<Arc<dyn Store>, StoreError> {
        Ok(match self {
            Self::Sqlite { file } => {
                let options = SqliteOptions {
                    // As it is by default: an answer is a step of its own, after the commit.
                    synchronous: Synchronous::Full,
                    poll: manner.poll,
                    ..SqliteOptions::new(file, Arc::new(SystemClock))
                };
                match manner.look {
                    Some(look) => Arc::new(SqliteStore::open_looking(options, look)?),
                    None => Arc::new(SqliteStore::open(options)?),
                }
            }
            Self::Postgres { url, schema } => {
                let mut options = PostgresOptions::parse(url)?;
                options.schema.clone_from(schema);
                options.patience = manner.patience;
                // Whoever is paused in the middle of a transaction is not waited for longer than leases last.
                options.most_idle = Duration::from_secs(1);
                Arc::new(PostgresStore::connect(options).await?)
            }
            Self::Redis { url, namespace } => {
                let options = RedisOptions {
                    namespace: namespace.clone(),
                    connect_timeout: manner.patience,
                    response_timeout: manner.patience,
                    ..RedisOptions::new(url)
                };
                Arc::new(RedisStore::open(options).await?)
            }
            #[cfg(feature = "mongodb")]
            Self::Mongodb { url, database } => {
                // The address that the server names is its own: one that is reached by a proxy is not looked for.
                let mut options = MongoOptions::parse(&format!("{url}{database}?directConnection=true"))?;
                options.patience = manner.patience;
                Arc::new(MongoStore::connect(options).await?)
            }
        })
    }

    /// The port of its server, if it is in one.
    pub(crate) fn port(&self) -> Option<u16> {
        let after = self.url()?.rsplit(':').next()?;
        after.split('/').next()?.parse().ok()
    }

    /// The same store, reached by another port.
    pub(crate) fn by_port(&self, port: u16) -> Self {
        let mut other = self.clone();
        if let (Some(own), Some(url)) = (self.port(), other.url_mut()) {
            *url = url.replace(&format!(":{own}/"), &format!(":{port}/"));
        }
        other
    }

    fn url(&self) -> Option<&str> {
        match self {
            Self::Sqlite { .. } => None,
            Self::Postgres { url, .. } | Self::Redis { url, .. } => Some(url),
            #[cfg(feature = "mongodb")]
            Self::Mongodb { url, .. } => Some(url),
        }
    }

    fn url_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Sqlite { .. } => None,
            Self::Postgres { url, .. } | Self::Redis { url, .. } => Some(url),
            #[cfg(feature = "mongodb")]
            Self::Mongodb { url, .. } => Some(url),
        }
    }
}

/// An empty store, with the folder it is in, if it is in one.
type Fresh = (Kept, Option<TempDir>);

/// What the wall clocks of workers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// They show what time it is.
    Right,
    /// That of one is an hour ahead, that of the next an hour behind.
    Apart,
    /// They step when the stage says so.
    Stepped,
}

/// A kind of store, on which tests are run.
#[derive(Clone, Copy)]
pub(crate) struct Ground {
    pub(crate) name: &'static str,
    /// The server it needs.
    pub(crate) server: Option<&'static str>,
    /// What the clocks of its workers do.
    pub(crate) clocks: Clocks,
    fresh: fn() -> Result<Fresh, String>,
}

/// All kinds, one line each.
pub(crate) const GROUNDS: &[Ground] = &[
    Ground { name: "sqlite", server: None, clocks: Clocks::Right, fresh: in_a_file },
    Ground { name: "postgres", server: Some("postgres"), clocks: Clocks::Right, fresh: a_schema },
    Ground { name: "redis", server: Some("redis"), clocks: Clocks::Right, fresh: a_namespace },
    #[cfg(feature = "mongodb")]
    Ground { name: "mongodb", server: Some("mongodb"), clocks: Clocks::Right, fresh: a_database },
];

impl Ground {
    /// The same with workers whose clocks are set apart, if it has a clock of its own.
    pub(crate) fn skewed(&self) -> Option<Self> {
        let name = match self.server? {
            "postgres" => "skewed-postgres",
            "redis" => "skewed-redis",
            "mongodb" => "skewed-mongodb",
            _ => return None,
        };
        Some(Self { name, clocks: Clocks::Apart, ..*self })
    }

    /// The same with workers whose clocks step.
    pub(crate) fn stepped(&self) -> Option<Self> {
        let name = match self.name {
            "sqlite" => "stepped-sqlite",
            "postgres" => "stepped-postgres",
            "redis" => "stepped-redis",
            "mongodb" => "stepped-mongodb",
            _ => return None,
        };
        Some(Self { name, clocks: Clocks::Stepped, ..*self })
    }

    /// How long something takes, or in how many pieces: as usual, or where a call is a transaction of ten commands.
    pub(crate) fn pace<T>(&self, usual: T, long: T) -> T {
        if self.server == Some("mongodb") { long } else { usual }
    }

    /// How much there is of something: as usual, or on a server that takes tens of milliseconds for what others do in
    /// one.
    pub(crate) fn amount<T>(&self, usual: T, little: T) -> T {
        if self.server == Some("mongodb") && servers::mongodb::is_slow() { little } else { usual }
    }

    /// What it needs, by the names that tests can be told to require.
    pub(crate) fn needs(&self) -> Vec<&'static str> {
        let clocks = (self.clocks != Clocks::Right).then_some("faketime");
        self.server.into_iter().chain(clocks).collect()
    }

    pub(crate) fn fresh(&self) -> Fresh {
        (self.fresh)().unwrap_or_else(|why| panic!("no {}: {why}", self.name))
    }

    /// Why there is none of this kind here.
    pub(crate) fn missing(&self) -> Option<String> {
        let library = || servers::skew::library().as_ref().err().cloned();
        let clocks = if self.clocks == Clocks::Right { None } else { library() };
        clocks.or_else(|| (self.fresh)().err())
    }

    /// A store of this kind in a server that is a test's own.
    pub(crate) fn in_server(&self, url: String) -> Kept {
        match self.server {
            Some("redis") => in_redis(url),
            #[cfg(feature = "mongodb")]
            Some("mongodb") => in_mongodb(url),
            _ => in_postgres(url),
        }
    }
}

fn a_schema() -> Result<Fresh, String> {
    Ok((in_postgres(servers::postgres().clone()?), None))
}

fn a_namespace() -> Result<Fresh, String> {
    Ok((in_redis(servers::redis::redis().clone()?), None))
}

#[cfg(feature = "mongodb")]
fn a_database() -> Result<Fresh, String> {
    let url = servers::mongodb::impatient()?;
    Ok((in_mongodb(format!("{}/", url.trim_end_matches('/'))), None))
}

fn in_a_file() -> Result<Fresh, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    Ok((Kept::Sqlite { file: folder.path().join("tenure.db") }, Some(folder)))
}

fn in_postgres(url: String) -> Kept {
    Kept::Postgres { url, schema: unique() }
}

fn in_redis(url: String) -> Kept {
    Kept::Redis { url, namespace: unique() }
}

#[cfg(feature = "mongodb")]
fn in_mongodb(url: String) -> Kept {
    Kept::Mongodb { url, database: unique() }
}

/// A name that nobody has used. Another process may use the same server.
fn unique() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("w{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}
