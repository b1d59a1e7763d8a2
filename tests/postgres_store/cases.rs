//! The cases.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tenure::model::{InstanceId, Run, RunId, RunStatus, Subject, Task, Timestamp};
use tenure::rules::{self, Moment, Wanted};
use tenure::store::conformance::{claim_request, spec};
use tenure::store::{
    PageRequest, PostgresOptions, PostgresStore, PruneRequest, RefusedKind, RenewRequest, RunFilter,
    RunWrite, Store, StoreError,
};

use super::memory::{
    a_writer_forgets_whatever_a_program_of_an_older_schema_writes,
    a_writer_goes_on_remembering_while_others_leave_its_runs_alone,
    a_writer_that_remembers_sees_what_another_has_written,
};
use super::postgres::{Lent, client, lend, options};
use super::servers;
use super::tls::Certificates;

type Waits = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A promise, and how to find out.
pub(crate) type Case = (&'static str, fn() -> Waits);

macro_rules! list {
    ($($name:ident),* $(,)?) => {
        pub(crate) const CASES: &[Case] = &[$((stringify!($name), || Box::pin($name()))),*];
    };
}

list! {
    an_empty_schema_may_be_opened_by_many_at_once,
    an_older_schema_is_brought_up_to_date_with_what_is_in_it,
    a_newer_schema_is_refused_with_both_versions,
    an_edited_migration_is_refused_by_name,
    a_password_is_shown_nowhere,
    an_address_that_makes_no_sense_says_what_was_expected,
    a_server_that_is_not_there_is_a_passing_error,
    tls_is_spoken_as_far_as_the_address_asks_for_it,
    own_l06_the_clock_is_the_servers,
    a_lost_session_is_made_anew_and_watchers_are_told_of_everything,
    field_g11_only_past_the_patience_is_a_lock_an_error_and_a_passing_one,
    own_l09_an_instance_that_is_stopped_within_a_transaction_is_cut_off,
    own_f02_a_record_that_cannot_be_read_is_named_and_the_others_are_served,
    field_x01_a_ready_run_that_cannot_be_read_stops_no_claim,
    no_reader_sees_a_cursor_appear_behind_one_it_has_seen,
    field_c02_a_cancel_by_another_instance_is_heard_with_its_name,
    a_writer_that_remembers_sees_what_another_has_written,
    a_writer_goes_on_remembering_while_others_leave_its_runs_alone,
    a_writer_forgets_whatever_a_program_of_an_older_schema_writes,
    field_g01_no_statement_reads_a_table_from_end_to_end,
    field_g01_no_claim_reads_an_index_from_end_to_end,
    field_g01_the_planner_is_told_of_a_table_that_has_grown,
    field_g01_the_planner_is_told_again_of_a_table_that_was_emptied,
    a_call_that_the_server_cannot_take_fails_alone,
    a_call_that_the_server_cannot_take_fails_alone_though_others_went_out_behind_it,
}

pub(super) const NOW: Timestamp = Timestamp::from_ms(1_769_850_000_000);

pub(super) struct Schema(PostgresOptions, Lent);

impl Schema {
    pub(super) fn new() -> Self {
        let (url, lent) = lend();
        Self(options(&url, &lent.0), lent)
    }

    fn url(&self) -> String {
        servers::postgres().clone().expect("a server")
    }

    pub(super) async fn open(&self) -> PostgresStore {
        PostgresStore::connect(self.0.clone()).await.expect("a store")
    }

    /// Somebody else's session, with this schema in sight.
    pub(super) async fn sql(&self) -> tokio_postgres::Client {
        let client = client(&self.url()).await;
        client.batch_execute(&format!("SET search_path = \"{}\"", self.1.0)).await.expect("the schema");
        client
    }
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> (RefusedKind, String) {
    match answer {
        Err(StoreError::Refused { kind, message }) => (kind, message),
        other => panic!("expected a refusal, found {other:?}"),
    }
}

fn task(query: &str) -> Task {
    let spec = spec(json!({ "query": query, "overlap_policy": "allow_parallel" }));
    Task { spec, created_at: NOW, updated_at: NOW, revision: 1, last_event: 0 }
}

fn queued(query: &str) -> RunWrite {
    let moment = Moment { now: NOW, stamp: InstanceId::generate().bits() as u64 };
    rules::enqueue(&task(query), Wanted::now(RunId::generate(), NOW), moment)
}

pub(super) async fn enqueue(store: &dyn Store, n: usize) -> Vec<RunId> {
    let writes: Vec<RunWrite> = (0..n).map(|_| queued("do it")).collect();
    let ids = writes.iter().map(|write| write.run.run_id.clone()).collect();
    for answer in store.commit(writes.into_iter().map(Into::into).collect()).await.expect("an answer") {
        answer.expect("queued");
    }
    ids
}

async fn an_empty_schema_may_be_opened_by_many_at_once() {
    let schema = Schema::new();
    let sql = client(&schema.url()).await;
    sql.batch_execute(&format!("DROP SCHEMA IF EXISTS {} CASCADE", schema.1.0)).await.unwrap();
    let stores = join_all((0..4).map(|_| schema.open())).await;
    for store in &stores {
        enqueue(store, 2).await;
    }
    assert_eq!(stores[0].counts(None).await.unwrap(), [(RunStatus::Queued, 8)]);
    let rows = schema.sql().await.query("SELECT version, name FROM schema_migrations", &[]).await.unwrap();
    let applied: Vec<(i32, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let all = [(1, "0001_first"), (2, "0002_speed"), (3, "0003_rows"), (4, "0004_memory")];
    assert_eq!(applied, all.map(|(version, name)| (version, name.to_owned())));
}

/// What came with the second migration and those after it, undone.
const BEFORE_SPEED: &str = "
    ALTER TABLE meta DROP COLUMN version, DROP COLUMN harmless;
    INSERT INTO attempts (rid, fence, started_at, number, status, instance)
        SELECT rid, fence, attempt_started_at, attempt, 0, owner FROM runs WHERE tried IS NOT NULL;
    ALTER TABLE runs DROP COLUMN tried, DROP COLUMN small;
    DROP INDEX runs_paused;
    CREATE INDEX runs_paused ON runs (tid, rid) WHERE place = 4;
    CREATE INDEX runs_waiting ON runs (rid) WHERE place <> 0;
    DROP INDEX specs_of_agent;
    DROP INDEX specs_of_session;
    DROP TABLE marks;
    DROP TYPE run_row, spec_row, attempt_row, event_row;
    DELETE FROM schema_migrations WHERE version > 1;";

async fn an_older_schema_is_brought_up_to_date_with_what_is_in_it() {
    let schema = Schema::new();
    let store = schema.open().await;
    enqueue(&store, 3).await;
    let held = store.claim(claim_request(1, 1)).await.unwrap().remove(0);
    let begun = rules::start(&held, held.token().unwrap(), Moment { now: NOW, stamp: 3 }).unwrap();
    store.commit(vec![begun.clone().into()]).await.unwrap().remove(0).unwrap();
    store.close().await.unwrap();
    schema.sql().await.batch_execute(BEFORE_SPEED).await.unwrap();
    let store = schema.open().await;
    assert!(store.check(false).await.unwrap().is_empty());
    assert_eq!(store.attempts(&held.run_id).await.unwrap().len(), 1);
    let outcome =
        rules::Outcome::Completed(tenure::model::RunResult::Inline(tenure::model::Payload::text("x")));
    let moment = Moment { now: NOW, stamp: 4 };
    let end = rules::finish(&begun.run, held.token().unwrap(), outcome, 0, moment).unwrap();
    store.commit(vec![end.into()]).await.unwrap().remove(0).unwrap();
    let attempts = store.attempts(&held.run_id).await.unwrap();
    assert_eq!(attempts.iter().map(|attempt| attempt.finished_at).collect::<Vec<_>>(), [Some(NOW)]);
    for filter in [
        RunFilter { created_after: Some(NOW), ..RunFilter::default() },
        RunFilter { session_id: Some(held.spec.session_id.clone()), ..RunFilter::default() },
        RunFilter { agent_id: Some(held.spec.agent_id.clone()), ..RunFilter::default() },
    ] {
        assert_eq!(store.runs(filter.clone(), PageRequest::default()).await.unwrap().items.len(), 3);
        assert_eq!(store.count(filter, 10).await.unwrap().count, 3);
    }
}

async fn a_newer_schema_is_refused_with_both_versions() {
    let schema = Schema::new();
    schema.open().await.close().await.unwrap();
    let sql = schema.sql().await;
    sql.batch_execute("INSERT INTO schema_migrations VALUES (999, '0999_later', 'x')").await.unwrap();
    let (kind, message) = refusal(PostgresStore::connect(schema.0.clone()).await);
    sql.batch_execute("DELETE FROM schema_migrations WHERE version = 999").await.unwrap();
    assert_eq!(kind, RefusedKind::NewerSchema);
    assert!(message.contains("schema version 999") && message.contains("up to 4"), "{message}");
}

async fn an_edited_migration_is_refused_by_name() {
    let schema = Schema::new();
    schema.open().await.close().await.unwrap();
    let sql = schema.sql().await;
    let kept = sql.query_one("SELECT checksum FROM schema_migrations WHERE version = 1", &[]).await.unwrap();
    sql.batch_execute("UPDATE schema_migrations SET checksum = 'x' WHERE version = 1").await.unwrap();
    let (kind, message) = refusal(PostgresStore::connect(schema.0.clone()).await);
    let put_back = "UPDATE schema_migrations SET checksum = $1 WHERE version = 1";
    sql.execute(put_back, &[&kept.get::<_, String>(0)]).await.unwrap();
    assert_eq!(kind, RefusedKind::Corrupt);
    assert!(message.contains("0001_first"), "{message}");
}

async fn a_password_is_shown_nowhere() {
    let odd =
        ["postgres://u:hunter2@127.0.0.1:1/d", "postgres://u:hun?ter2@127.0.0.1/d", "postgres://:hunter2"];
    for url in odd {
        let told = match PostgresOptions::parse(url) {
            Ok(options) => {
                let failed = PostgresStore::connect(options.clone()).await.expect_err("nobody listens there");
                format!("{options:?} {failed} {failed:?}")
            }
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!told.contains("hunter2") && !told.contains("ter2"), "{told}");
    }
}

async fn an_address_that_makes_no_sense_says_what_was_expected() {
    let told = |url: &str| refusal(PostgresOptions::parse(url)).1;
    assert!(told("nonsense").contains("expected postgres://"));
    assert!(
        told("postgres://h/d?sslmode=maybe").contains("sslmode=\"maybe\" is not known; expected disable")
    );
    assert!(told("postgres://h/d?sslrootcert=ca.pem").contains("add sslmode=verify-full"));
    assert!(told("postgres://h/d?sslmode=require&sslkey=k").contains("sslkey"));
    let named = PostgresOptions::parse("postgres://h/d?schema=a%20b&connect_timeout=3").unwrap();
    assert_eq!(named.schema, "a b");
    for schema in ["", "pg_x", "a\0", &"x".repeat(64)] {
        let mut options = PostgresOptions::parse("postgres://127.0.0.1:1/d").unwrap();
        options.schema = schema.to_owned();
        let (kind, message) = refusal(PostgresStore::connect(options).await);
        assert_eq!(kind, RefusedKind::Invalid, "{message}");
    }
}

async fn a_server_that_is_not_there_is_a_passing_error() {
    let options = PostgresOptions::parse("postgres://127.0.0.1:1/d").unwrap();
    let error = PostgresStore::connect(options).await.expect_err("nobody listens there");
    assert!(error.is_transient(), "{error}");
    let schema = Schema::new();
    let missing = PostgresOptions::parse(&schema.url().replace("/postgres", "/missing")).unwrap();
    let (_, message) = refusal(PostgresStore::connect(missing).await);
    assert!(message.contains("missing"), "{message}");
}

async fn tls_is_spoken_as_far_as_the_address_asks_for_it() {
    let certificates = Certificates::new();
    certificates.put("hba.conf", "hostssl all all 127.0.0.1/32 trust\n");
    let [authority, other, cert, key, hba] =
        ["authority.pem", "other.pem", "server.pem", "server.key", "hba.conf"]
            .map(|name| certificates.path(name));
    let settings = [
        "ssl=on".to_owned(),
        format!("ssl_cert_file={cert}"),
        format!("ssl_key_file={key}"),
        format!("hba_file={hba}"),
    ];
    let url = servers::start_postgres(&settings.each_ref().map(String::as_str)).unwrap();
    let open = async |host: &str, options: String| {
        let url = format!("{}?{options}", url.replace("127.0.0.1", host));
        PostgresStore::connect(PostgresOptions::parse(&url)?).await
    };
    for (host, options) in [
        ("127.0.0.1", "sslmode=require".to_owned()),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={authority}")),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={authority}")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={authority}")),
    ] {
        let store = open(host, options).await.expect("this server lets nobody in without TLS");
        assert!(store.counts(None).await.unwrap().is_empty());
        store.close().await.unwrap();
    }
    let unknown = "name the certificate of its authority: sslrootcert=FILE";
    for (host, options, says) in [
        ("127.0.0.1", format!("sslmode=require&sslrootcert={other}"), unknown),
        ("localhost", "sslmode=verify-full".to_owned(), "sslrootcert=FILE"),
        ("localhost", format!("sslmode=verify-full&sslrootcert={other}"), unknown),
        (
            "127.0.0.1",
            format!("sslmode=verify-full&sslrootcert={authority}"),
            "name the host that its certificate is for",
        ),
        (
            "localhost",
            "sslmode=verify-ca&sslrootcert=/nowhere.pem".to_owned(),
            "sslrootcert=\"/nowhere.pem\" cannot be read",
        ),
        ("127.0.0.1", "sslmode=disable".to_owned(), "add sslmode=verify-full"),
    ] {
        let (kind, message) = refusal(open(host, options).await);
        assert!(kind == RefusedKind::Invalid && message.contains(says), "{says}: {message}");
    }
    let plain = format!("{}?sslmode=require", servers::postgres().as_ref().unwrap());
    let (_, message) = refusal(PostgresStore::connect(PostgresOptions::parse(&plain).unwrap()).await);
    assert!(message.contains("the sslmode asks for TLS, and the server does not offer it"), "{message}");
}

async fn own_l06_the_clock_is_the_servers() {
    let schema = Schema::new();
    let store = schema.open().await;
    assert!(store.capabilities().server_clock);
    let sql = schema.sql().await;
    let clock = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let server = async || Timestamp::from_ms(sql.query_one(clock, &[]).await.unwrap().get(0));
    enqueue(&store, 1).await;
    let before = server().await;
    let run = store.claim(claim_request(1, 1)).await.unwrap().remove(0);
    let (now, agenda) = (store.now().await.unwrap(), store.agenda().await.unwrap());
    let after = server().await;
    for time in [run.claimed_at.unwrap(), now, agenda.now] {
        assert!(before <= time && time <= after, "{before} {time} {after}");
    }
    assert_eq!(run.lease.unwrap().expires_at, run.claimed_at.unwrap().plus(Duration::from_secs(30)));
}

/// Ends every session of the schema but one's own, as an administrator does.
async fn end_sessions(sql: &tokio_postgres::Client, schema: &str) {
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND query <> '' AND pid IN (SELECT pid FROM pg_locks l
        JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1)";
    sql.query_one(end, &[&schema]).await.unwrap();
}

/// Who waits for a lock of this session is known to be a session of the store.
async fn until_it_waits(sql: &tokio_postgres::Client, schema: &str) {
    let waiting = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND NOT l.granted";
    while sql.query_one(waiting, &[&schema]).await.unwrap().get::<_, i64>(0) == 0 {}
}

async fn a_lost_session_is_made_anew_and_watchers_are_told_of_everything() {
    let schema = Schema::new();
    let store = schema.open().await;
    enqueue(&store, 1).await;
    let sql = schema.sql().await;
    sql.batch_execute("BEGIN; LOCK TABLE meta").await.unwrap();
    let mut watcher = store.watch();
    let ends = async {
        until_it_waits(&sql, &schema.1.0).await;
        end_sessions(&sql, &schema.1.0).await;
        sql.batch_execute("COMMIT").await.unwrap();
    };
    let lost = async { store.commit(vec![queued("lost").into()]).await };
    let (lost, ()) = tokio::join!(lost, ends);
    let error = lost.expect_err("its session was ended before it committed");
    assert!(matches!(error, StoreError::Refused { kind: RefusedKind::Unavailable, .. }), "{error}");
    assert_eq!(store.counts(None).await.unwrap(), [(RunStatus::Queued, 1)], "it did not happen");
    loop {
        let hint =
            tokio::time::timeout(Duration::from_secs(20), watcher.recv()).await.expect("a hint").unwrap();
        if hint.ready && hint.agenda && hint.agents {
            break;
        }
    }
    enqueue(&store, 1).await;
    assert_eq!(store.counts(None).await.unwrap(), [(RunStatus::Queued, 2)]);
}

async fn field_g11_only_past_the_patience_is_a_lock_an_error_and_a_passing_one() {
    let mut schema = Schema::new();
    schema.open().await.close().await.unwrap();
    schema.0.patience = Duration::from_secs(1);
    let store = schema.open().await;
    let sql = schema.sql().await;
    sql.batch_execute("BEGIN; SELECT 1 FROM meta FOR UPDATE").await.unwrap();
    let error = store.commit(vec![queued("waits").into()]).await.expect_err("past its patience");
    assert!(error.is_transient() && matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(store.counts(None).await.unwrap().is_empty(), "reads wait for nobody");
    sql.batch_execute("COMMIT").await.unwrap();
    enqueue(&store, 1).await;
}

async fn own_l09_an_instance_that_is_stopped_within_a_transaction_is_cut_off() {
    let schema = Schema::new();
    let store = schema.open().await;
    // What an instance does that was stopped after its first round trip: it holds the lock and is idle.
    let stopped = schema.sql().await;
    let begun = "SET idle_in_transaction_session_timeout = 200; BEGIN; SELECT 1 FROM meta FOR UPDATE";
    stopped.batch_execute(begun).await.unwrap();
    enqueue(&store, 1).await;
    let late = stopped.batch_execute("UPDATE meta SET next_cursor = 1; COMMIT").await;
    assert!(late.is_err(), "what it wakes up to has gone on without it");
    assert_eq!(schema.0.most_idle, Duration::from_secs(5), "as long as that by default");
}

async fn own_f02_a_record_that_cannot_be_read_is_named_and_the_others_are_served() {
    let schema = Schema::new();
    let store = schema.open().await;
    let ids = enqueue(&store, 3).await;
    let sql = schema.sql().await;
    sql.execute("UPDATE specs SET spec = '{' WHERE run_id = $1", &[&ids[1].as_str()]).await.unwrap();
    let page = store.runs(RunFilter::default(), PageRequest::default()).await.unwrap();
    assert_eq!(page.items.len(), 2);
    assert_eq!(page.corrupt.len(), 1);
    assert_eq!(page.corrupt[0].0, ids[1].as_str());
    assert_eq!(refusal(store.run(&ids[1]).await).0, RefusedKind::Corrupt);
    assert_eq!(store.events(Subject::All, 0, 10).await.unwrap().len(), 3, "what happened is told");
}

async fn field_x01_a_ready_run_that_cannot_be_read_stops_no_claim() {
    let schema = Schema::new();
    let store = schema.open().await;
    let ids = enqueue(&store, 3).await;
    let sql = schema.sql().await;
    sql.execute("UPDATE specs SET spec = 'null' WHERE run_id = $1", &[&ids[0].as_str()]).await.unwrap();
    let granted = store.claim(claim_request(1, 10)).await.unwrap();
    assert_eq!(granted.len(), 2);
    let found = store.check(false).await.unwrap();
    assert!(found.iter().any(|line| line.contains(ids[0].as_str())), "{found:?}");
    let spec = serde_json::to_string(&*granted[0].spec).unwrap();
    sql.execute("UPDATE specs SET spec = $2 WHERE run_id = $1", &[&ids[0].as_str(), &spec]).await.unwrap();
    store.check(true).await.unwrap();
    assert_eq!(store.claim(claim_request(1, 10)).await.unwrap().len(), 1, "it can be read again");
    assert!(store.check(false).await.unwrap().is_empty());
}

async fn no_reader_sees_a_cursor_appear_behind_one_it_has_seen() {
    const COUNT: usize = 40;
    let schema = Schema::new();
    let (one, other, reader) = (schema.open().await, schema.open().await, schema.open().await);
    let writes = async |store: &PostgresStore| {
        for _ in 0..COUNT {
            enqueue(store, 3).await;
        }
    };
    let reads = async {
        let (mut seen, mut after): (Vec<u64>, u64) = (Vec::new(), 0);
        while seen.len() < 2 * 3 * COUNT {
            let page = reader.events(Subject::All, after, 7).await.unwrap();
            after = page.last().map_or(after, |event| event.cursor);
            seen.extend(page.iter().map(|event| event.cursor));
        }
        seen
    };
    let ((), (), seen) = tokio::join!(writes(&one), writes(&other), reads);
    assert!(seen.is_sorted_by(|before, after| before < after));
    let all = reader.events(Subject::All, 0, usize::MAX).await.unwrap();
    assert_eq!(seen, all.iter().map(|event| event.cursor).collect::<Vec<_>>(), "none came behind");
}

async fn field_c02_a_cancel_by_another_instance_is_heard_with_its_name() {
    let schema = Schema::new();
    let (one, other) = (schema.open().await, schema.open().await);
    enqueue(&one, 1).await;
    let held = one.claim(claim_request(1, 1)).await.unwrap().remove(0);
    let mut watcher = one.watch();
    let ask = rules::CancelRequest {
        mode: tenure::model::CancelMode::Cooperative,
        reason: "enough".into(),
        requested_by: "a person".into(),
        force_after: None,
    };
    let moment = Moment { now: other.now().await.unwrap(), stamp: 9 };
    let rules::Cancel::Write(write) = rules::cancel(&held, &ask, moment) else { panic!("it is held") };
    other.commit(vec![write.into()]).await.unwrap().remove(0).unwrap();
    let heard = async { while watcher.recv().await.unwrap().cancels != [held.run_id.clone()] {} };
    tokio::time::timeout(Duration::from_secs(20), heard).await.expect("such a hint within 20 s");
}

async fn works(store: &dyn Store) {
    let moment =
        async || Moment { now: store.now().await.unwrap(), stamp: InstanceId::generate().bits() as u64 };
    enqueue(store, 50).await;
    let held = store.claim(claim_request(1, 20)).await.unwrap();
    let leases = held.iter().map(|run| (run.run_id.clone(), run.token().unwrap())).collect();
    let lease = Duration::from_secs(60);
    store.renew(RenewRequest { instance: InstanceId::from_bits(1), leases, lease }).await.unwrap();
    let mut begun: Vec<Run> = Vec::new();
    for run in &held {
        let write = rules::start(run, run.token().unwrap(), moment().await).unwrap();
        begun.push(write.run.clone());
        store.commit(vec![write.into()]).await.unwrap().remove(0).unwrap();
    }
    for run in &begun {
        let outcome =
            rules::Outcome::Completed(tenure::model::RunResult::Inline(tenure::model::Payload::text("x")));
        let write = rules::finish(run, run.token().unwrap(), outcome, 0, moment().await).unwrap();
        store.commit(vec![write.into()]).await.unwrap().remove(0).unwrap();
        store.run(&run.run_id).await.unwrap().unwrap();
        store.events(Subject::Run(run.run_id.clone()), 0, 10).await.unwrap();
    }
    store.agenda().await.unwrap();
    store.due_runs(None, 10).await.unwrap();
    store.due_schedules(10).await.unwrap();
    store.counts(None).await.unwrap();
    let filter = RunFilter { statuses: vec![RunStatus::Completed], ..RunFilter::default() };
    assert_eq!(store.runs(filter, PageRequest::default()).await.unwrap().items.len(), 20);
    let any = RunFilter::default;
    for filter in [
        any(),
        RunFilter { task_id: Some(held[0].spec.task_id.clone()), ..any() },
        RunFilter { agent_id: Some(held[0].spec.agent_id.clone()), ..any() },
        RunFilter { session_id: Some(held[0].spec.session_id.clone()), ..any() },
        RunFilter { statuses: vec![RunStatus::Completed, RunStatus::Queued, RunStatus::Running], ..any() },
        RunFilter { trigger: Some(tenure::model::Trigger::Manual), ..any() },
        RunFilter { created_after: Some(Timestamp::from_ms(0)), ..any() },
        RunFilter { text: Some("it".to_owned()), ..any() },
        RunFilter { owned: Some(false), ..any() },
    ] {
        assert_eq!(store.runs(filter.clone(), PageRequest::default()).await.unwrap().items.len(), 50);
        assert_eq!(store.count(filter, 100).await.unwrap().count, 50);
    }
    let before = store.now().await.unwrap().plus(lease);
    assert_eq!(store.prune(PruneRequest { before, keep: 0, limit: 5 }).await.unwrap().runs, 5);
}

/// A store whose statements the server counts.
struct Counted {
    schema: Schema,
    options: PostgresOptions,
    sql: tokio_postgres::Client,
}

impl Counted {
    async fn new() -> Self {
        let schema = Schema::new();
        let mark = if schema.url().contains('?') { '&' } else { '?' };
        let named = format!("{}{mark}application_name={}", schema.url(), schema.1.0);
        let (options, sql) = (options(&named, &schema.1.0), schema.sql().await);
        let counted = Self { schema, options, sql };
        // Making the schema, or emptying it, does read the tables.
        counted.close(counted.open().await).await;
        counted.analyze().await;
        counted
    }

    async fn open(&self) -> PostgresStore {
        PostgresStore::connect(self.options.clone()).await.expect("a store")
    }

    /// As the server does now and then.
    async fn analyze(&self) {
        self.sql.batch_execute("ANALYZE runs, specs, events, attempts, results, lane_runs").await.unwrap();
    }

    /// A session hands in what it counted before it is gone.
    async fn close(&self, store: PostgresStore) {
        store.close().await.unwrap();
        drop(store);
        let sessions = "SELECT count(*) FROM pg_stat_activity
            WHERE pid <> pg_backend_pid() AND (application_name = $1 OR query LIKE '%' || $1 || '%')";
        while self.number(sessions).await > 0 {}
    }

    async fn number(&self, sql: &str) -> i64 {
        self.sql.query_one(sql, &[&self.schema.1.0]).await.unwrap().get(0)
    }
}

async fn field_g01_no_statement_reads_a_table_from_end_to_end() {
    // Statistics from before there was anything lead to no other plans.
    let counted = Counted::new().await;
    let scans = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_user_tables
        WHERE schemaname = $1 AND relname IN ('runs', 'specs', 'events', 'attempts', 'results', 'lane_runs')";
    let before = counted.number(scans).await;
    let store = counted.open().await;
    works(&store).await;
    counted.close(store).await;
    assert_eq!(counted.number(scans).await, before);
}

async fn field_g01_no_claim_reads_an_index_from_end_to_end() {
    const RUNS: usize = 3000;
    const CLAIMS: usize = 20;
    let counted = Counted::new().await;
    let store = counted.open().await;
    enqueue(&store, RUNS).await;
    counted.close(store).await;
    counted.analyze().await;
    let entries = "SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes
        WHERE schemaname = $1 AND relname IN ('runs', 'specs')";
    let before = counted.number(entries).await;
    let store = counted.open().await;
    for _ in 0..CLAIMS {
        let claimed = store.claim(claim_request(1, 5)).await.unwrap();
        assert_eq!(claimed.len(), 5);
    }
    counted.close(store).await;
    let read = counted.number(entries).await - before;
    let all_each_time = i64::try_from(RUNS * CLAIMS).unwrap();
    assert!(read < all_each_time / 10, "{CLAIMS} claims of 5 read {read} entries, {RUNS} runs are there");
}

/// How many runs the planner thinks there are.
const BELIEVED: &str =
    "SELECT reltuples::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = 'runs'";

async fn field_g01_the_planner_is_told_of_a_table_that_has_grown() {
    let counted = Counted::new().await;
    assert!(counted.number(BELIEVED).await < 100);
    let store = counted.open().await;
    enqueue(&store, 500).await;
    while counted.number(BELIEVED).await < 500 {}
    counted.close(store).await;
}

async fn field_g01_the_planner_is_told_again_of_a_table_that_was_emptied() {
    let counted = Counted::new().await;
    let store = counted.open().await;
    enqueue(&store, 500).await;
    while counted.number(BELIEVED).await < 500 {}
    let page = PageRequest { limit: 500, cursor: None };
    let runs = store.runs(RunFilter::default(), page).await.unwrap().items;
    let cancels = runs.iter().map(|run| {
        let asked = rules::CancelRequest {
            mode: tenure::model::CancelMode::Force,
            reason: "enough".into(),
            requested_by: "a person".into(),
            force_after: None,
        };
        match rules::cancel(run, &asked, Moment { now: NOW, stamp: 7 }) {
            rules::Cancel::Write(write) => write.into(),
            other => panic!("nothing to cancel: {other:?}"),
        }
    });
    let answers = store.commit(cancels.collect()).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let all = PruneRequest { before: Timestamp::from_ms(i64::MAX), keep: 0, limit: 1000 };
    assert_eq!(store.prune(all).await.unwrap().runs, 500);
    counted.analyze().await;
    assert_eq!(counted.number(BELIEVED).await, 0, "the server has seen that nothing is there");
    // So has the store, which looks when something has changed.
    let clock = "SELECT clock_timestamp()::text";
    let since: String = counted.sql.query_one(clock, &[]).await.unwrap().get(0);
    let looks = format!(
        "SELECT count(*) FROM pg_stat_activity
         WHERE application_name = $1 AND query LIKE '%reltuples%' AND query_start > '{since}'"
    );
    store.put_agent(&tenure::model::AgentId::new("a").unwrap(), Some("one".into())).await.unwrap();
    while counted.number(&looks).await == 0 {}
    // Fewer than it has told of before.
    enqueue(&store, 200).await;
    while counted.number(BELIEVED).await < 64 {}
    counted.close(store).await;
}

async fn a_call_that_the_server_cannot_take_fails_alone() {
    let schema = Schema::new();
    let store = Arc::new(schema.open().await);
    // An index of the server takes no key as long as this.
    let mut wanted = Wanted::now(RunId::generate(), NOW);
    let noise: String = (0..200_u32).map(|n| format!("{:x}", n.wrapping_mul(2_654_435_761))).collect();
    wanted.idempotency = Some(tenure::model::Idempotency { key: noise.repeat(8).as_str().into(), digest: 1 });
    let odd = rules::enqueue(&task("odd"), wanted, Moment { now: NOW, stamp: 3 });
    let calls = (0..10).map(|n| {
        let write = if n == 4 { odd.clone() } else { queued("fine") };
        let store = Arc::clone(&store);
        async move { store.commit(vec![write.into()]).await }
    });
    let answers = join_all(calls).await;
    let failed = answers.iter().filter(|answer| answer.is_err()).count();
    assert!(failed <= 1, "{answers:?}");
    assert_eq!(store.counts(None).await.unwrap(), [(RunStatus::Queued, 10 - failed as u64)]);
    assert!(store.check(false).await.unwrap().is_empty());
}

/// The rows of a large batch go out in parts. What is wrong with the first is found out while a later one is prepared.
async fn a_call_that_the_server_cannot_take_fails_alone_though_others_went_out_behind_it() {
    let schema = Schema::new();
    let store = Arc::new(schema.open().await);
    let cancelled = enqueue(&*store, 150).await;
    let odd = queued("odd");
    let sql = schema.sql().await;
    let check = format!("ALTER TABLE specs ADD CHECK (run_id <> '{}')", odd.run.run_id);
    sql.batch_execute(&check).await.unwrap();
    let mut writes = vec![odd];
    writes.extend((0..100).map(|_| queued("fine")));
    // The first update over this connection.
    for run_id in &cancelled {
        let run = store.run(run_id).await.unwrap().unwrap();
        let asked = rules::CancelRequest {
            mode: tenure::model::CancelMode::Cooperative,
            reason: "enough".into(),
            requested_by: "a person".into(),
            force_after: None,
        };
        let moment = Moment { now: NOW, stamp: InstanceId::generate().bits() as u64 };
        let rules::Cancel::Write(write) = rules::cancel(&run, &asked, moment) else { panic!("it waits") };
        writes.push(write);
    }
    // While one waits for its turn, the others gather behind it.
    sql.batch_execute("BEGIN; LOCK TABLE meta").await.unwrap();
    let behind = async {
        until_it_waits(&sql, &schema.1.0).await;
        let calls = writes.into_iter().map(|write| store.commit(vec![write.into()]));
        let (answers, released) = tokio::join!(join_all(calls), sql.batch_execute("COMMIT"));
        released.map(|()| answers).unwrap()
    };
    let (first, answers) = tokio::join!(store.commit(vec![queued("before").into()]), behind);
    first.unwrap()[0].as_ref().unwrap();
    let failed: Vec<usize> = (0..answers.len()).filter(|n| answers[*n].is_err()).collect();
    assert_eq!(failed, [0], "{:?}", failed.first().map(|n| &answers[*n]));
    let counts = [(RunStatus::Queued, 101), (RunStatus::Cancelled, 150)];
    assert_eq!(store.counts(None).await.unwrap(), counts);
    assert!(store.check(false).await.unwrap().is_empty());
}
