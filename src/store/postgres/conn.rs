//! One connection: its session, its prepared statements, and how several statements are sent at once.
//!
//! What is asked together goes out together, in order, before the first answer is waited for: a transaction costs
//! two round trips however much is in it. What it writes may go out before it is complete ([`Flight`]).

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use foldhash::HashMap;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Row, Statement};

use super::fault::{Fault, Step};
use super::options::PostgresOptions;
use crate::store::{RefusedKind, StoreError};

/// The most statements that stay prepared on a connection.
const MOST_PREPARED: usize = 200;

/// A value of a statement.
pub(super) type Param = Box<dyn ToSql + Send + Sync>;

/// A statement with its values.
pub(super) struct Say {
    sql: Cow<'static, str>,
    with: Vec<Param>,
}

impl Say {
    pub(super) fn new(sql: impl Into<Cow<'static, str>>, with: Vec<Param>) -> Self {
        Self { sql: sql.into(), with }
    }
}

/// Makes the values of a statement.
macro_rules! with {
    ($($value:expr),* $(,)?) => { vec![$(Box::new($value) as crate::store::postgres::conn::Param),*] };
}
pub(super) use with;

/// What another session told this one: who, and what.
pub(super) struct Heard {
    pub(super) pid: i32,
    pub(super) payload: String,
}

/// A connection with the statements that are prepared on it.
pub(super) struct Conn {
    client: Client,
    pid: i32,
    prepared: Mutex<HashMap<String, Statement>>,
    /// Somebody left in the middle of a transaction.
    open: AtomicBool,
    /// Since when nothing was answered that was asked.
    unanswered: Mutex<Option<Instant>>,
    patience: Duration,
}

/// What a session is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Session {
    Writer,
    Reader,
}

/// Serves a connection. It ends when the client is dropped or the server is gone; whoever waits for an answer then
/// hears so.
async fn listen<S, T>(mut connection: Connection<S, T>, heard: Option<mpsc::UnboundedSender<Heard>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let (AsyncMessage::Notification(told), Some(heard)) = (message, &heard) {
            let told = Heard { pid: told.process_id(), payload: told.payload().to_owned() };
            // The writer has ended: nobody listens.
            let _ = heard.send(told);
        }
    }
}

impl Conn {
    /// Connects and sets the session up. What others tell it goes to `heard`.
    pub(super) async fn open(
        options: &PostgresOptions,
        session: Session,
        heard: Option<mpsc::UnboundedSender<Heard>>,
    ) -> Step<Self> {
        // Who was connected to may fall silent before it has said anything.
        let opened = tokio::time::timeout(options.patience, Self::set_up(options, session, heard)).await;
        opened.unwrap_or(Err(Fault::Silent))
    }

    async fn set_up(
        options: &PostgresOptions,
        session: Session,
        heard: Option<mpsc::UnboundedSender<Heard>>,
    ) -> Step<Self> {
        let client = Self::connect(options, heard).await?;
        client.batch_execute(&set_up(options, session)).await?;
        let row = client.query_typed_one("SELECT pg_backend_pid()", &[]).await?;
        Ok(Self {
            pid: row.try_get(0)?,
            client,
            prepared: Mutex::default(),
            open: AtomicBool::new(false),
            unanswered: Mutex::default(),
            patience: options.patience,
        })
    }

    async fn connect(options: &PostgresOptions, heard: Option<mpsc::UnboundedSender<Heard>>) -> Step<Client> {
        let mut config = options.config().clone();
        let Some(tls) = options.tls().connector().map_err(Fault::Invalid)? else {
            let (client, connection) = config.ssl_mode(SslMode::Disable).connect(NoTls).await?;
            tokio::spawn(listen(connection, heard));
            return Ok(client);
        };
        let (client, connection) =
            config.ssl_mode(SslMode::Require).connect(tls).await.map_err(Fault::of_tls)?;
        tokio::spawn(listen(connection, heard));
        Ok(client)
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it is of no use any more: it has ended; or it answers nothing for longer than the server takes for
    /// anything, though those who asked have long gone, and will never be told that it has ended.
    pub(super) fn is_closed(&self) -> bool {
        let is_silent = self.unanswered.lock().is_some_and(|since| since.elapsed() > self.patience);
        self.client.is_closed() || is_silent
    }

    /// Waits for an answer, and remembers since when there was none.
    async fn answer<T>(&self, asked: impl Future<Output = T>) -> T {
        self.unanswered.lock().get_or_insert_with(Instant::now);
        let answer = asked.await;
        *self.unanswered.lock() = None;
        answer
    }

    async fn prepare(&self, sql: &str) -> Step<Statement> {
        if let Some(statement) = self.prepared.lock().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.answer(self.client.prepare(sql)).await?;
        let mut prepared = self.prepared.lock();
        if prepared.len() >= MOST_PREPARED {
            // Listings have as many statements as there are filters.
            prepared.clear();
        }
        prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Asks one thing.
    pub(super) async fn ask(&self, sql: impl Into<Cow<'static, str>>, with: Vec<Param>) -> Step<Vec<Row>> {
        let statement = self.prepare(&sql.into()).await?;
        Ok(self.answer(self.client.query(&statement, &borrowed(&with))).await?)
    }

    /// Says everything, in order, between two words if they are given. Each is answered for itself; an error in one
    /// makes the server refuse what comes after it in the transaction.
    pub(super) async fn say(
        &self,
        first: Option<&'static str>,
        all: Vec<Say>,
        last: Option<&'static str>,
    ) -> Step<Vec<Step<Vec<Row>>>> {
        let mut flight = Flight::default();
        self.send(&mut flight, first, all, last).await?;
        Ok(self.land(&mut flight).await)
    }

    /// Sends as [`Conn::say`] does, behind what is on its way, and waits for no answer.
    pub(super) async fn send<'c>(
        &'c self,
        flight: &mut Flight<'c>,
        first: Option<&'static str>,
        all: Vec<Say>,
        last: Option<&'static str>,
    ) -> Step<()> {
        let mut ready = Vec::with_capacity(all.len());
        for say in all {
            ready.push((self.prepare(&say.sql).await?, say.with));
        }
        let word = |word: &'static str| -> Asked<'c> {
            Box::pin(async move {
                self.client.batch_execute(word).await?;
                Ok(Vec::new())
            })
        };
        let mut sent: Vec<Asked<'c>> = Vec::with_capacity(ready.len() + 2);
        sent.extend(first.map(word));
        for (statement, with) in ready {
            sent.push(Box::pin(async move { Ok(self.client.query(&statement, &borrowed(&with)).await?) }));
        }
        sent.extend(last.map(word));
        self.unanswered.lock().get_or_insert_with(Instant::now);
        flight.sent.extend(sent.into_iter().map(|asked| (asked, None)));
        poll_fn(|cx| {
            // Whether all are answered is asked by who lands them.
            let _ = flight.poll(cx);
            Poll::Ready(())
        })
        .await;
        Ok(())
    }

    /// Waits for the answers to all that is on its way, in order.
    pub(super) async fn land(&self, flight: &mut Flight<'_>) -> Vec<Step<Vec<Row>>> {
        if flight.sent.is_empty() {
            return Vec::new();
        }
        self.answer(poll_fn(|cx| flight.poll(cx))).await;
        std::mem::take(&mut flight.sent).into_iter().filter_map(|(_, answer)| answer).collect()
    }

    /// A word that has no answer.
    pub(super) async fn word(&self, word: &str) -> Step<()> {
        Ok(self.answer(self.client.batch_execute(word)).await?)
    }

    /// Looks at one snapshot, however many statements that takes. The caller has the connection to itself.
    pub(super) async fn snapshot<T>(&self, look: impl Future<Output = Step<T>>) -> Step<T> {
        if self.open.swap(true, Ordering::SeqCst) {
            // The one before did not wait for its answer.
            self.word("ROLLBACK").await?;
        }
        self.word("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let found = look.await;
        self.word("ROLLBACK").await?;
        self.open.store(false, Ordering::SeqCst);
        found
    }
}

fn borrowed(with: &[Param]) -> Vec<&(dyn ToSql + Sync)> {
    with.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
}

/// An answer that will come.
type Asked<'c> = BoxFuture<'c, Step<Vec<Row>>>;

/// What was sent on a connection and not asked for its answer yet.
#[derive(Default)]
pub(super) struct Flight<'c> {
    sent: Vec<(Asked<'c>, Option<Step<Vec<Row>>>)>,
}

impl Flight<'_> {
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Polls all that have no answer, the first first: what they send goes out in this order.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waits = false;
        for (asked, answer) in self.sent.iter_mut().filter(|(_, answer)| answer.is_none()) {
            match asked.as_mut().poll(cx) {
                Poll::Ready(value) => *answer = Some(value),
                Poll::Pending => waits = true,
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// What a session is told first. Every statement of ours goes by an index; plans that were made while a table was
/// small would read it from end to end when it is large, so such plans are ruled out instead of being hoped against.
///
/// What is ruled out costs 10^10 more, beside which all else looks alike. So what a statement cannot do without must
/// not be: those of the writer sort the few rows that they have found, and without sorts a claim read every run.
///
/// Plans of the writer stay. The server would make one for each claim, since it cannot know beforehand how few rows one
/// asks for, and comes to the same plan every time; that took half as long as the claim.
fn set_up(options: &PostgresOptions, session: Session) -> String {
    let schema = options.quoted_schema();
    let patience = options.patience.as_millis().max(1);
    let common = format!(
        "SET search_path = {schema}; SET client_min_messages = warning; SET jit = off; SET enable_seqscan = off;
         SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off;
         SET timezone = 'UTC'; SET lock_timeout = {patience}; SET statement_timeout = {patience};"
    );
    match session {
        Session::Reader => format!("{common} SET enable_sort = off; SET default_transaction_read_only = on;"),
        Session::Writer => format!(
            "{common} SET plan_cache_mode = force_generic_plan; SET idle_in_transaction_session_timeout = {};
             SET synchronous_commit = {}; LISTEN \"{}\";",
            options.most_idle.as_millis().max(1),
            if options.synchronous_commit { "on" } else { "off" },
            options.channel()
        ),
    }
}

/// That the database can hold what is written to it.
pub(super) async fn check_encoding(conn: &Conn, place: &str) -> Result<(), StoreError> {
    let refused = |fault: Fault| fault.refused(place);
    let rows = conn.ask("SELECT current_setting('server_encoding')", Vec::new()).await.map_err(refused)?;
    let encoding = rows.first().map(|row| row.try_get::<_, String>(0)).transpose();
    let encoding = encoding.map_err(|error| refused(error.into()))?.unwrap_or_default();
    if encoding == "UTF8" {
        return Ok(());
    }
    let message =
        format!("\"{place}\": its encoding is \"{encoding}\", expected UTF8; create another database");
    Err(StoreError::refused(RefusedKind::Invalid, message))
}
