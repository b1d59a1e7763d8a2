//! The few primitives that the commit gate is made of.
//!
//! Under `--cfg tenure_loom` they are loom's, so that the same gate source is explored in every schedule;
//! otherwise they are the standard library's and tokio's. Nothing else in the crate uses this module.

#[cfg(not(tenure_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(tenure_loom))]
pub(crate) use std::thread::yield_now;
#[cfg(not(tenure_loom))]
pub(crate) use tokio::sync::Notify;

#[cfg(tenure_loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(tenure_loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(tenure_loom)]
pub(crate) use model::Notify;

#[cfg(tenure_loom)]
mod model {
    use std::future::Future;
    use std::mem;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use loom::sync::Mutex;

    /// tokio's `Notify` reduced to the promise the gate relies on: a `Notified` made before
    /// `notify_waiters` is called is woken by that call, whether or not it waits yet.
    #[derive(Debug, Default)]
    pub(crate) struct Notify {
        state: Mutex<State>,
    }

    #[derive(Debug, Default)]
    struct State {
        calls: u64,
        waiting: Vec<Waker>,
    }

    pub(crate) struct Notified<'a> {
        notify: &'a Notify,
        seen: u64,
    }

    impl Notify {
        pub(crate) fn notified(&self) -> Notified<'_> {
            Notified { notify: self, seen: self.state.lock().unwrap().calls }
        }

        pub(crate) fn notify_waiters(&self) {
            let woken = {
                let mut state = self.state.lock().unwrap();
                state.calls += 1;
                mem::take(&mut state.waiting)
            };
            woken.into_iter().for_each(Waker::wake);
        }
    }

    impl Future for Notified<'_> {
        type Output = ();

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            let mut state = self.notify.state.lock().unwrap();
            if state.calls != self.seen {
                return Poll::Ready(());
            }
            // A waiter may be polled without having been woken; registered twice, it would be woken twice.
            if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        }
    }
}
