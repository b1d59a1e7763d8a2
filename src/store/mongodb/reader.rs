//! Reads: several at once, each answered when it is done.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::link::Db;

/// The most reads at once.
const MOST_AT_ONCE: usize = 8;

/// A read that answers for itself.
pub(super) type Read = Box<dyn FnOnce(Arc<Db>) -> BoxFuture<'static, ()> + Send>;

/// Reads until everybody has gone.
pub(super) async fn run(db: Arc<Db>, mut reads: mpsc::UnboundedReceiver<Read>) {
    let mut going = FuturesUnordered::new();
    loop {
        tokio::select! {
            read = reads.recv(), if going.len() < MOST_AT_ONCE => match read {
                Some(read) => going.push(read(Arc::clone(&db))),
                None => break,
            },
            Some(()) = going.next(), if !going.is_empty() => {}
        }
    }
    while going.next().await.is_some() {}
}
