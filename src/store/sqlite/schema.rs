//! Which schema a file has, without bringing it up to date.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::fault::Fault;
use super::{SqliteStore, migrate};
use crate::store::StoreError;

/// The schema of a file, and that of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersions {
    /// That of the file; none if there is no file, or nothing in it yet.
    pub found: Option<i64>,
    /// That to which this program brings a file when it opens it.
    pub known: i64,
}

impl SqliteStore {
    /// Looks which schema a file has. Changes nothing of it; it blocks while it reads.
    ///
    /// # Errors
    /// Refused when the file cannot be read as a database.
    pub fn schema(path: &Path) -> Result<SchemaVersions, StoreError> {
        let known = migrate::known();
        if !path.exists() {
            return Ok(SchemaVersions { found: None, known });
        }
        let look = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            migrate::version(&Connection::open_with_flags(path, flags)?)
        };
        let found = look().map_err(|error| Fault::from(error).refused(path))?;
        Ok(SchemaVersions { found, known })
    }
}
