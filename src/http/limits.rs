//! How much is done at once, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

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

/// Answers in time, whatever the store does.
pub(super) async fn in_time(State(api): State<Api>, request: Request, next: Next) -> Response {
    let limit = api.options().request_timeout;
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => late(limit).into_response(),
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
