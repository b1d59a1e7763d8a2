//! Opens the store that the settings name, and says why that, or the folder for files, cannot be used.

use std::path::Path;
use std::sync::Arc;

use tenure::Error;
use tenure::clock::SystemClock;
use tenure::store::{MemoryStore, SqliteOptions, SqliteStore, Store, StoreError, Synchronous};
#[cfg(feature = "mongodb")]
use tenure::store::{MongoOptions, MongoStore};
#[cfg(feature = "postgres")]
use tenure::store::{PostgresOptions, PostgresStore};
#[cfg(feature = "redis")]
use tenure::store::{RedisOptions, RedisStore};

use crate::config::{Config, Loaded, Source, StoreUrl, Sync};
use crate::exit::{Exit, Failure, reason};

/// Opens it; the folder of its file is made if it is not there.
pub(crate) async fn open(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    let clock = Arc::new(SystemClock);
    match &config.store.url {
        StoreUrl::Memory => Ok(Arc::new(MemoryStore::new(clock))),
        StoreUrl::Sqlite(path) => {
            make_folder(path)?;
            let options = SqliteOptions {
                synchronous: match config.store.synchronous {
                    Sync::Full => Synchronous::Full,
                    Sync::Normal => Synchronous::Normal,
                },
                busy_timeout: config.store.busy_timeout.0,
                ..SqliteOptions::new(path, clock)
            };
            Ok(Arc::new(SqliteStore::open(options).map_err(|error| no_store(path, error))?))
        }
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => {
            let mut options = PostgresOptions::parse(url.reveal())?;
            options.patience = config.store.busy_timeout.0;
            options.synchronous_commit = config.store.synchronous == Sync::Full;
            Ok(Arc::new(PostgresStore::connect(options).await?))
        }
        #[cfg(feature = "mongodb")]
        StoreUrl::Mongo(url) => {
            let mut options = MongoOptions::parse(url.reveal())?;
            options.patience = config.store.busy_timeout.0;
            Ok(Arc::new(MongoStore::connect(options).await?))
        }
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => Ok(Arc::new(RedisStore::open(RedisOptions::new(url.reveal())).await?)),
    }
}

fn make_folder(path: &Path) -> Result<(), Failure> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::create_dir_all(folder).map_err(|error| {
        let folder = folder.display();
        Failure::new(
            Exit::Unavailable,
            format!("the folder \"{folder}\" of the store cannot be made: {}", reason(&error)),
        )
        .hint("name another store with --store sqlite:PATH")
    })
}

/// What the files beside a database take at least.
const LEAST_ROOM: u64 = 256 << 10;

/// Why a file was not opened. Of a disk without room the database says but that it failed.
fn no_store(path: &Path, error: StoreError) -> Failure {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let room = rustix::fs::statvfs(folder).map(|room| room.f_bavail.saturating_mul(room.f_frsize));
    let failure = Failure::from(error);
    match room.ok().and_then(|room| without_room(room, folder)) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// What to do if so many bytes are too few.
fn without_room(room: u64, folder: &Path) -> Option<String> {
    let folder = folder.display();
    let hint =
        format!("{room} bytes are left where \"{folder}\" is: make room, or name another store with --store");
    (room < LEAST_ROOM).then_some(hint)
}

/// Why a host was not opened. The folder for the files of runs is blamed on who named it.
pub(crate) fn no_workspace(loaded: &Loaded, error: Error) -> Failure {
    let Error::Workspace(problem) = &error else { return error.into() };
    let folder = loaded.config.workspace.root.display();
    let why = problem.system().map_or_else(|| problem.to_string(), reason);
    let blame = match loaded.source("workspace.root") {
        source @ (Source::Flag(_) | Source::Environment(_)) => source.to_string(),
        Source::File | Source::Default => "\"workspace.root\"".to_owned(),
    };
    Failure::usage(format!("{blame}: the folder \"{folder}\" cannot be made: {why}"))
        .hint("name a folder that this user may make and write with --workspace FOLDER")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_told_by_its_room() {
        let told = without_room(0, Path::new(".tenure")).unwrap();
        assert!(told.starts_with("0 bytes are left where \".tenure\" is: make room"), "{told}");
        assert_eq!(without_room(LEAST_ROOM, Path::new(".")), None);
        let error = || StoreError::refused(tenure::store::RefusedKind::Unavailable, "disk I/O error");
        let here = no_store(&std::env::temp_dir().join("x.db"), error());
        assert_eq!((here.exit, here.message), (Exit::Unavailable, Failure::from(error()).message));
    }
}
