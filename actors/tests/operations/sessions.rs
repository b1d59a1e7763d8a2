//! O22 to O24 and H7: what an application builds on admission, and what admission does not promise.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_actors::{OperationRequest, Operations, ReserveError};

use crate::bench::{self, Count};

const REQUESTS: &str = "agent_app.session_request";
const COMPACTION: &str = "native_compaction";

/// What a session's caller is told.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Ran,
    AlreadyRunning,
    Busy(String),
}

/// A coordinator as the brief has it: admission first, the provider only after it.
async fn ask(operations: &Operations, operation: &str, owner: &str, provider: &Count) -> Answer {
    let request = OperationRequest::new(operation, owner).unwrap().on_session("s").unwrap();
    match operations.reserve(request).await {
        Ok(_lease) => {
            provider.add();
            Answer::Ran
        }
        Err(ReserveError::Busy(holder)) if owner == REQUESTS && holder.owner.as_str() == REQUESTS => {
            Answer::AlreadyRunning
        }
        Err(ReserveError::Busy(holder)) => Answer::Busy(holder.operation.to_string()),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn op_o22_while_a_request_runs_the_second_is_turned_away_before_the_provider_is_called() {
    let application = bench::open().await;
    let operations = application.current().operations();
    let provider = Count::new();
    let first = OperationRequest::new("request_1", REQUESTS).unwrap().on_session("s").unwrap();
    let lease = operations.reserve(first).await.unwrap();

    assert_eq!(ask(&operations, "request_2", REQUESTS, &provider).await, Answer::AlreadyRunning);
    assert_eq!(ask(&operations, "c1", COMPACTION, &provider).await, Answer::Busy("request_1".to_owned()));
    assert_eq!(provider.get(), 0);

    lease.release();
    assert_eq!(ask(&operations, "request_2", REQUESTS, &provider).await, Answer::Ran);
    assert_eq!(provider.get(), 1);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn op_o23_while_a_compaction_runs_everybody_is_told_its_operation() {
    let application = bench::open().await;
    let operations = application.current().operations();
    let provider = Count::new();
    let first = OperationRequest::new("c1", COMPACTION).unwrap().on_session("s").unwrap();
    let _lease = operations.reserve(first).await.unwrap();

    assert_eq!(ask(&operations, "request_1", REQUESTS, &provider).await, Answer::Busy("c1".to_owned()));
    assert_eq!(ask(&operations, "c2", COMPACTION, &provider).await, Answer::Busy("c1".to_owned()));
    assert_eq!(provider.get(), 0);
    bench::close(&application).await;
}

/// A session with the check that admission does not replace.
#[derive(Default)]
struct Session {
    revision: u64,
    summary: Option<&'static str>,
}

impl Session {
    fn reconcile(&mut self, based_on: u64, summary: &'static str) -> Result<(), u64> {
        if self.revision != based_on {
            return Err(self.revision);
        }
        (self.revision, self.summary) = (based_on + 1, Some(summary));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn op_o24_a_writer_outside_of_admission_is_met_by_the_check_at_commit() {
    let application = bench::open().await;
    let generation = application.current();
    let request = OperationRequest::new("c1", COMPACTION).unwrap().on_session("s").unwrap();
    let lease = generation.operations().reserve(request).await.unwrap();
    let worker = bench::Plain::new();
    let handle = generation.registry().start("c1", worker.spec().holding(lease)).await.unwrap();
    let session = Arc::new(Mutex::new(Session::default()));

    let based_on = session.lock().revision;
    // Knows nothing of operations, and nothing stops it.
    session.lock().revision += 1;
    let late = worker.context().commit(|| session.lock().reconcile(based_on, "summary"));

    assert_eq!(late, Ok(Err(1)), "authority stands, the reconciliation refuses");
    assert_eq!(session.lock().summary, None);
    handle.close().await;
    bench::close(&application).await;
}
