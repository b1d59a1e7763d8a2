//! The two runtimes that everything is measured on.

use std::future::Future;

use tokio::runtime::{Builder, Runtime};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    CurrentThread,
    TwoWorkers,
}

impl Flavour {
    pub(crate) const BOTH: [Self; 2] = [Self::CurrentThread, Self::TwoWorkers];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CurrentThread => "current thread",
            Self::TwoWorkers => "two workers",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::BOTH.into_iter().find(|flavour| flavour.name() == name)
    }

    pub(crate) fn runtime(self) -> Runtime {
        let mut builder = match self {
            Self::CurrentThread => Builder::new_current_thread(),
            Self::TwoWorkers => Builder::new_multi_thread(),
        };
        builder.worker_threads(2).enable_all().build().expect("a runtime")
    }

    /// Runs `work` on a runtime of its own, which is gone afterwards with all that was left on it.
    ///
    /// As a task on both: a future that a runtime blocks on is woken through the driver, not the run queue.
    pub(crate) fn run<T: Send + 'static>(self, work: impl Future<Output = T> + Send + 'static) -> T {
        let runtime = self.runtime();
        runtime.block_on(runtime.spawn(work)).expect("the measurement ends")
    }
}
