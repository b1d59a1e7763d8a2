//! The one place that spawns tasks which are no actors.

use std::future::{Future, poll_fn};
use std::task::Poll;

/// Runs `future` beside the caller. It is never awaited: it reports by itself, and holds no authority.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    // Without a runtime there is nobody left to report to; this happens when values are dropped late.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(future));
    }
}

/// Lets others run, once round the run queue. Unlike tokio's `yield_now` it leaves the caller where any worker may take
/// it up: what is deferred waits for its own worker, which looks at timers and sockets first, and the next task there
/// may be user code that blocks the thread.
pub(crate) async fn give_way() {
    let mut given = false;
    poll_fn(|context| {
        if given {
            return Poll::Ready(());
        }
        given = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
