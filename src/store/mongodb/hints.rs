//! What other instances tell: a change stream over the one document that every writer changes. Lossy: who misses a hint
//! polls.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use tokio::sync::broadcast;
use tokio::time::timeout;

use super::fault::Step;
use super::link::{Db, Line, name};
use super::read;
use crate::store::{Hint, hint};

/// How long after a lost stream the next one is tried, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long the server holds a question for news.
const HELD: Duration = Duration::from_secs(1);

pub(super) type Stream = ChangeStream<ChangeStreamEvent<Document>>;

/// Begins to listen.
pub(super) async fn listen(db: &Db) -> Step<Stream> {
    let told = doc! {
        "$match": { "operationType": "update", "updateDescription.updatedFields.hint": { "$exists": true } }
    };
    Ok(db.of(name::META).watch().pipeline([told]).max_await_time(HELD).await?)
}

/// Passes on what others tell. Who could not listen for a while is told of everything.
pub(super) async fn run(db: Arc<Db>, own: String, mut stream: Stream, hints: broadcast::Sender<Hint>) {
    let (mut pause, mut line) = (FIRST_PAUSE, db.line());
    loop {
        while let Some(news) = in_time(&db, &line, stream.next_if_any()).await.filter(|_| stream.is_alive()) {
            pause = FIRST_PAUSE;
            if let Some(hint) = news.and_then(|event| heard(&event, &own)) {
                // Nobody watches: fine.
                let _ = hints.send(hint);
            }
        }
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            line = db.line();
            if let Some(again) = in_time(&db, &line, listen(&db)).await
                && let Some(cursor) = in_time(&db, &line, read::newest_cursor(&db)).await
            {
                stream = again;
                let all = Hint { ready: true, agenda: true, agents: true, cancels: Vec::new(), cursor };
                // Nobody watches: fine.
                let _ = hints.send(all);
                break;
            }
        }
    }
}

/// What is answered, if it is: a server that has held a question for long enough answers also that there is no news.
/// One that does not is gone without a word.
async fn in_time<T, E>(db: &Db, line: &Line, asked: impl Future<Output = Result<T, E>>) -> Option<T> {
    match timeout(db.options.patience.saturating_add(HELD), asked).await {
        Ok(answer) => answer.ok(),
        Err(_) => {
            db.is_silent(line);
            None
        }
    }
}

fn heard(event: &ChangeStreamEvent<Document>, own: &str) -> Option<Hint> {
    let said = event.update_description.as_ref()?.updated_fields.get_str("hint").ok()?;
    let mut parts = said.splitn(3, ' ');
    let (by, _, word) = (parts.next()?, parts.next()?, parts.next()?);
    // One's own was told when it was committed.
    if by == own { None } else { hint::read(word) }
}

/// A hint as it is kept for the others. It is numbered, as a field that stays as it was is no news.
pub(super) fn written(own: &str, number: u64, hint: &Hint) -> String {
    format!("{own} {number} {}", hint::written(hint))
}
