//! The baseline of SQLite: the bare driver on one thread doing the least that a finished run needs, in
//! transactions of the same size: a row of the run, written three times, one of the attempt, written twice,
//! and four events.

use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tempfile::TempDir;

pub(crate) struct Bare {
    connection: Connection,
    _folder: TempDir,
}

/// How long the parts of a number of cycles took.
pub(crate) struct Took {
    pub(crate) enqueue: Duration,
    pub(crate) rest: Duration,
}

const SCHEMA: &str = "
    CREATE TABLE runs (id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, status INTEGER NOT NULL, fence INTEGER NOT NULL,
        due INTEGER NOT NULL, expires INTEGER, body BLOB NOT NULL);
    CREATE UNIQUE INDEX by_name ON runs (run_id);
    CREATE INDEX ready ON runs (due, id) WHERE status = 0;
    CREATE INDEX leases ON runs (expires) WHERE expires IS NOT NULL;
    CREATE TABLE attempts (run INTEGER NOT NULL, number INTEGER NOT NULL, status INTEGER NOT NULL, started INTEGER NOT
        NULL, ended INTEGER, PRIMARY KEY (run, number)) WITHOUT ROWID;
    CREATE TABLE events (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL, at
        INTEGER NOT NULL);
    CREATE INDEX events_of ON events (run, seq);";

impl Bare {
    pub(crate) fn open(full: bool) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let connection = Connection::open(folder.path().join("bare.db")).expect("a database");
        let synchronous = if full { "FULL" } else { "NORMAL" };
        connection.pragma_update(None, "journal_mode", "WAL").expect("WAL");
        connection.pragma_update(None, "synchronous", synchronous).expect("synchronous");
        connection.execute_batch(SCHEMA).expect("a schema");
        Self { connection, _folder: folder }
    }

    pub(crate) fn cycles(&self, count: usize, batch: usize) -> Took {
        let body = [b'x'; 256];
        let clock = Instant::now();
        let mut next = 0;
        while next < count {
            let many = batch.min(count - next);
            self.transaction(|connection| {
                for n in next..next + many {
                    let name = format!("{:032x}", n);
                    run(
                        connection,
                        "INSERT INTO runs (run_id, status, fence, due, body) VALUES (?1, 0, 0, 1, ?2)",
                        params![name, body],
                    );
                    event(connection, connection.last_insert_rowid(), 1);
                }
            });
            next += many;
        }
        let enqueue = clock.elapsed();
        let clock = Instant::now();
        let mut done = 0;
        while done < count {
            let ids = self.claim(batch);
            self.transaction(|connection| {
                for id in &ids {
                    run(connection, "UPDATE runs SET status = 2 WHERE id = ?1 AND fence = 1", params![id]);
                    run(
                        connection,
                        "INSERT INTO attempts (run, number, status, started) VALUES (?1, 1, 0, 1)",
                        params![id],
                    );
                    event(connection, *id, 3);
                }
            });
            self.transaction(|connection| {
                for id in &ids {
                    run(
                        connection,
                        "UPDATE runs SET status = 5, expires = NULL WHERE id = ?1 AND fence = 1",
                        params![id],
                    );
                    run(
                        connection,
                        "UPDATE attempts SET status = 1, ended = 2 WHERE run = ?1 AND number = 1",
                        params![id],
                    );
                    event(connection, *id, 4);
                }
            });
            done += ids.len();
        }
        Took { enqueue, rest: clock.elapsed() }
    }

    fn claim(&self, limit: usize) -> Vec<i64> {
        let mut ids = Vec::new();
        self.transaction(|connection| {
            let sql = "SELECT id FROM runs WHERE status = 0 AND due <= 1 ORDER BY due, id LIMIT ?1";
            let mut select = connection.prepare_cached(sql).expect("a statement");
            let found = select.query_map([limit as i64], |row| row.get(0)).expect("rows");
            ids = found.collect::<Result<_, _>>().expect("ids");
            for id in &ids {
                run(
                    connection,
                    "UPDATE runs SET status = 1, fence = 1, expires = 9 WHERE id = ?1 AND status = 0",
                    params![id],
                );
                event(connection, *id, 2);
            }
        });
        ids
    }

    fn transaction(&self, work: impl FnOnce(&Connection)) {
        self.connection.execute_batch("BEGIN IMMEDIATE").expect("begin");
        work(&self.connection);
        self.connection.execute_batch("COMMIT").expect("commit");
    }
}

fn run(connection: &Connection, sql: &str, values: impl rusqlite::Params) {
    connection.prepare_cached(sql).expect("a statement").execute(values).expect("executed");
}

fn event(connection: &Connection, id: i64, sequence: i64) {
    run(connection, "INSERT INTO events (run, seq, kind, at) VALUES (?1, ?2, 1, 1)", params![id, sequence]);
}
