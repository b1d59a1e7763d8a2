//! The verbs of [`crate::ownership`] on a store: the scenarios of contract ownership.md, by id. What needs a host
//! that executes work, or a store that fails, is tested with those.

use std::sync::Arc;
use std::time::Duration;

use super::support::{A, B, GRACE, draw};
use super::{Case, Fixture};
use crate::model::{CancelMode, Event, EventKind, InstanceId, RunStatus, Seconds, Subject};
use crate::ownership::{
    Acquire, Acquired, Cancel, CancelAnswer, CancelScope, DeclaredLost, Expected, Finished, Held, Outcome,
    Ownership, OwnershipSettings, Published, Regranted, Renewed, SessionKey, TaskKey, TaskState,
};

mod blobs;
mod cancels;
mod conversations;
mod leases;
mod outcomes;
mod scenarios;
mod starts;

pub(super) fn cases() -> Vec<Case> {
    let verbs =
        [scenarios::CASES, leases::CASES, outcomes::CASES, blobs::CASES, cancels::CASES, starts::CASES];
    [verbs.concat(), conversations::CASES.to_vec()].concat()
}

const TTL: Seconds = Seconds::new(30);
const SECOND: Duration = Duration::from_secs(1);

/// Replicas on one store.
struct Own {
    f: Fixture,
    own: Ownership,
    /// The same on another replica.
    peer: Ownership,
}

fn owner(who: u128) -> InstanceId {
    InstanceId::from_bits(who)
}

fn session(name: &str) -> SessionKey {
    SessionKey::new("test", "researcher", name).unwrap()
}

/// A task of the session that most cases need.
fn key(task: u64) -> TaskKey {
    session("s").task(task)
}

impl Own {
    fn on(f: Fixture) -> Self {
        Self::with(f, OwnershipSettings::default())
    }

    fn with(f: Fixture, settings: OwnershipSettings) -> Self {
        let settings = OwnershipSettings { grace: GRACE, ..settings };
        let replica = || Ownership::new(Arc::clone(&f.store), settings.clone());
        Self { own: replica(), peer: replica(), f }
    }

    /// A request to begin a task that nobody has made before.
    fn ask(&self, who: u128, key: TaskKey) -> Acquire {
        Acquire {
            input: "find it".into(),
            ..Acquire::new(key, owner(who), format!("request-{}", draw()), TTL)
        }
    }

    async fn acquire(&self, request: &Acquire) -> Acquired {
        self.own.acquire(request).await.unwrap()
    }

    async fn start(&self, who: u128, task: u64) -> Held {
        granted(self.acquire(&self.ask(who, key(task))).await)
    }

    async fn again(&self, who: u128, task: u64, expect: Expected) -> Acquired {
        self.acquire(&Acquire { expect, ..self.ask(who, key(task)) }).await
    }

    async fn state(&self, task: u64) -> TaskState {
        self.own.inspect(&key(task)).await.unwrap().state
    }

    async fn finished(&self, task: u64) -> Finished {
        let state = self.state(task).await;
        state.finished().unwrap_or_else(|| panic!("it has not ended: {state:?}")).clone()
    }

    async fn renew(&self, held: &Held) -> Renewed {
        let who = owner(A);
        self.own.renew(who, std::slice::from_ref(held), TTL).await.unwrap().remove(0)
    }

    async fn publish(&self, held: &Held, text: &str) -> Published {
        self.own.publish(held, Outcome::completed(text)).await.unwrap()
    }

    async fn declare(&self, held: &Held) -> DeclaredLost {
        self.own.declare_lost(&held.key, held.run, held.token.fence, None).await.unwrap()
    }

    /// Lets the lease of a task lapse, and declares it lost.
    async fn lose(&self, held: &Held) {
        self.f.later(TTL.duration() + GRACE);
        let declared = self.declare(held).await;
        assert!(matches!(declared, DeclaredLost::Lost { .. }), "{declared:?}");
    }

    async fn reinstate(&self, held: &Held) -> Regranted {
        self.own.reinstate(held, owner(A), TTL).await.unwrap()
    }

    async fn cancel(&self, scope: CancelScope, mode: CancelMode) -> CancelAnswer {
        let cancel =
            Cancel { mode, reason: "enough".into(), requested_by: "a person".into(), force_after: None };
        self.own.request_cancel(&scope, &cancel).await.unwrap()
    }

    /// What the session tells of outcomes that came too late.
    async fn refused(&self) -> Vec<Event> {
        let subject = Subject::Task(session("s").id().unwrap());
        let events = self.f.store.events(subject, 0, 100).await.unwrap();
        events.into_iter().filter(|event| event.event == EventKind::OutcomeRefused).collect()
    }
}

#[track_caller]
fn granted(acquired: Acquired) -> Held {
    match acquired {
        Acquired::Acquired(held) => held,
        other => panic!("not granted: {other:?}"),
    }
}

fn text(finished: &Finished) -> String {
    finished.result.as_ref().map(|result| result.preview()).unwrap_or_default()
}

/// What is known of a task in one word; the state that a test would have to explain otherwise.
fn word(state: &TaskState) -> &'static str {
    match state {
        TaskState::Suspect { .. } => "suspect",
        TaskState::Terminal(finished) if finished.recovered => "recovered",
        state => state.as_str(),
    }
}

fn is_completed(finished: &Finished) -> bool {
    finished.status == RunStatus::Completed
}
