//! What is done to a session, and what is answered.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tenure::model::{CancelMode, InstanceId, Seconds};
use tenure::ownership::{
    Acquire, Acquired, Cancel, CancelScope, DeclaredLost, Expected, Forgotten, Held, Outcome, Ownership,
    Published, Regranted, Release, Released, Retention, SessionKey,
};

use crate::stage::{Broken, Turn};

pub(crate) const TTL: Seconds = Seconds::new(2);
pub(crate) const RETENTION: Retention = Retention {
    acknowledged: Seconds::new(4),
    unacknowledged: Seconds::new(4),
    sessions: Seconds::new(4),
    batch: 10,
};

/// What somebody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    /// Begins the second task, of the session that was looked at.
    Start,
    /// Begins a task by the number that was given out for it.
    StartNumber,
    Continue,
    TakeOver,
    Publish,
    Reinstate,
    HandOver,
    Declare,
    Release,
    /// Releases it if nothing runs.
    ReleaseIdle,
    /// The first run of the first task, by force.
    CancelRun,
    /// All of it.
    CancelSession,
    Forget,
    /// What was kept long enough is removed, twice: tasks, then their session.
    Reap,
}

/// What it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Done {
    Granted,
    /// It was refused, for the session was released.
    Released,
    /// It was refused for another reason.
    Refused,
    Sealed(u64),
    Published,
    Removed,
    Told,
}

pub(crate) fn session() -> SessionKey {
    SessionKey::new("n", "s", "x").unwrap()
}

pub(crate) fn owner(who: usize) -> InstanceId {
    InstanceId::from_bits(who as u128)
}

/// Who had the first task.
pub(crate) const BEFORE: usize = 9;

fn cancel(mode: CancelMode) -> Cancel {
    Cancel { mode, reason: "r".into(), requested_by: "canceller".into(), force_after: None }
}

/// What somebody does, call by call. What a start has seen of its session is noted for it.
pub(crate) fn act(
    own: Ownership,
    turn: Arc<Mutex<Turn>>,
    (who, act, broken): (usize, Act, Broken),
    held: Option<Held>,
    saw: Arc<Mutex<Option<u64>>>,
) -> BoxFuture<'static, Done> {
    let first = session().task(1);
    let request = move |task: u64| Acquire::new(session().task(task), owner(who), name(who), TTL);
    let see = move |revision: u64| {
        *saw.lock() = Some(revision);
        (broken != Broken::Unsaid).then_some(revision)
    };
    Box::pin(async move {
        match act {
            Act::Start => {
                let revision = see(own.revision(&session()).await.unwrap());
                begun(own.acquire(&Acquire { revision, ..request(2) }).await.unwrap())
            }
            Act::StartNumber => {
                let task = own.next_task_id(&session()).await.unwrap();
                see(turn.lock().last());
                begun(own.acquire(&request(task)).await.unwrap())
            }
            Act::Continue | Act::TakeOver => {
                let revision = see(own.revision(&session()).await.unwrap());
                let expect =
                    if act == Act::Continue { Expected::TerminalRun(1) } else { Expected::LostRun(1) };
                begun(own.acquire(&Acquire { revision, expect, ..request(1) }).await.unwrap())
            }
            Act::Publish => match own.publish(&held.unwrap(), Outcome::completed("done")).await.unwrap() {
                Published::Committed => Done::Published,
                _ => Done::Refused,
            },
            Act::Reinstate => regranted(own.reinstate(&held.unwrap(), owner(who), TTL).await.unwrap()),
            Act::HandOver => regranted(own.hand_over(&held.unwrap(), owner(who), TTL).await.unwrap()),
            Act::Declare => {
                let fence = held.unwrap().token.fence;
                match own.declare_lost(&first, 1, fence, None).await.unwrap() {
                    DeclaredLost::Lost { .. } => Done::Told,
                    DeclaredLost::Changed { .. } => Done::Refused,
                }
            }
            Act::Release => sealed(own.release_session(&session(), at_once_released()).await.unwrap()),
            Act::ReleaseIdle => sealed(own.release_session(&session(), Release::Refuse).await.unwrap()),
            Act::CancelRun => {
                let scope = CancelScope::Run { key: first, run: 1 };
                own.request_cancel(&scope, &cancel(CancelMode::Force)).await.unwrap();
                Done::Told
            }
            Act::CancelSession => {
                let scope = CancelScope::Session(session());
                own.request_cancel(&scope, &cancel(CancelMode::Cooperative)).await.unwrap();
                Done::Told
            }
            Act::Forget => match own.forget(&first).await.unwrap() {
                Forgotten::Forgotten => Done::Removed,
                _ => Done::Refused,
            },
            Act::Reap => {
                let mut gone = 0;
                for _ in 0..2 {
                    let reaped = own.reap(RETENTION).await.unwrap();
                    gone += reaped.tasks + reaped.sessions;
                }
                if gone > 0 { Done::Removed } else { Done::Told }
            }
        }
    })
}

/// Its request.
pub(crate) fn name(who: usize) -> String {
    format!("request-{who}")
}

fn at_once_released() -> Release {
    Release::Cancel { wait: Seconds::default() }
}

fn begun(answer: Acquired) -> Done {
    match answer {
        Acquired::Acquired(_) => Done::Granted,
        Acquired::SessionReleased { .. } => Done::Released,
        _ => Done::Refused,
    }
}

fn regranted(answer: Regranted) -> Done {
    match answer {
        Regranted::Acquired(_) => Done::Granted,
        Regranted::Fenced { .. } => Done::Refused,
    }
}

fn sealed(answer: Released) -> Done {
    match answer {
        Released::Released { revision, .. } => Done::Sealed(revision),
        Released::Refused { .. } => Done::Refused,
    }
}
