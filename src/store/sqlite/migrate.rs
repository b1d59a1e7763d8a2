//! Brings the schema up to date: append-only files, each applied once, none edited afterwards.

use rusqlite::{Connection, TransactionBehavior, params};

use super::fault::{Fault, Step};
use super::{SqliteOptions, open, session};
use crate::store::{RefusedKind, StoreError};

/// One step of the schema.
struct Migration {
    version: i64,
    name: &'static str,
    sql: &'static str,
    /// What no statement can fill in.
    fill: fn(&Connection) -> Step<()>,
}

fn nothing(_: &Connection) -> Step<()> {
    Ok(())
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "0001_first",
        sql: include_str!("migrations/0001_first.sql"),
        fill: nothing,
    },
    Migration {
        version: 2,
        name: "0002_agents",
        sql: include_str!("migrations/0002_agents.sql"),
        fill: nothing,
    },
    Migration {
        version: 3,
        name: "0003_listings",
        sql: include_str!("migrations/0003_listings.sql"),
        fill: session::fill,
    },
];

/// Applies what is missing, in one transaction: a second program that opens the file waits, and finds it done.
pub(super) fn migrate(conn: &mut Connection, options: &SqliteOptions) -> Result<(), StoreError> {
    let path = &options.path;
    let refused = |error: rusqlite::Error| Fault::from(error).refused(path);
    let now = options.clock.now().ms();
    // Who finds nothing to do takes no lock.
    if check(conn, options)? == MIGRATIONS.len() {
        return Ok(());
    }
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
    let applied = check(&transaction, options)?;
    for migration in &MIGRATIONS[applied.min(MIGRATIONS.len())..] {
        let step = || -> Step<()> {
            transaction.execute_batch(
                "CREATE TABLE IF NOT EXISTS schema_migrations (
                     version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
                     applied_at INTEGER NOT NULL)",
            )?;
            transaction.execute_batch(migration.sql)?;
            (migration.fill)(&transaction)?;
            transaction.execute(
                "INSERT INTO schema_migrations VALUES (?1, ?2, ?3, ?4)",
                params![migration.version, migration.name, checksum(migration.sql), now],
            )?;
            Ok(transaction.execute_batch(&format!("PRAGMA application_id = {}", open::APPLICATION_ID))?)
        };
        step().map_err(|fault| fault.refused(path))?;
    }
    transaction.commit().map_err(refused)
}

/// How many migrations the file has, once they are found to be ours.
fn check(conn: &Connection, options: &SqliteOptions) -> Result<usize, StoreError> {
    let path = options.path.display();
    let applied = applied(conn).map_err(|error| Fault::from(error).refused(&options.path))?;
    let newest = applied.iter().map(|(version, ..)| *version).max().unwrap_or(0);
    let known = known();
    if newest > known {
        return Err(StoreError::refused(
            RefusedKind::NewerSchema,
            format!(
                "\"{path}\" has schema version {newest}, this program knows versions up to {known}; \
                 use a newer version of the program"
            ),
        ));
    }
    for (version, name, found) in &applied {
        let ours = MIGRATIONS.iter().find(|migration| migration.version == *version);
        if ours.is_none_or(|ours| ours.name != name || checksum(ours.sql) != *found) {
            return Err(StoreError::refused(
                RefusedKind::Corrupt,
                format!(
                    "\"{path}\": migration \"{name}\" was applied with another text than this program has; \
                     use the program that applied it, or restore the migration"
                ),
            ));
        }
    }
    Ok(applied.len())
}

fn applied(conn: &Connection) -> rusqlite::Result<Vec<(i64, String, String)>> {
    let there: bool = conn.query_row(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations')",
        [],
        |row| row.get(0),
    )?;
    if !there {
        return Ok(Vec::new());
    }
    let mut rows = conn.prepare("SELECT version, name, checksum FROM schema_migrations ORDER BY version")?;
    let found = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    found.collect()
}

/// The version of the newest migration that was applied; none if there was none.
pub(super) fn version(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    Ok(applied(conn)?.iter().map(|(version, ..)| *version).max())
}

/// The version that this program brings a file to.
pub(super) fn known() -> i64 {
    MIGRATIONS.last().map_or(0, |migration| migration.version)
}

/// FNV-1a: tells an edited text from the one that was applied; nobody has to be kept from forging it.
fn checksum(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}
