//! The database, and transactions in it: what is asked and what is written.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{ClientOptions, FindOptions, Hint as IndexHint, ReadConcern, ReturnDocument};
use mongodb::{Client, ClientSession, Collection, Database};
use parking_lot::Mutex;

use super::doc::{Fields as _, unreadable};
use super::fault::{Fault, Step};
use super::options::MongoOptions;
use crate::model::Timestamp;
use crate::store::memory::part::Numbers;

/// The collections.
pub(super) mod name {
    pub(in super::super) const META: &str = "meta";
    pub(in super::super) const RUNS: &str = "runs";
    pub(in super::super) const TASKS: &str = "tasks";
    pub(in super::super) const LANES: &str = "lanes";
    pub(in super::super) const EVENTS: &str = "events";
    pub(in super::super) const ATTEMPTS: &str = "attempts";
    pub(in super::super) const OCCURRENCES: &str = "occurrences";
    pub(in super::super) const COUNTERS: &str = "counters";
    pub(in super::super) const AGENTS: &str = "agents";
}

/// The document of numbers that are given out, which whoever writes changes first.
pub(super) const META_ID: &str = "meta";
/// The counter of all tasks; no task has this name.
pub(super) const ALL: &str = "*";

/// The most statements of one command, and about how many bytes they may have.
const MOST_STATEMENTS: usize = 1000;
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// How often a commit is asked for whose answer did not come.
const MOST_COMMITS: usize = 4;

/// A database of a server.
pub(super) struct Db {
    line: Mutex<Line>,
    client: ClientOptions,
    pub(super) options: MongoOptions,
    pub(super) place: String,
}

/// The connections that a database is reached by.
#[derive(Clone)]
pub(super) struct Line {
    /// How many there were before.
    number: u64,
    pub(super) db: Database,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Which documents, besides the filter, and how much of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Ask {
    sort: Option<Document>,
    limit: Option<i64>,
    project: Option<Document>,
    by_id: bool,
}

impl Ask {
    pub(super) fn sort(sort: Document) -> Self {
        Self { sort: Some(sort), ..Self::default() }
    }

    pub(super) fn all() -> Self {
        Self::default()
    }

    /// At most so many; more than there are numbers are all.
    pub(super) fn limit(mut self, limit: usize) -> Self {
        self.limit = i64::try_from(limit).ok();
        self
    }

    pub(super) fn only(mut self, project: Document) -> Self {
        self.project = Some(project);
        self
    }

    /// Goes by the index of the names.
    pub(super) fn by_id(mut self) -> Self {
        self.by_id = true;
        self
    }

    fn options(self) -> FindOptions {
        let mut options = FindOptions::default();
        options.sort = self.sort;
        options.limit = self.limit;
        options.projection = self.project;
        options.hint = self.by_id.then(|| IndexHint::Keys(doc! { "_id": 1 }));
        options
    }
}

impl Db {
    /// Reaches nobody yet.
    pub(super) fn new(client: ClientOptions, options: MongoOptions) -> mongodb::error::Result<Self> {
        let place = options.place();
        let db = Client::with_options(client.clone())?.database(&options.database);
        Ok(Self { line: Mutex::new(Line { number: 0, db }), client, options, place })
    }

    pub(super) fn line(&self) -> Line {
        self.line.lock().clone()
    }

    /// Nothing was heard on this line: from now on there is another one. The driver waits for as long as it takes for
    /// the first word on a new connection, and makes no others meanwhile; on a line that fell silent just then it would
    /// never make one again.
    pub(super) fn is_silent(&self, silent: &Line) -> Fault {
        let mut line = self.line.lock();
        // Else whoever else heard nothing has seen to it.
        if line.number == silent.number
            && let Ok(client) = Client::with_options(self.client.clone())
        {
            tracing::debug!(place = %self.place, "the server is silent, and asked on new connections");
            *line = Line { number: line.number + 1, db: client.database(&self.options.database) };
        }
        Fault::Silent
    }

    pub(super) fn of(&self, name: &str) -> Collection<Document> {
        self.line().db.collection(name)
    }

    /// Documents, by one query.
    pub(super) async fn find(&self, name: &str, filter: Document, ask: Ask) -> Step<Vec<Document>> {
        let mut cursor = self.of(name).find(filter).with_options(ask.options()).await?;
        let mut found = Vec::new();
        while cursor.advance().await? {
            found.push(cursor.deserialize_current()?);
        }
        Ok(found)
    }

    /// The clock to go by.
    pub(super) async fn now(&self) -> Step<Timestamp> {
        if let Some(clock) = &self.options.clock {
            return Ok(clock.now());
        }
        let hello = self.line().db.run_command(doc! { "hello": 1 }).await?;
        match hello.get("localTime") {
            Some(Bson::DateTime(at)) => Ok(Timestamp::from_ms(at.timestamp_millis())),
            _ => Err(unreadable("the server does not say what time it is")),
        }
    }
}

/// How a transaction ended that was not committed for certain.
#[derive(Debug)]
pub(super) enum Failed {
    /// It certainly left nothing behind.
    Before(Fault),
    /// It may have been committed.
    AtCommit(Fault),
}

/// A transaction. All of it goes by one line.
pub(super) struct Tx {
    db: Arc<Db>,
    line: Line,
    session: ClientSession,
}

impl Tx {
    pub(super) async fn begin(db: &Arc<Db>) -> Step<Self> {
        let line = db.line();
        let mut session = line.db.client().start_session().await?;
        // Its writes are those of the client: by the majority.
        session.start_transaction().read_concern(ReadConcern::snapshot()).await?;
        Ok(Self { db: Arc::clone(db), line, session })
    }

    pub(super) fn line(&self) -> Line {
        self.line.clone()
    }

    /// Takes the turn of who writes: whoever else begins to write before this is committed finds that it is in the
    /// way, and begins again. Answers the numbers that were given last, and what time it is.
    pub(super) async fn lock(&mut self) -> Step<(Numbers, Timestamp)> {
        let turn = doc! { "$set": { "now": "$$NOW", "turn": { "$add": ["$turn", 1_i64] } } };
        let collection = self.line.db.collection::<Document>(name::META);
        let meta = collection.find_one_and_update(doc! { "_id": META_ID }, vec![turn]);
        let meta = meta.return_document(ReturnDocument::After).session(&mut self.session).await?;
        let meta = meta.ok_or_else(|| unreadable("the document \"meta\" is missing"))?;
        let now = match (&self.db.options.clock, meta.get("now")) {
            (Some(clock), _) => clock.now(),
            (None, Some(Bson::DateTime(at))) => Timestamp::from_ms(at.timestamp_millis()),
            (None, _) => return Err(unreadable("the server does not say what time it is")),
        };
        let numbers = Numbers {
            run: meta.unsigned("run")?,
            cursor: meta.unsigned("cursor")?,
            lane: meta.unsigned("lane")?,
        };
        Ok((numbers, now))
    }

    /// Documents, as they stand in the transaction.
    pub(super) async fn find(&mut self, name: &str, filter: Document, ask: Ask) -> Step<Vec<Document>> {
        let collection = self.line.db.collection(name);
        let find = collection.find(filter).with_options(ask.options());
        let mut cursor = find.session(&mut self.session).await?;
        let mut found = Vec::new();
        while let Some(document) = cursor.next(&mut self.session).await {
            found.push(document?);
        }
        Ok(found)
    }

    /// Those of these names; many are asked for in parts.
    pub(super) async fn find_in(
        &mut self,
        name: &str,
        field: &str,
        names: impl IntoIterator<Item = String>,
    ) -> Step<Vec<Document>> {
        let names: Vec<String> = names.into_iter().collect();
        let mut found = Vec::new();
        for part in names.chunks(MOST_STATEMENTS) {
            let filter = doc! { field: { "$in": part.to_vec() } };
            found.extend(self.find(name, filter, Ask::all()).await?);
        }
        Ok(found)
    }

    /// Writes statements.
    pub(super) async fn write(&mut self, write: Write) -> Step<()> {
        let Write { word, name, statements, exact } = write;
        let many = match word {
            Word::Insert => ("insert", "documents"),
            Word::Update => ("update", "updates"),
            Word::Delete => ("delete", "deletes"),
        };
        let mut statements = statements.into_iter().peekable();
        while statements.peek().is_some() {
            let (mut part, mut bytes) = (Vec::new(), 0);
            while part.len() < MOST_STATEMENTS
                && let Some(next) = statements.next_if(|next| bytes == 0 || bytes + size(next) <= MOST_BYTES)
            {
                bytes += size(&next);
                part.push(Bson::Document(next));
            }
            let count = part.len();
            let mut command = Document::new();
            command.insert(many.0, name);
            command.insert(many.1, part);
            let reply = self.line.db.run_command(command).session(&mut self.session).await?;
            if let Some(Bson::Document(error)) =
                reply.get_array("writeErrors").ok().and_then(|errors| errors.first())
            {
                let code = i32::try_from(error.number("code").unwrap_or_default()).unwrap_or_default();
                let message = error.word("errmsg").unwrap_or("a statement was refused").to_owned();
                return Err(Fault::Statement { code, message });
            }
            if exact && reply.number("n")? != i64::try_from(count).unwrap_or(i64::MAX) {
                return Err(Fault::Conflict);
            }
        }
        Ok(())
    }

    /// Commits; asks again when no answer came, or none that says what became of it.
    pub(super) async fn commit(mut self) -> Result<(), Failed> {
        let (mut last, mut answered) = (Fault::Silent, true);
        for _ in 0..MOST_COMMITS {
            match self.session.commit_transaction().await.map_err(Fault::from) {
                Ok(()) => return Ok(()),
                // A server that has lost its memory meanwhile does not know either.
                Err(fault) if answered && !fault.leaves_a_commit_open() => return Err(Failed::Before(fault)),
                Err(fault) => {
                    answered &= fault.is_an_answer();
                    last = fault;
                }
            }
        }
        Err(Failed::AtCommit(last))
    }

    /// Ends one that has only looked: what it has found is of one snapshot.
    pub(super) async fn done<T>(self, found: Step<T>) -> Step<T> {
        match found {
            Ok(found) => match self.commit().await {
                Ok(()) => Ok(found),
                Err(Failed::Before(fault) | Failed::AtCommit(fault)) => Err(fault),
            },
            Err(fault) => {
                self.abort().await;
                Err(fault)
            }
        }
    }

    /// Gives up: what was written is gone.
    pub(super) async fn abort(mut self) {
        let ended = tokio::time::timeout(Duration::from_secs(2), self.session.abort_transaction()).await;
        if !matches!(ended, Ok(Ok(()))) {
            // The server ends it by itself.
            tracing::debug!("a transaction that was given up could not be ended");
        }
    }
}

/// What a command does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Word {
    Insert,
    Update,
    Delete,
}

/// Statements of one kind for one collection.
#[derive(Debug)]
pub(super) struct Write {
    word: Word,
    name: &'static str,
    statements: Vec<Document>,
    /// Each has to find one document, else somebody else has changed it.
    exact: bool,
}

impl Write {
    pub(super) fn exact(word: Word, name: &'static str, statements: Vec<Document>) -> Self {
        Self { word, name, statements, exact: true }
    }

    pub(super) fn any(word: Word, name: &'static str, statements: Vec<Document>) -> Self {
        Self { word, name, statements, exact: false }
    }
}

/// About how many bytes a document has.
fn size(document: &Document) -> usize {
    document.iter().map(|(name, value)| name.len() + size_of(value)).sum()
}

fn size_of(value: &Bson) -> usize {
    match value {
        Bson::String(text) => text.len() + 8,
        Bson::Binary(binary) => binary.bytes.len() + 8,
        Bson::Document(document) => size(document),
        Bson::Array(values) => values.iter().map(size_of).sum(),
        _ => 16,
    }
}
