//! Connects, finds out whether the server can keep a store, and makes the collections.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{Acknowledgment, ClientOptions, ReadConcern, WriteConcern};

use super::doc::Fields as _;
use super::fault::{Fault, Step};
use super::link::{ALL, Db, META_ID, name};
use super::options::MongoOptions;
use crate::store::{RefusedKind, StoreError};

/// The number of the schema that this program writes.
const SCHEMA: i64 = 1;
/// MongoDB 4.4: the oldest that makes collections beside transactions as we need it.
const OLDEST_WIRE: i64 = 9;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// The most connections of a store.
const MOST_CONNECTIONS: u32 = 16;

/// Opens the database.
pub(super) async fn open(options: MongoOptions) -> Result<Db, StoreError> {
    let place = options.place();
    let refused = |fault: Fault| fault.refused(&place);
    let begun = client(&options).await.and_then(|client| Db::new(client, options));
    let db = begun.map_err(|_| {
        StoreError::refused(
            RefusedKind::Invalid,
            format!("\"{place}\": its address cannot be read; look at what comes after its \"?\""),
        )
    })?;
    let hello = look(&db).await.map_err(refused)?;
    fits(&hello, &place)?;
    check_schema(&db).await?;
    make(&db).await.map_err(refused)?;
    Ok(db)
}

async fn client(options: &MongoOptions) -> mongodb::error::Result<ClientOptions> {
    let mut given = ClientOptions::parse(options.url()).await?;
    given.app_name = Some("tenure".to_owned());
    given.read_concern = Some(ReadConcern::majority());
    given.write_concern = Some(WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build());
    given.server_selection_timeout.get_or_insert(CONNECT.min(options.patience));
    given.connect_timeout.get_or_insert(CONNECT.min(options.patience));
    given.max_pool_size.get_or_insert(MOST_CONNECTIONS);
    // What is read has to be what was written last.
    given.selection_criteria = None;
    Ok(given)
}

async fn look(db: &Db) -> Step<Document> {
    Ok(db.line().db.run_command(doc! { "hello": 1 }).await?)
}

/// Whether the server knows transactions: it is a member of a replica set, or before a cluster.
fn fits(hello: &Document, place: &str) -> Result<(), StoreError> {
    let invalid = |message: String| Err(StoreError::refused(RefusedKind::Invalid, message));
    if hello.maybe_number("maxWireVersion").ok().flatten().unwrap_or(0) < OLDEST_WIRE {
        return invalid(format!(
            "\"{place}\": the server is too old, expected version 4.4 or newer; update it"
        ));
    }
    let cluster = hello.maybe_word("msg").ok().flatten() == Some("isdbgrid");
    if hello.get("setName").is_none() && !cluster {
        return invalid(format!(
            "\"{place}\": the server is no member of a replica set, and has no transactions; start it with \
             --replSet NAME and call rs.initiate() once, also if it is alone"
        ));
    }
    Ok(())
}

/// A database of a newer version is left alone.
async fn check_schema(db: &Db) -> Result<(), StoreError> {
    let refused = |fault: Fault| fault.refused(&db.place);
    let meta = db.of(name::META).find_one(doc! { "_id": META_ID }).await;
    let Some(meta) = meta.map_err(|error| refused(error.into()))? else { return Ok(()) };
    let found = meta.number("schema").map_err(refused)?;
    if found > SCHEMA {
        return Err(StoreError::refused(
            RefusedKind::NewerSchema,
            format!(
                "\"{}\" has schema version {found}, this program knows versions up to {SCHEMA}; \
                 use a newer version of the program",
                db.place
            ),
        ));
    }
    Ok(())
}

/// Of a collection: its name and its fields, and whether it is unique, and whether it has only who has the fields.
type Index = (&'static str, &'static str, &'static [(&'static str, i32)], bool, bool);

const INDEXES: &[Index] = &[
    (name::RUNS, "number", &[("n", -1)], true, false),
    (name::RUNS, "of_task", &[("t", 1), ("n", -1)], false, false),
    (name::RUNS, "of_agent", &[("a", 1), ("n", -1)], false, false),
    (name::RUNS, "status", &[("s", 1), ("n", -1)], false, false),
    (name::RUNS, "waits", &[("w.q", 1), ("w.a", 1), ("w.p", 1), ("w.d", 1), ("w.n", 1)], false, true),
    (name::RUNS, "wakes", &[("k.at", 1), ("k.id", 1)], false, true),
    (name::RUNS, "ended", &[("e.at", 1), ("e.n", 1)], false, true),
    (name::RUNS, "in_lane", &[("l.in", 1), ("l.n", 1)], false, true),
    (name::RUNS, "scheduled", &[("o.in", 1), ("o.n", 1)], false, true),
    (name::RUNS, "key", &[("key", 1)], true, true),
    (name::RUNS, "grant", &[("g", 1)], false, true),
    (name::TASKS, "fires", &[("fire.at", 1), ("fire.id", 1)], false, true),
    (name::EVENTS, "of", &[("of", 1), ("q", 1)], false, false),
    (name::EVENTS, "of_tasks", &[("ta", 1)], false, true),
    (name::ATTEMPTS, "of", &[("of", 1), ("no", 1)], true, false),
    (name::OCCURRENCES, "of_task", &[("t", 1), ("due", -1)], false, false),
    (name::OCCURRENCES, "recorded", &[("at", 1)], false, false),
];

/// Makes what is not there. Several may do so at once: each finds the same in the end.
async fn make(db: &Db) -> Step<()> {
    for name in [
        name::RUNS,
        name::TASKS,
        name::LANES,
        name::EVENTS,
        name::ATTEMPTS,
        name::OCCURRENCES,
        name::COUNTERS,
        name::AGENTS,
    ] {
        let indexes: Vec<Bson> = INDEXES
            .iter()
            .filter(|index| index.0 == name)
            .map(|index| Bson::Document(of_index(index)))
            .collect();
        if indexes.is_empty() {
            create(db, name).await?;
        } else {
            // Makes the collection as well.
            db.line().db.run_command(doc! { "createIndexes": name, "indexes": indexes }).await?;
        }
    }
    let first = doc! { "schema": SCHEMA, "turn": 0_i64, "run": 0_i64, "cursor": 0_i64, "lane": 0_i64 };
    let update = doc! { "$setOnInsert": first };
    match db
        .of(name::META)
        .update_one(doc! { "_id": META_ID }, update)
        .upsert(true)
        .await
        .map_err(Fault::from)
    {
        // Another instance was first.
        Err(fault) if fault.is_duplicate() => {}
        outcome => drop(outcome?),
    }
    let none = doc! { "$setOnInsert": { "c": {} } };
    match db.of(name::COUNTERS).update_one(doc! { "_id": ALL }, none).upsert(true).await.map_err(Fault::from)
    {
        Err(fault) if fault.is_duplicate() => Ok(()),
        outcome => outcome.map(drop),
    }
}

async fn create(db: &Db, name: &str) -> Step<()> {
    match db.line().db.create_collection(name).await.map_err(Fault::from) {
        Err(fault) if fault.is_there_already() => Ok(()),
        outcome => outcome,
    }
}

fn of_index((_, name, fields, unique, sparse): &(&str, &str, &[(&str, i32)], bool, bool)) -> Document {
    let mut keys = Document::new();
    keys.extend(fields.iter().map(|(field, order)| ((*field).to_owned(), Bson::Int32(*order))));
    let mut index = doc! { "key": keys, "name": *name };
    if *unique {
        index.insert("unique", true);
    }
    if *sparse {
        index.insert("sparse", true);
    }
    index
}
