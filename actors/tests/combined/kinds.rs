//! A process of each kind that runs until it is told otherwise.

use tenure_actors::{Application, Generation, OperationLease, ProcessHandle, ProcessKind, ProcessSpec};

use crate::bench::{Plain, Worker, request, waiting};

pub(crate) const KINDS: [ProcessKind; 3] = [ProcessKind::Function, ProcessKind::Object, ProcessKind::Actor];

pub(crate) fn process(kind: ProcessKind) -> ProcessSpec {
    match kind {
        ProcessKind::Function => waiting(),
        ProcessKind::Object => Plain::new().spec(),
        ProcessKind::Actor => Worker::spec(),
    }
}

/// Operation `a` with key `k`, whose process normally has the same id.
pub(crate) async fn reserve(generation: &Generation) -> OperationLease {
    generation.operations().reserve(request("a", &["k"])).await.unwrap()
}

/// Reserves first, then starts: the order of C1.
pub(crate) async fn begin(application: &Application, process: ProcessSpec) -> ProcessHandle {
    let generation = application.current();
    let lease = reserve(&generation).await;
    generation.registry().start("a", process.holding(lease)).await.unwrap()
}
