//! What a writer remembers of the runs it holds, and when it forgets.

use std::time::Duration;

use tenure::model::{InstanceId, Run, RunStatus};
use tenure::rules::{self, Moment};
use tenure::store::conformance::claim_request;
use tenure::store::{Expect, Refusal, RenewRequest, Renewal, RunWrite, Store};

use super::cases::{NOW, Schema, enqueue};

pub(super) async fn a_writer_that_remembers_sees_what_another_has_written() {
    let schema = Schema::new();
    let (one, other) = (schema.open().await, schema.open().await);
    enqueue(&one, 2).await;
    let held = one.claim(claim_request(1, 2)).await.unwrap();
    let moment = |stamp| Moment { now: NOW, stamp };
    let begin = |run: &Run| rules::start(run, run.token().unwrap(), moment(3)).unwrap();
    let begun: Vec<RunWrite> = held.iter().map(begin).collect();
    let verdicts = one.commit(begun.iter().cloned().map(Into::into).collect()).await.unwrap();
    assert!(verdicts.iter().all(Result::is_ok), "{verdicts:?}");
    let force = rules::CancelRequest {
        mode: tenure::model::CancelMode::Force,
        reason: "enough".into(),
        requested_by: "a person".into(),
        force_after: None,
    };
    let rules::Cancel::Write(write) = rules::cancel(&begun[0].run, &force, moment(4)) else { panic!("held") };
    other.commit(vec![write.into()]).await.unwrap().remove(0).unwrap();
    let end = |write: &RunWrite| -> RunWrite {
        let outcome = rules::Outcome::Cancelled(None);
        rules::finish(&write.run, write.run.token().unwrap(), outcome, 0, moment(5)).unwrap()
    };
    let ends = begun.iter().map(|write| end(write).into()).collect();
    let verdicts = one.commit(ends).await.unwrap();
    assert!(matches!(verdicts[0], Err(Refusal::Fenced { .. })), "{verdicts:?}");
    assert_eq!(verdicts[1], Ok(()), "of the other run nothing has changed");
    let asked = begun[1].run.clone();
    let again = RunWrite {
        expect: Expect::At { version: asked.version, token: None, unrenewed: None },
        ..begun[1].clone()
    };
    let verdict = one.commit(vec![again.into()]).await.unwrap().remove(0);
    assert!(matches!(verdict, Err(Refusal::StaleRun { status: RunStatus::Cancelled, .. })), "{verdict:?}");
}

/// How often writers had to forget what they remembered.
async fn disturbed(schema: &Schema) -> i64 {
    let row = schema.sql().await.query_one("SELECT version - harmless FROM meta", &[]).await.unwrap();
    row.get(0)
}

pub(super) async fn a_writer_goes_on_remembering_while_others_leave_its_runs_alone() {
    let schema = Schema::new();
    let (one, other) = (schema.open().await, schema.open().await);
    enqueue(&one, 4).await;
    let before = disturbed(&schema).await;
    let moment = |stamp| Moment { now: NOW, stamp };
    let begin = |run: &Run| rules::start(run, run.token().unwrap(), moment(3)).unwrap();
    let (mine, theirs) =
        (one.claim(claim_request(1, 2)).await.unwrap(), other.claim(claim_request(2, 2)).await);
    let (mine, theirs) = (begin(&mine[0]), begin(&theirs.unwrap()[0]));
    for (store, write) in [(&one, &mine), (&other, &theirs)] {
        store.commit(vec![write.clone().into()]).await.unwrap().remove(0).unwrap();
    }
    let end = |write: &RunWrite, stamp| -> RunWrite {
        let outcome = rules::Outcome::Cancelled(None);
        rules::finish(&write.run, write.run.token().unwrap(), outcome, 0, moment(stamp)).unwrap()
    };
    // Refused: it was read, and nobody comes to remember it by that.
    let expect = Expect::At { version: mine.run.version - 1, token: None, unrenewed: None };
    let verdict = other.commit(vec![RunWrite { expect, ..end(&mine, 4) }.into()]).await.unwrap().remove(0);
    assert!(matches!(verdict, Err(Refusal::StaleRun { .. })), "{verdict:?}");
    one.commit(vec![end(&mine, 4).into()]).await.unwrap().remove(0).unwrap();
    assert_eq!(disturbed(&schema).await, before);
    let verdict = other.commit(vec![end(&mine, 5).into()]).await.unwrap().remove(0);
    assert!(verdict.is_err(), "{verdict:?}");
    // A lease that another renews is one that it may remember.
    let lease = (theirs.run.run_id.clone(), theirs.run.token().unwrap());
    let (instance, leases) = (InstanceId::from_bits(2), vec![lease]);
    let renewal = RenewRequest { instance, leases, lease: Duration::from_secs(90) };
    let renewal = one.renew(renewal).await.unwrap();
    assert!(matches!(renewal[..], [Renewal::Renewed { .. }]), "{renewal:?}");
    assert_eq!(disturbed(&schema).await, before + 1);
    let unrenewed = theirs.run.lease.map(|lease| lease.expires_at);
    let expect = Expect::At { version: theirs.run.version, token: None, unrenewed };
    let verdict = other.commit(vec![RunWrite { expect, ..end(&theirs, 6) }.into()]).await.unwrap().remove(0);
    assert!(matches!(verdict, Err(Refusal::StaleRun { .. })), "{verdict:?}");
}

pub(super) async fn a_writer_forgets_whatever_a_program_of_an_older_schema_writes() {
    let schema = Schema::new();
    let store = schema.open().await;
    enqueue(&store, 1).await;
    let held = store.claim(claim_request(1, 1)).await.unwrap().remove(0);
    let older =
        "UPDATE runs SET version = version + 1, fence = fence + 1; UPDATE meta SET version = version + 1";
    schema.sql().await.batch_execute(older).await.unwrap();
    let begun = rules::start(&held, held.token().unwrap(), Moment { now: NOW, stamp: 3 }).unwrap();
    let verdict = store.commit(vec![begun.into()]).await.unwrap().remove(0);
    assert!(matches!(verdict, Err(Refusal::Fenced { .. })), "{verdict:?}");
}
