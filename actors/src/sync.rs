//! The few primitives that the commit gate is made of.
//!
//! Under `--cfg tenure_loom` they are loom's, so that the same gate source is explored in every schedule;
//! otherwise they are the standard library's and tokio's. Nothing else in the crate uses this module.

#[cfg(not(tenure_loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(tenure_loom))]
pub(crate) use tokio::sync::Notify;

#[cfg(tenure_loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(tenure_loom)]
pub(crate) use model::Notify;

#[cfg(tenure_loom)]
mod model {
    use loom::sync::{Condvar, Mutex};

    /// tokio's `Notify` reduced to the promise the gate relies on: a `Notified` made before
    /// `notify_waiters` is called is woken by that call, whether or not it waits yet.
    #[derive(Debug, Default)]
    pub(crate) struct Notify {
        calls: Mutex<u64>,
        changed: Condvar,
    }

    pub(crate) struct Notified<'a> {
        notify: &'a Notify,
        seen: u64,
    }

    impl Notify {
        pub(crate) fn notified(&self) -> Notified<'_> {
            Notified { notify: self, seen: *self.calls.lock().unwrap() }
        }

        pub(crate) fn notify_waiters(&self) {
            *self.calls.lock().unwrap() += 1;
            self.changed.notify_all();
        }
    }

    impl Notified<'_> {
        pub(crate) fn wait(self) {
            let mut calls = self.notify.calls.lock().unwrap();
            while *calls == self.seen {
                calls = self.notify.changed.wait(calls).unwrap();
            }
        }
    }
}
