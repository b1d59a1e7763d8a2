//! A host that is served on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure::agents::Directory;
use tenure::http::{Api, HttpOptions};
use tenure::{RunContext, Settings, Tenure};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::stores::Bench;

/// The runtime of a host, as `tenure serve` has it on two cores.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The runtime of callers, on the thread that measures: they are no part of the host.
pub(crate) fn callers() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Whether runs of the task are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agent {
    Noop,
    None,
}

pub(crate) struct Served {
    pub(crate) bench: Bench,
    pub(crate) tenure: Tenure,
    pub(crate) address: SocketAddr,
    shutdown: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Served {
    pub(crate) async fn open(bench: Bench, agent: Agent) -> Self {
        let settings = Settings {
            concurrency: 1_024,
            retain_runs: u64::MAX,
            drain: Duration::from_secs(1),
            ..Settings::default()
        };
        let tenure = Tenure::open(Arc::clone(&bench.store), settings).await.expect("a host");
        if agent == Agent::Noop {
            tenure.register_agent("noop", |_: RunContext| async { Ok(().into()) }).expect("an agent");
        }
        let directory = Directory::open(tenure.clone()).await.expect("a directory");
        let api = Api::new(tenure.clone(), directory, HttpOptions::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let (shutdown, wanted) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move { api.serve(listener, async { drop(wanted.await) }).await });
        Self { bench, tenure, address, shutdown, serving }
    }

    pub(crate) async fn end(self) {
        drop(self.shutdown);
        self.serving.await.expect("it ends").expect("it served");
        self.tenure.shutdown().await.expect("a shutdown");
    }
}
