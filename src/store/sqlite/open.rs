//! Opens the file: its connections, their settings, and what is wrong with a file that is not ours.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags};
use rustix::fs::Access;
use rustix::io::Errno;

use super::fault::{Fault, Step};
use super::{SqliteOptions, Synchronous, disk, migrate};
use crate::store::{RefusedKind, StoreError};

/// "tenu": says in the header of the file whose it is.
pub(super) const APPLICATION_ID: i32 = 0x7465_6e75;

/// Hot statements stay prepared.
const STATEMENTS: usize = 128;

/// The connection that writes, on a schema that is up to date.
pub(super) fn writer(options: &SqliteOptions) -> Result<Connection, StoreError> {
    let path = &options.path;
    check_path(path)?;
    let refused = |fault: Fault| not_opened(fault, path);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(|error| refused(error.into()))?;
    conn.busy_timeout(options.busy_timeout).map_err(|error| refused(error.into()))?;
    if conn.is_readonly(MAIN_DB).map_err(|error| refused(error.into()))? {
        return Err(StoreError::refused(
            RefusedKind::ReadOnly,
            format!("\"{}\" can only be read; make it writable for this user", path.display()),
        ));
    }
    check_owner(&conn, path)?;
    with_patience(options.busy_timeout, || keep_a_log(&conn)).map_err(refused)?;
    set_up(&conn, options).map_err(refused)?;
    migrate::migrate(&mut conn, options)?;
    Ok(conn)
}

/// A connection that only reads. The writer's must be open: it keeps the log that this one reads.
pub(super) fn reader(options: &SqliteOptions) -> Result<Connection, StoreError> {
    let open = || -> Step<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&options.path, flags)?;
        conn.busy_timeout(options.busy_timeout)?;
        plan_once(&conn)?;
        conn.execute_batch("PRAGMA cache_size = -8192; PRAGMA mmap_size = 268435456;")?;
        Ok(conn)
    };
    open().map_err(|fault| fault.refused(&options.path))
}

/// The log that the writer's connection writes, opened to wait for the disk; none if answers do not wait for it. From
/// now on commits of that connection do not wait themselves.
pub(super) fn log(writer: &Connection, options: &SqliteOptions) -> Result<Option<File>, StoreError> {
    if options.synchronous == Synchronous::Normal {
        return Ok(None);
    }
    // As the database sees it: links in the path are followed.
    let path = writer.path().map_or(options.path.as_path(), Path::new);
    let log = disk::log_of(path).map_err(|error| {
        let message = format!("the log of \"{}\" cannot be opened: {error}", options.path.display());
        StoreError::refused(RefusedKind::Unavailable, message)
    })?;
    let unwaited = writer.execute_batch("PRAGMA synchronous = NORMAL");
    unwaited.map_err(|error| Fault::from(error).refused(&options.path))?;
    Ok(Some(log))
}

fn check_path(path: &Path) -> Result<(), StoreError> {
    let invalid = |why: &str| {
        StoreError::refused(RefusedKind::Invalid, format!("\"{}\" cannot be opened: {why}", path.display()))
    };
    if path.as_os_str().is_empty() || path == Path::new(":memory:") {
        return Err(invalid("expected the path of a file; use the memory store to keep nothing"));
    }
    if path.is_dir() {
        return Err(invalid("it is a folder; expected the path of a file"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(invalid("its folder does not exist; create the folder first"));
    }
    Ok(())
}

/// The error of a file that could not be opened; where this user may not, it names what.
fn not_opened(fault: Fault, path: &Path) -> StoreError {
    match denied(path).filter(|_| fault.may_be_denied()) {
        Some(what) => StoreError::refused(
            RefusedKind::ReadOnly,
            format!(
                "\"{}\" cannot be opened: this user may not write {what}; make that writable for this user, or be \
                 the user it belongs to",
                path.display()
            ),
        ),
        None => fault.refused(path),
    }
}

/// What this user may not write of that which a database needs: its file, its log, and more files beside them.
///
/// Nothing is opened to see that: the close of a file lets go of the locks that other connections of this process have
/// on it.
fn denied(path: &Path) -> Option<String> {
    let is_denied = |path: &Path, access| rustix::fs::access(path, access) == Err(Errno::ACCESS);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let the_folder = || Some(format!("the folder \"{}\"", folder.display()));
    if is_denied(folder, Access::EXEC_OK) {
        return the_folder();
    }
    for end in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        if is_denied(file.as_ref(), Access::READ_OK | Access::WRITE_OK) {
            return Some(format!("the file \"{}\"", Path::new(&file).display()));
        }
    }
    if is_denied(folder, Access::WRITE_OK) { the_folder() } else { None }
}

/// A database of somebody else is left alone.
fn check_owner(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    // In this order: another of ours may be making the file, and its first tables come with the name of their owner.
    let look = || -> Step<(i32, i64)> {
        let tables = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let id = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        Ok((id, tables))
    };
    let (id, tables) = look().map_err(|fault| not_opened(fault, path))?;
    if id == APPLICATION_ID || (id == 0 && tables == 0) {
        return Ok(());
    }
    Err(StoreError::refused(
        RefusedKind::Invalid,
        format!("\"{}\" is a database of another program; name another file", path.display()),
    ))
}

/// Turning a fresh file to write-ahead logging needs it alone, and does not wait for that by itself.
fn with_patience(patience: Duration, attempt: impl Fn() -> Step<()>) -> Step<()> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(Fault::Sql(error))
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && begun.elapsed() < patience =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            answer => return answer,
        }
    }
}

fn keep_a_log(conn: &Connection) -> Step<()> {
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(Fault::Invalid(format!("its file system cannot keep a write-ahead log (mode \"{mode}\")")))
}

/// Statements are planned when they are prepared, and never again: without the guarantee, each value that is
/// bound to a column of a partial index has the statement planned anew.
fn plan_once(conn: &Connection) -> Step<()> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn set_up(conn: &Connection, options: &SqliteOptions) -> Step<()> {
    plan_once(conn)?;
    let synchronous = match options.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    conn.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous};
         PRAGMA cache_size = -32768;
         PRAGMA temp_store = MEMORY;
         PRAGMA wal_autocheckpoint = 8000;
         PRAGMA journal_size_limit = 67108864;"
    ))?;
    if let Some(most) = options.most_bytes {
        let page: u64 = conn.query_row("PRAGMA page_size", [], |row| row.get::<_, i64>(0))?.unsigned_abs();
        let pages = (most / page.max(1)).clamp(1, u64::from(u32::MAX - 1));
        conn.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
    }
    Ok(())
}
