//! Two who share a store, each with what it remembers: what one has written counts for the other.

use super::support::{A, done};
use super::{Fixture, list};
use crate::model::{CancelMode, Run, RunStatus};
use crate::store::{Decision, Expect, Refusal, RunWrite, Store};

list! {
    who_holds_a_run_hears_of_what_another_has_made_of_it,
    who_has_merely_read_a_run_hears_of_what_its_holder_has_made_of_it,
}

async fn one(store: &dyn Store, write: RunWrite) -> Result<(), Refusal> {
    store.commit(vec![Decision::from(write)]).await.unwrap().remove(0)
}

/// A run that was begun here.
async fn begun(f: &Fixture) -> Run {
    let task = f.task(serde_json::json!({})).await;
    f.queue(&task, "r").await;
    f.begin(A).await
}

async fn who_holds_a_run_hears_of_what_another_has_made_of_it(f: Fixture) {
    let Some(reopen) = &f.reopen else { return };
    let (run, other) = (begun(&f).await, reopen().await);
    let cancel = f.cancel_write(&run, CancelMode::Force).await;
    one(&*other, cancel).await.unwrap();
    let refusal = f.refuses(f.end_of(&run, done("late")).await).await;
    assert!(matches!(refusal, Refusal::Fenced { status: RunStatus::Cancelled, .. }), "{refusal:?}");
    other.close().await.unwrap();
}

async fn who_has_merely_read_a_run_hears_of_what_its_holder_has_made_of_it(f: Fixture) {
    let Some(reopen) = &f.reopen else { return };
    let (run, other) = (begun(&f).await, reopen().await);
    let end = f.end_of(&run, done("late")).await;
    let expect = Expect::At { version: run.version - 1, token: None, unrenewed: None };
    // Twice: who has just come asks for everything.
    for _ in 0..2 {
        let refusal = one(&*other, RunWrite { expect, ..end.clone() }).await.unwrap_err();
        assert!(matches!(refusal, Refusal::StaleRun { .. }), "{refusal:?}");
    }
    let ended = f.finish(&run, done("in time")).await;
    let refusal = one(&*other, end).await.unwrap_err();
    assert!(matches!(refusal, Refusal::StaleRun { .. } | Refusal::Fenced { .. }), "{refusal:?}");
    assert_eq!(f.read(&run.run_id).await, ended);
    other.close().await.unwrap();
}
