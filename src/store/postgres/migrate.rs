//! Brings the schema up to date: append-only files, each applied once, none edited afterwards.

use super::conn::{Conn, with};
use super::fault::{Fault, Step};
use super::options::{PostgresOptions, fnv};
use crate::store::{RefusedKind, StoreError};

/// One step of the schema.
struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "0001_first", sql: include_str!("migrations/0001_first.sql") },
    Migration { version: 2, name: "0002_speed", sql: include_str!("migrations/0002_speed.sql") },
    Migration { version: 3, name: "0003_rows", sql: include_str!("migrations/0003_rows.sql") },
    Migration { version: 4, name: "0004_memory", sql: include_str!("migrations/0004_memory.sql") },
];

/// Applies what is missing, in one transaction: a second program that opens the schema waits, and finds it done.
pub(super) async fn migrate(conn: &Conn, options: &PostgresOptions) -> Result<(), StoreError> {
    let place = options.place();
    // Who finds nothing to do takes no lock.
    if check(conn, options).await? == MIGRATIONS.len() {
        return Ok(());
    }
    let refused = |fault: Fault| fault.refused(&place);
    // Waited for outside of the transaction: what a session knows of the catalogue is refreshed when one begins. An
    // error ends the session, and with it the lock.
    let lock = fnv(&format!("tenure migrations {}", options.schema)).cast_signed();
    conn.ask("SELECT pg_advisory_lock($1)", with![lock]).await.map_err(refused)?;
    conn.word("BEGIN").await.map_err(refused)?;
    apply(conn, options).await?;
    conn.word("COMMIT").await.map_err(refused)?;
    conn.ask("SELECT pg_advisory_unlock($1)", with![lock]).await.map_err(refused)?;
    Ok(())
}

async fn apply(conn: &Conn, options: &PostgresOptions) -> Result<(), StoreError> {
    let place = options.place();
    let refused = |fault: Fault| fault.refused(&place);
    let applied = check(conn, options).await?;
    for migration in &MIGRATIONS[applied.min(MIGRATIONS.len())..] {
        step(conn, options, migration).await.map_err(refused)?;
    }
    Ok(())
}

async fn step(conn: &Conn, options: &PostgresOptions, migration: &Migration) -> Step<()> {
    let schema = options.quoted_schema();
    // A role may own its schema without the right to make others.
    let missing = conn.ask("SELECT to_regnamespace($1) IS NULL", with![schema.clone()]).await?;
    let missing: bool = missing.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(true);
    let make = if missing { format!("CREATE SCHEMA {schema};") } else { String::new() };
    conn.word(&format!(
        "{make}
         CREATE TABLE IF NOT EXISTS schema_migrations (
             version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
             applied_at timestamptz NOT NULL DEFAULT clock_timestamp());
         {}
         INSERT INTO schema_migrations (version, name, checksum)
         VALUES ({}, '{}', '{}');",
        migration.sql,
        migration.version,
        migration.name,
        checksum(migration.sql)
    ))
    .await
}

/// How many migrations the schema has, once they are found to be ours.
async fn check(conn: &Conn, options: &PostgresOptions) -> Result<usize, StoreError> {
    let place = options.place();
    let applied = applied(conn, options).await.map_err(|fault| fault.refused(&place))?;
    let newest = applied.iter().map(|(version, ..)| *version).max().unwrap_or(0);
    let known = MIGRATIONS.last().map_or(0, |migration| migration.version);
    if newest > known {
        return Err(StoreError::refused(
            RefusedKind::NewerSchema,
            format!(
                "\"{place}\" has schema version {newest}, this program knows versions up to {known}; \
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
                    "\"{place}\": migration \"{name}\" was applied with another text than this program has; \
                     use the program that applied it, or restore the migration"
                ),
            ));
        }
    }
    Ok(applied.len())
}

async fn applied(conn: &Conn, options: &PostgresOptions) -> Step<Vec<(i32, String, String)>> {
    let table = format!("{}.schema_migrations", options.quoted_schema());
    let there = conn.ask("SELECT to_regclass($1) IS NOT NULL", with![table]).await?;
    let there: bool = there.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false);
    if !there {
        return Ok(Vec::new());
    }
    let rows = conn
        .ask("SELECT version, name, checksum FROM schema_migrations ORDER BY version", Vec::new())
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
}

fn checksum(text: &str) -> String {
    format!("{:016x}", fnv(text))
}
