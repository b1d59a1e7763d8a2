//! How much is done at once, and for how long.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Api;
use super::problem::{Kind, Problem};

/// Room for a number of things at once; the number may change meanwhile.
#[derive(Clone, Default)]
pub(super) struct Room(Arc<AtomicUsize>);

/// One of them. Its place is free when it is dropped.
pub(super) struct Place(Arc<AtomicUsize>);

impl Room {
    /// A place, if fewer than `most` are taken.
    pub(super) fn enter(&self, most: usize) -> Option<Place> {
        let grow = |taken: usize| (taken < most).then_some(taken + 1);
        let entered = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, grow);
        entered.ok().map(|_| Place(Arc::clone(&self.0)))
    }

    pub(super) fn taken(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// More is asked at once than this host does.
pub(super) fn full(what: &str, most: usize) -> Problem {
    Problem::new(Kind::Busy, format!("{most} {what} already, which is the limit")).retry_after(1)
}

/// Since when an answer is worked on; nothing while the body is arriving, for which there is a limit of its own.
#[derive(Clone)]
pub(super) struct Since(watch::Sender<Option<Instant>>);

impl Since {
    /// The body is on its way.
    pub(super) fn arriving(&self) {
        self.0.send_replace(None);
    }

    /// All of it is here.
    pub(super) fn arrived(&self) {
        self.0.send_replace(Some(Instant::now()));
    }
}

/// Answers in time, whatever the store does. A slow body is blamed on who sends it, and takes nothing of that time.
pub(super) async fn in_time(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let limit = api.options().request_timeout;
    let since = Since(watch::Sender::new(Some(Instant::now())));
    let mut changes = since.0.subscribe();
    request.extensions_mut().insert(since);
    let mut work = pin!(next.run(request));
    loop {
        let begun = *changes.borrow_and_update();
        let up = async {
            match begun {
                Some(begun) => sleep_until(begun + limit).await,
                None => pending().await,
            }
        };
        tokio::select! {
            response = &mut work => return response,
            () = up => return late(limit).into_response(),
            Ok(()) = changes.changed() => {}
        }
    }
}

/// What `work` answers, if it does so in time.
pub(super) async fn within<T, E: Into<Problem>>(
    api: &Api,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Problem> {
    let limit = api.options().request_timeout;
    match tokio::time::timeout(limit, work).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(late(limit)),
    }
}

fn late(limit: Duration) -> Problem {
    Problem::new(Kind::TimedOut, format!("no answer within {limit:?}; what was asked may have been done"))
        .retry_after(1)
        .hint("look whether it was done before you ask again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_was_left() {
        let room = Room::default();
        let first = room.enter(2);
        let second = room.enter(2);
        assert!(first.is_some() && second.is_some() && room.enter(2).is_none());
        assert!(room.enter(3).is_some(), "the limit was raised");
        assert_eq!(room.taken(), 2);
        drop(first);
        assert!(room.enter(2).is_some());
    }
}
