//! The baseline of PostgreSQL: the bare driver doing the least that a finished run needs, in transactions of the same
//! size: a row of the run, written three times, one of the attempt, written twice, and four events. Each transaction is
//! one round trip, each statement writes all rows of a table.

use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::bare::Took;
use crate::reached;

const SCHEMA: &str = "
    CREATE SCHEMA bench; SET search_path = bench; SET jit = off; SET enable_seqscan = off;
    CREATE TABLE runs (id bigint PRIMARY KEY, run_id text COLLATE \"C\" NOT NULL UNIQUE, due bigint NOT NULL,
        expires bigint, fence bigint NOT NULL, status smallint NOT NULL, body bytea NOT NULL) WITH (fillfactor = 70);
    CREATE INDEX ready ON runs (due, id) WHERE status = 0;
    CREATE INDEX leases ON runs (expires) WHERE expires IS NOT NULL;
    CREATE TABLE attempts (run bigint NOT NULL, started bigint NOT NULL, ended bigint, number integer NOT NULL,
        status smallint NOT NULL, PRIMARY KEY (run, number)) WITH (fillfactor = 80);
    CREATE TABLE events (id bigint PRIMARY KEY, run bigint NOT NULL, seq bigint NOT NULL, at bigint NOT NULL,
        kind smallint NOT NULL);
    CREATE INDEX events_of ON events (run, seq);";

const ENQUEUE: &str = "INSERT INTO runs (id, run_id, due, fence, status, body)
    SELECT id, name, 1, 0, 0, $3 FROM unnest($1::bigint[], $2::text[]) AS x (id, name)";
const EVENTS: &str = "INSERT INTO events (id, run, seq, at, kind)
    SELECT $2 + n, run, $3, 1, 1 FROM unnest($1::bigint[]) WITH ORDINALITY AS x (run, n)";
const CLAIM: &str =
    "UPDATE runs r SET status = 1, fence = 1, expires = 9 FROM (SELECT id FROM runs WHERE status = 0
    AND due <= 1 ORDER BY due, id LIMIT $1 FOR UPDATE SKIP LOCKED) x WHERE r.id = x.id RETURNING r.id";
const BEGIN: &str =
    "UPDATE runs r SET status = 2 FROM unnest($1::bigint[]) AS x (id) WHERE r.id = x.id AND r.fence = 1";
const ATTEMPT: &str = "INSERT INTO attempts (run, started, number, status)
    SELECT run, 1, 1, 0 FROM unnest($1::bigint[]) AS x (run)";
const END: &str = "UPDATE runs r SET status = 5, expires = NULL FROM unnest($1::bigint[]) AS x (id)
    WHERE r.id = x.id AND r.fence = 1";
const ATTEMPT_ENDS: &str = "UPDATE attempts a SET status = 1, ended = 2 FROM unnest($1::bigint[]) AS x (run)
    WHERE a.run = x.run AND a.number = 1";
const RENEW: &str =
    "UPDATE runs r SET expires = x.expires FROM unnest($1::bigint[], $2::bigint[]) AS x (id, expires)
    WHERE r.id = x.id AND r.fence = 1";

const ALL: [&str; 8] = [ENQUEUE, EVENTS, CLAIM, BEGIN, ATTEMPT, END, ATTEMPT_ENDS, RENEW];

pub(crate) struct Bare {
    client: Client,
    prepared: Vec<Statement>,
    cursor: i64,
}

/// A statement with its values.
type Say<'a> = (&'a str, Vec<&'a (dyn ToSql + Sync)>);

impl Bare {
    pub(crate) async fn open() -> Self {
        reached::empty_postgres().await;
        let client = reached::client().await;
        client.batch_execute(SCHEMA).await.expect("a schema");
        let mut prepared = Vec::new();
        for sql in ALL {
            prepared.push(client.prepare(sql).await.expect(sql));
        }
        Self { client, prepared, cursor: 0 }
    }

    pub(crate) async fn cycles(mut self, count: usize, batch: usize) -> Took {
        let clock = Instant::now();
        let mut next = 0;
        while next < count {
            let last = count.min(next + batch);
            self.enqueue(next, last).await;
            next = last;
        }
        let enqueue = clock.elapsed();
        let clock = Instant::now();
        let mut done = 0;
        while done < count {
            let ids = self.claim(batch).await;
            self.transaction(&ids, 3, &[BEGIN, ATTEMPT]).await;
            self.transaction(&ids, 4, &[END, ATTEMPT_ENDS]).await;
            done += ids.len();
        }
        Took { enqueue, rest: clock.elapsed() }
    }

    /// How long it takes to renew so many leases at once.
    pub(crate) async fn renews(mut self, count: usize, times: usize) -> Vec<Duration> {
        for first in (0..count).step_by(1000) {
            self.enqueue(first, count.min(first + 1000)).await;
        }
        let ids = self.claim(count).await;
        let mut took = Vec::new();
        for n in 0..times {
            let clock = Instant::now();
            let expires = vec![i64::try_from(n).expect("a number") + 10; ids.len()];
            self.say(vec![(RENEW, vec![&ids, &expires])]).await;
            took.push(clock.elapsed());
        }
        took
    }

    async fn enqueue(&mut self, first: usize, last: usize) {
        let ids: Vec<i64> = (first..last).map(|n| i64::try_from(n).expect("a number")).collect();
        let names: Vec<String> = (first..last).map(|n| format!("{n:032x}")).collect();
        let body = vec![b'x'; 256];
        let (cursor, seq) = (self.cursors(ids.len()), 1_i64);
        self.say(vec![(ENQUEUE, vec![&ids, &names, &body]), (EVENTS, vec![&ids, &cursor, &seq])]).await;
    }

    /// Who is claimed is known only when they are: this takes two round trips.
    async fn claim(&mut self, limit: usize) -> Vec<i64> {
        let most = i64::try_from(limit).expect("a number");
        self.client.batch_execute("BEGIN").await.expect("begin");
        let rows = self.client.query(self.statement(CLAIM), &[&most]).await.expect("claimed");
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let (cursor, seq) = (self.cursors(ids.len()), 2_i64);
        let events: BoxFuture<'_, ()> = Box::pin(async {
            self.client.query(self.statement(EVENTS), &[&ids, &cursor, &seq]).await.expect("told");
        });
        let commit: BoxFuture<'_, ()> =
            Box::pin(async { self.client.batch_execute("COMMIT").await.expect("commit") });
        join_all([events, commit]).await;
        ids
    }

    async fn transaction(&mut self, ids: &Vec<i64>, seq: i64, statements: &[&str]) {
        let cursor = self.cursors(ids.len());
        let mut says: Vec<Say<'_>> =
            statements.iter().map(|sql| (*sql, vec![ids as &(dyn ToSql + Sync)])).collect();
        says.push((EVENTS, vec![ids, &cursor, &seq]));
        self.say(says).await;
    }

    /// One transaction, sent at once.
    async fn say(&self, says: Vec<Say<'_>>) {
        let word = |word: &'static str| -> BoxFuture<'_, Vec<Row>> {
            Box::pin(async move {
                self.client.batch_execute(word).await.expect(word);
                Vec::new()
            })
        };
        let mut sent = vec![word("BEGIN")];
        for (sql, with) in &says {
            sent.push(Box::pin(async move {
                self.client.query(self.statement(sql), with).await.expect("executed")
            }));
        }
        sent.push(word("COMMIT"));
        join_all(sent).await;
    }

    fn statement(&self, sql: &str) -> &Statement {
        let place = ALL.iter().position(|known| *known == sql).expect("a statement of this baseline");
        &self.prepared[place]
    }

    fn cursors(&mut self, many: usize) -> i64 {
        let before = self.cursor;
        self.cursor += i64::try_from(many).expect("a number");
        before
    }
}
