//! A server that serves.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::bson::{Bson, Document, doc};
use serde_json::json;
use tenure::model::{AgentId, InstanceId, Run, RunId, RunStatus, Subject, Task, Timestamp};
use tenure::rules::{self, Moment, Wanted};
use tenure::store::conformance::{claim_request, spec};
use tenure::store::{
    ClaimRequest, MongoOptions, MongoStore, PageRequest, PruneRequest, RefusedKind, RenewRequest, RunFilter,
    RunWrite, Store, StoreError,
};

use super::mongo::Lent;
use super::runs;

super::list! {
    an_empty_database_may_be_opened_by_many_at_once,
    own_l06_the_clock_is_the_servers,
    field_g11_only_past_the_patience_is_another_writer_an_error_and_a_passing_one,
    own_f02_a_record_that_cannot_be_read_is_named_and_the_others_are_served,
    field_x01_a_ready_run_that_cannot_be_read_stops_no_claim,
    no_reader_sees_a_cursor_appear_behind_one_it_has_seen,
    field_c02_a_cancel_by_another_instance_is_heard_with_its_name,
    own_i1_two_claims_at_once_share_what_there_is,
    field_g01_no_query_looks_through_a_collection,
    a_batch_asks_as_often_however_many_lanes_and_agents_are_in_it,
    field_k07_what_is_derived_and_damaged_is_found_and_made_good,
    own_v5_fields_of_another_version_stay_when_a_run_moves,
    a_call_that_the_server_cannot_take_fails_alone,
}

const NOW: Timestamp = Timestamp::from_ms(1_769_850_000_000);

struct Place(MongoOptions, Lent);

impl Place {
    fn new() -> Self {
        let lent = Lent::new();
        Self(lent.options(), lent)
    }

    async fn open(&self) -> MongoStore {
        MongoStore::connect(self.0.clone()).await.expect("a store")
    }

    /// The database, beside the store.
    async fn beside(&self) -> mongodb::Database {
        self.1.beside().await
    }
}

async fn set(db: &mongodb::Database, name: &str, id: &str, fields: Document) {
    let update = doc! { "$set": fields };
    let done = db.collection::<Document>(name).update_one(doc! { "_id": id }, update).await.unwrap();
    assert_eq!(done.matched_count, 1, "{name} {id}");
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

async fn enqueue(store: &dyn Store, n: usize) -> Vec<RunId> {
    let writes: Vec<RunWrite> = (0..n).map(|_| queued("do it")).collect();
    let ids = writes.iter().map(|write| write.run.run_id.clone()).collect();
    for answer in store.commit(writes.into_iter().map(Into::into).collect()).await.expect("an answer") {
        answer.expect("queued");
    }
    ids
}

async fn an_empty_database_may_be_opened_by_many_at_once() {
    let place = Place::new();
    let stores = join_all((0..4).map(|_| place.open())).await;
    for store in &stores {
        enqueue(store, 2).await;
    }
    assert_eq!(stores[0].counts(None).await.unwrap(), [(RunStatus::Queued, 8)]);
    let meta = place.beside().await.collection::<Document>("meta").find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(meta.get_i64("schema").unwrap(), 1);
}

async fn own_l06_the_clock_is_the_servers() {
    let place = Place::new();
    let store = place.open().await;
    assert!(store.capabilities().server_clock);
    let db = place.beside().await;
    let server = async || {
        let hello = db.run_command(doc! { "hello": 1 }).await.unwrap();
        Timestamp::from_ms(hello.get_datetime("localTime").unwrap().timestamp_millis())
    };
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

async fn field_g11_only_past_the_patience_is_another_writer_an_error_and_a_passing_one() {
    let mut place = Place::new();
    place.open().await.close().await.unwrap();
    place.0.patience = Duration::from_millis(300);
    let store = place.open().await;
    let db = place.beside().await;
    // What an instance does that was stopped in the middle of a transaction.
    let mut stopped = db.client().start_session().await.unwrap();
    stopped.start_transaction().await.unwrap();
    let meta = db.collection::<Document>("meta");
    let turn = doc! { "$inc": { "turn": 1_i64 } };
    meta.update_one(doc! { "_id": "meta" }, turn).session(&mut stopped).await.unwrap();
    let error = store.commit(vec![queued("waits").into()]).await.expect_err("past its patience");
    assert!(error.is_transient() && matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(store.counts(None).await.unwrap().is_empty(), "reads wait for nobody");
    stopped.abort_transaction().await.unwrap();
    enqueue(&store, 1).await;
}

async fn own_f02_a_record_that_cannot_be_read_is_named_and_the_others_are_served() {
    let place = Place::new();
    let store = place.open().await;
    let ids = enqueue(&store, 3).await;
    set(&place.beside().await, "runs", ids[1].as_str(), doc! { "spec": "{" }).await;
    let page = store.runs(RunFilter::default(), PageRequest::default()).await.unwrap();
    assert_eq!(page.items.len(), 2);
    assert_eq!(page.corrupt.len(), 1);
    assert_eq!(page.corrupt[0].0, ids[1].as_str());
    assert_eq!(refusal(store.run(&ids[1]).await).0, RefusedKind::Corrupt);
    assert_eq!(store.events(Subject::All, 0, 10).await.unwrap().len(), 3, "what happened is told");
}

async fn field_x01_a_ready_run_that_cannot_be_read_stops_no_claim() {
    let place = Place::new();
    let store = place.open().await;
    let ids = enqueue(&store, 3).await;
    let db = place.beside().await;
    set(&db, "runs", ids[0].as_str(), doc! { "spec": "null" }).await;
    let granted = store.claim(claim_request(1, 10)).await.unwrap();
    assert_eq!(granted.len(), 2);
    let found = store.check(false).await.unwrap();
    assert!(found.iter().any(|line| line.contains(ids[0].as_str())), "{found:?}");
    let spec = serde_json::to_string(&*granted[0].spec).unwrap();
    set(&db, "runs", ids[0].as_str(), doc! { "spec": spec }).await;
    store.check(true).await.unwrap();
    assert_eq!(store.claim(claim_request(1, 10)).await.unwrap().len(), 1, "it can be read again");
    assert_eq!(store.check(false).await.unwrap(), Vec::<String>::new());
}

async fn no_reader_sees_a_cursor_appear_behind_one_it_has_seen() {
    const COUNT: usize = 12;
    let place = Place::new();
    let (one, other, reader) = (place.open().await, place.open().await, place.open().await);
    let writes = async |store: &MongoStore| {
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
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
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

async fn own_i1_two_claims_at_once_share_what_there_is() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    enqueue(&one, 20).await;
    let (first, second) = tokio::join!(one.claim(claim_request(1, 15)), other.claim(claim_request(2, 15)));
    let (first, second) = (first.unwrap(), second.unwrap());
    let mut all: Vec<&RunId> = first.iter().chain(&second).map(|run| &run.run_id).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!((all.len(), first.len() + second.len()), (20, 20));
}

async fn works(store: &dyn Store) {
    let moment =
        async || Moment { now: store.now().await.unwrap(), stamp: InstanceId::generate().bits() as u64 };
    enqueue(store, 20).await;
    let held = store.claim(claim_request(1, 10)).await.unwrap();
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
        store.attempts(&run.run_id).await.unwrap();
        store.events(Subject::Run(run.run_id.clone()), 0, 10).await.unwrap();
        for lane in &run.spec.lanes {
            store.lane(&lane.name).await.unwrap();
        }
    }
    store.agenda().await.unwrap();
    store.due_runs(None, 10).await.unwrap();
    store.due_schedules(10).await.unwrap();
    store.counts(None).await.unwrap();
    let filters = [
        RunFilter { statuses: vec![RunStatus::Completed, RunStatus::Queued], ..RunFilter::default() },
        RunFilter { task_id: Some(begun[0].spec.task_id.clone()), ..RunFilter::default() },
        RunFilter { owned: Some(true), ..RunFilter::default() },
        RunFilter::default(),
    ];
    for filter in filters {
        store.runs(filter, PageRequest::default()).await.unwrap();
    }
    store.occurrences(&begun[0].spec.task_id, PageRequest::default()).await.unwrap();
    let before = store.now().await.unwrap().plus(lease);
    assert_eq!(store.prune(PruneRequest { before, keep: 0, limit: 5 }).await.unwrap().runs, 5);
}

/// The stages of a plan, from the last to the first.
fn stages(plan: &Document) -> Vec<String> {
    let mut stages = vec![plan.get_str("stage").unwrap_or_default().to_owned()];
    if let Ok(input) = plan.get_document("inputStage") {
        stages.extend(self::stages(input));
    }
    for input in plan.get_array("inputStages").into_iter().flatten().filter_map(Bson::as_document) {
        stages.extend(self::stages(input));
    }
    stages
}

/// The collection of an entry of the profile.
fn collection(entry: &Document) -> &str {
    entry.get_str("ns").unwrap().split_once('.').unwrap().1
}

/// Whether it is of one statement of a command that may have had many, as servers tell of what changes and removes.
fn is_a_statement(entry: &Document) -> bool {
    entry.get_document("command").is_ok_and(|command| command.contains_key("q"))
}

/// The queries in an entry of the profile.
fn queries(entry: &Document) -> Vec<(String, Document)> {
    let Ok(command) = entry.get_document("command") else { return Vec::new() };
    let query = |from: &Document, key: &str| {
        (collection(entry).to_owned(), from.get_document(key).cloned().unwrap_or_default())
    };
    if command.contains_key("find") {
        return vec![query(command, "filter")];
    }
    if is_a_statement(entry) {
        return vec![query(command, "q")];
    }
    let statements = ["updates", "deletes"].into_iter().filter_map(|many| command.get_array(many).ok());
    statements.flatten().filter_map(Bson::as_document).map(|statement| query(statement, "q")).collect()
}

/// What the server tells of the commands it was given meanwhile.
async fn recorded(db: &mongodb::Database, work: impl Future<Output = ()>) -> Vec<Document> {
    let profile = db.collection::<Document>("system.profile");
    let before = profile.count_documents(doc! {}).await.unwrap();
    db.run_command(doc! { "profile": 2 }).await.unwrap();
    work.await;
    db.run_command(doc! { "profile": 0 }).await.unwrap();
    let mut entries = profile.find(doc! {}).skip(before).await.unwrap();
    let mut recorded = Vec::new();
    while entries.advance().await.unwrap() {
        recorded.push(entries.deserialize_current().unwrap());
    }
    recorded
}

async fn field_g01_no_query_looks_through_a_collection() {
    let place = Place::new();
    let store = place.open().await;
    let db = place.beside().await;
    let seen: Vec<_> = recorded(&db, works(&store)).await.iter().flat_map(queries).collect();
    // By a name, or by the order of names: the index that every collection has.
    let by_name = |filter: &Document| filter.contains_key("_id");
    let mut planned = 0;
    for (name, filter) in seen {
        if by_name(&filter) || name == "system.profile" {
            continue;
        }
        let find = doc! { "find": name.as_str(), "filter": filter.clone() };
        let explained = db.run_command(doc! { "explain": find, "verbosity": "queryPlanner" }).await.unwrap();
        let plan = explained.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
        let stages = stages(plan);
        assert!(stages.iter().any(|stage| stage == "IXSCAN"), "{name} {filter}: {stages:?}");
        assert!(stages.iter().all(|stage| stage != "COLLSCAN"), "{name} {filter}: {stages:?}");
        planned += 1;
    }
    assert!(planned > 20, "{planned} queries were recorded");
}

/// Tasks with an agent each, and two runs each of which one has to wait; all of them in one call every time.
async fn lanes_at_work(store: &dyn Store, name: &str, lanes: usize) {
    let mut queued = Vec::new();
    let mut agents = Vec::new();
    for n in 0..lanes {
        let own = format!("{name}{n}");
        let fields = json!({ "task_id": own, "agent_id": own, "overlap_policy": "queue_next" });
        let task = Task { spec: spec(fields), ..task("q") };
        agents.push(task.spec.agent_id.clone());
        queued.extend((0..2).map(|_| runs::queued(&task, RunId::generate(), NOW, Duration::ZERO)));
    }
    for answer in store.commit(queued).await.unwrap() {
        answer.unwrap();
    }
    let agents: Arc<[AgentId]> = agents.into();
    for _ in 0..2 {
        let request = ClaimRequest { agents: Arc::clone(&agents), ..claim_request(1, lanes) };
        let held = store.claim(request).await.unwrap();
        assert_eq!(held.len(), lanes, "one run of each lane");
        runs::finish(store, held).await;
    }
}

async fn a_batch_asks_as_often_however_many_lanes_and_agents_are_in_it() {
    let place = Place::new();
    let store = place.open().await;
    let db = place.beside().await;
    let few = recorded(&db, lanes_at_work(&store, "few", 2)).await;
    let many = recorded(&db, lanes_at_work(&store, "many", 50)).await;
    assert!(few.len() > 30, "{few:?}");
    assert_eq!(commands(&many), commands(&few));
}

/// What each command did to which collection; news apart, which come when they come.
fn commands(entries: &[Document]) -> Vec<(&str, &str)> {
    let named = entries.iter().map(|entry| (entry, (entry.get_str("op").unwrap(), collection(entry))));
    let mut commands: Vec<_> = named.filter(|(_, (op, _))| *op != "getmore").collect();
    commands.dedup_by(|next, last| next.1 == last.1 && is_a_statement(next.0) && is_a_statement(last.0));
    commands.into_iter().map(|(_, command)| command).collect()
}

async fn field_k07_what_is_derived_and_damaged_is_found_and_made_good() {
    let place = Place::new();
    let store = place.open().await;
    let fields = json!({ "overlap_policy": "queue_next" });
    let task = Task { spec: spec(fields), ..task("q") };
    for n in 1..=3 {
        let moment = Moment { now: NOW, stamp: n };
        let write = rules::enqueue(&task, Wanted::now(RunId::new(format!("r{n}")).unwrap(), NOW), moment);
        store.commit(vec![write.into()]).await.unwrap().remove(0).unwrap();
    }
    assert_eq!(store.claim(claim_request(1, 3)).await.unwrap().len(), 1);
    assert_eq!(store.check(false).await.unwrap(), Vec::<String>::new());
    let db = place.beside().await;
    let lane = &task_lane(&store).await;
    let damage: [(&str, &str, Document, &str); 4] = [
        ("counters", "*", doc! { "c.0": 7_i64 }, "all tasks"),
        ("lanes", lane, doc! { "held": 0_i64 }, lane),
        ("lanes", lane, doc! { "total": 9_i64 }, lane),
        ("runs", "r2", doc! { "w.d": 0_i64 }, "r2"),
    ];
    for (name, id, fields, named) in damage {
        set(&db, name, id, fields).await;
        let found = store.check(false).await.unwrap();
        assert!(found.iter().any(|line| line.contains(named)), "{name}: {found:?}");
        assert_eq!(store.check(true).await.unwrap(), found);
        assert_eq!(store.check(false).await.unwrap(), Vec::<String>::new(), "{name}");
    }
}

async fn task_lane(store: &MongoStore) -> String {
    let run = store.run(&RunId::new("r1").unwrap()).await.unwrap().unwrap();
    run.spec.lanes.first().expect("a lane").name.to_string()
}

async fn own_v5_fields_of_another_version_stay_when_a_run_moves() {
    let place = Place::new();
    let store = place.open().await;
    let ids = enqueue(&store, 1).await;
    let db = place.beside().await;
    set(&db, "runs", ids[0].as_str(), doc! { "later": "version" }).await;
    assert_eq!(store.claim(claim_request(1, 1)).await.unwrap().len(), 1);
    let run = db.collection::<Document>("runs").find_one(doc! { "_id": ids[0].as_str() }).await.unwrap();
    assert_eq!(run.unwrap().get_str("later").unwrap(), "version");
}

async fn a_call_that_the_server_cannot_take_fails_alone() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    // A document of the server has at most 16 MiB.
    let mut odd = queued("odd");
    Arc::make_mut(&mut odd.run.spec).query = "x".repeat(17 << 20).into();
    let calls = (0..10).map(|n| {
        let write = if n == 4 { odd.clone() } else { queued("fine") };
        let store = Arc::clone(&store);
        async move { store.commit(vec![write.into()]).await }
    });
    let answers = join_all(calls).await;
    let failed: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(matches!(failed[0], StoreError::Refused { .. }), "{failed:?}");
    assert_eq!(store.counts(None).await.unwrap(), [(RunStatus::Queued, 9)]);
    assert_eq!(store.check(false).await.unwrap(), Vec::<String>::new());
}
