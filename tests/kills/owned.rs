//! Hosts that execute what they own, killed in their calls of the store: before one, in the middle of the conversation
//! with a server or of the transaction of a file, and after it was applied. And one that is paused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure::model::{EventKind, InstanceId, RunId, RunStatus, Subject, TaskId};
use tenure::ownership::{Expected, Inspection, Ownership, OwnershipSettings, TaskKey, TaskState};
use tenure::store::RunFilter;

use crate::dice::say;
use crate::ground::Ground;
use crate::stage::{Heard, Stage, Word};
use crate::wire::{Point, Setup, Told, What, Window, owned_session};

/// What an owner asks of its store, and what it is doing meanwhile.
const CALLS: [(Window, &str); 3] =
    [(Window::Start, "plain"), (Window::Renew, "hold"), (Window::Outcome, "plain")];

/// Where in a call it dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    At(Point),
    /// So many pieces of what it and its server say have passed.
    AfterPieces(usize),
}

fn places(ground: Ground) -> Vec<Place> {
    use Point::{After, Before, BeforeEvent};
    let within = match ground.server {
        // Of a transaction that takes ten commands also the last ones.
        Some(_) => ground.pace([0, 1, 2, 3], [0, 5, 11, 17]).map(Place::AfterPieces).to_vec(),
        None => vec![Place::At(BeforeEvent)],
    };
    [vec![Place::At(Before)], within, vec![Place::At(After)]].concat()
}

/// A task whose owner was killed.
struct Left {
    key: TaskKey,
    owner: InstanceId,
    window: Window,
    place: Place,
}

pub(crate) async fn own_s5_1_an_owner_killed_in_any_call_is_gone_and_its_task_is_done_once(ground: Ground) {
    let mut stage = Stage::set(ground, &[]).await;
    stage.allow(Duration::from_secs(ground.pace(100, 300)));
    let peer = stage.worker(&stage.setup.clone()).await;
    stage.proxies = ground.server.map(|_| 1);
    let (mut left, mut cut) = (Vec::new(), 0);
    for (window, query) in CALLS {
        for place in places(ground) {
            let key = owned_session().task(left.len() as u64 + 1);
            let (owner, was_cut) = kill(&mut stage, &key, query, window, place).await;
            cut += usize::from(was_cut);
            left.push(Left { key, owner, window, place });
        }
    }
    let within = left.iter().filter(|left| matches!(left.place, Place::AfterPieces(_))).count();
    say(&format!("owners on {}: {} killed, {cut} of {within} in a conversation", ground.name, left.len()));
    assert!(within == 0 || cut >= CALLS.len(), "no kill has cut a conversation");

    let grace = Duration::from_millis(stage.setup.grace_ms);
    let settings = OwnershipSettings { grace, ..OwnershipSettings::default() };
    let own = Ownership::new(Arc::clone(&stage.store), settings);
    for left in &left {
        let seen = verdict(&mut stage, &own, left).await;
        expected(left, &seen);
        done_again(&mut stage, &own, peer, &seen).await;
        judge(&stage, &own, left).await;
    }
    stage.shut_down(peer).await;
    assert_eq!(stage.store.check(false).await.unwrap(), [""; 0]);
}

/// Has a worker of its own begin a task, and kills it there. Answers who that was, and whether it was cut off in the
/// middle of what it said.
async fn kill(
    stage: &mut Stage,
    key: &TaskKey,
    query: &str,
    window: Window,
    place: Place,
) -> (InstanceId, bool) {
    let point = match place {
        Place::At(point) => point,
        Place::AfterPieces(_) => Point::Before,
    };
    stage.policy(move |_, at| {
        let stops = at.window == window && (at.point == point || at.point == Point::After);
        if stops { Word::Hold } else { Word::Go }
    });
    let setup = Setup { windows: vec![window], ..stage.setup.clone() };
    let worker = stage.worker(&setup).await;
    stage.own(worker, key.task, Expected::NotExists, query);
    stage.until("the owner is there", |stage, _| (!stage.held_in(window).is_empty()).then_some(())).await;
    let mut cut = false;
    if let Place::AfterPieces(pieces) = place {
        stage.freeze(worker, pieces);
        stage.release(|n, at| n == worker && at.point == Point::Before);
        // If less was to be said than that, it has come to the end of its call.
        cut = stage
            .until("the owner is cut off", |stage, heard| match heard {
                Heard::Frozen(n) if *n == worker => Some(true),
                _ => (!stage.held_in(window).is_empty()).then_some(false),
            })
            .await;
    }
    let owner = stage.instance(worker).expect("it was ready");
    stage.kill(worker);
    (owner, cut)
}

/// How a task stands once its owner is known to be gone. Until then it is seen to run, or not to answer.
async fn verdict(stage: &mut Stage, own: &Ownership, left: &Left) -> Inspection {
    loop {
        let seen = own.inspect(&left.key).await.expect("an answer");
        match &seen.state {
            TaskState::Running { owner, .. } => assert_eq!(*owner, left.owner, "nobody else owns it"),
            TaskState::Suspect { owner, fence, expired_for, .. } => {
                assert_eq!(*owner, left.owner);
                if expired_for.duration() >= own.settings().grace {
                    own.declare_lost(&left.key, seen.run, *fence, None).await.expect("an answer");
                    continue;
                }
            }
            TaskState::Lost { last_owner, .. } => {
                assert_eq!(*last_owner, Some(left.owner));
                return seen;
            }
            TaskState::Terminal(_) | TaskState::Unknown => return seen,
            other => panic!("{}: {other:?}", left.key),
        }
        stage.until_past(Stage::now().plus(Duration::from_millis(20))).await;
    }
}

/// What was not asked for did not happen, and what was answered did.
fn expected(left: &Left, seen: &Inspection) {
    let states: &[&str] = match (left.window, left.place) {
        (Window::Start, Place::At(Point::Before | Point::BeforeEvent)) => &["unknown"],
        (Window::Start, Place::AfterPieces(_)) => &["unknown", "lost"],
        (Window::Outcome, Place::At(Point::After)) => &["completed"],
        (Window::Outcome, Place::AfterPieces(_)) => &["lost", "completed"],
        _ => &["lost"],
    };
    let found = seen.state.as_str();
    assert!(states.contains(&found), "killed in {:?} at {:?}: {found}", left.window, left.place);
}

/// Another owner begins it, or does it again in the place of the one that is lost.
async fn done_again(stage: &mut Stage, own: &Ownership, peer: usize, seen: &Inspection) {
    let expect = match &seen.state {
        TaskState::Unknown => Expected::NotExists,
        TaskState::Lost { .. } => Expected::LostRun(seen.run),
        _ => return,
    };
    stage.own(peer, seen.key.task, expect, "plain");
    loop {
        let heard = stage.next("a peer has done it").await;
        if let Heard::Told(_, Told::Answered { answer, .. }) = &heard {
            assert!(answer.is_ok(), "the peer owns it: {answer:?}");
        }
        if own.inspect(&seen.key).await.expect("an answer").state.as_str() == "completed" {
            return;
        }
    }
}

/// It has completed once, under the highest fence that the world was shown, and nobody did anything of it that no
/// stored grant allowed (I2, I4, I8).
async fn judge(stage: &Stage, own: &Ownership, left: &Left) {
    let key = &left.key;
    let latest = own.inspect(key).await.expect("an answer");
    assert_eq!(latest.state.as_str(), "completed", "{key}");
    let name = format!("owned.test.workers.all.{}.", key.task);
    let filter = RunFilter { owned: Some(true), ..RunFilter::default() };
    let runs = stage.runs(filter).await.into_iter().filter(|run| run.run_id.as_str().starts_with(&name));
    let mut granted = BTreeMap::new();
    let mut completed = Vec::new();
    for run in runs {
        for event in stage.events(&run.run_id).await {
            match event.event {
                EventKind::Started => drop(granted.insert(event.fence, run.run_id.clone())),
                EventKind::Completed => completed.push(event.fence),
                _ => {}
            }
        }
        let over = run.status == RunStatus::Completed || run.status == RunStatus::Lost;
        assert!(over, "run {} of {key} is {}", run.run_id, run.status);
    }
    let [completed] = completed[..] else { panic!("{key} has completed under {completed:?}") };
    assert_eq!(granted.keys().last(), Some(&completed), "the last grant of {key} counts");
    let effects = stage.sink.log().into_iter().filter(|had| had.effect.run_id.as_str().starts_with(&name));
    let effects: Vec<_> = effects.collect();
    for had in &effects {
        assert_eq!(granted.get(&had.effect.fence), Some(&had.effect.run_id), "{had:?} without a grant");
    }
    let last = effects.iter().rev().find(|had| had.taken).expect("an effect");
    assert_eq!((last.effect.what, last.effect.fence), (What::End, completed), "{key}");
}

/// The first run of a task of the session that all share.
fn first_run(key: &TaskKey) -> RunId {
    RunId::new(format!("owned.test.workers.all.{}.1", key.task)).expect("an id")
}

/// Two tasks whose owner is paused until they are lost. A peer does the first one again, the other one is left. When
/// the owner wakes it is fenced, and is given back what nobody took.
pub(crate) async fn own_l09_an_owner_paused_past_lease_and_grace_is_fenced_or_given_its_task_back(
    ground: Ground,
) {
    let mut stage = Stage::set(ground, &[]).await;
    let peer = stage.worker(&stage.setup.clone()).await;
    let setup = Setup { windows: vec![Window::Renew, Window::Outcome], ..stage.setup.clone() };
    let worker = stage.worker(&setup).await;
    let [taken, left] = [1, 2].map(|task| owned_session().task(task));
    let mut held = Vec::new();
    for key in [&taken, &left] {
        stage.own(worker, key.task, Expected::NotExists, "deaf");
        held.push(stage.effect(&first_run(key), What::Hold).await.effect);
    }
    // It is paused where it is about to renew: not in a transaction, and what it is to find out it finds out by itself.
    stage.policy(move |n, at| {
        let renews = n == worker && at.window == Window::Renew && at.point == Point::Before;
        if renews { Word::Hold } else { Word::Go }
    });
    while stage.held_in(Window::Renew).is_empty() {
        stage.next("it is about to renew").await;
    }
    stage.pause(worker);

    let grace = Duration::from_millis(stage.setup.grace_ms);
    let settings = OwnershipSettings { grace, ..OwnershipSettings::default() };
    let own = Ownership::new(Arc::clone(&stage.store), settings);
    let owner = stage.instance(worker).expect("it was ready");
    let mut lost = Vec::new();
    for key in [&taken, &left] {
        let left = Left { key: key.clone(), owner, window: Window::Renew, place: Place::At(Point::Before) };
        lost.push(verdict(&mut stage, &own, &left).await);
    }
    assert!(lost.iter().all(|seen| seen.state.as_str() == "lost"), "{lost:?}");
    done_again(&mut stage, &own, peer, &lost[0]).await;

    stage.wake(worker);
    for effect in held {
        stage.sink.let_go(&effect.run_id, effect.fence);
    }
    let mut refused = Vec::new();
    let recovered = loop {
        if let Heard::Told(n, Told::At { at, .. }) = stage.next("what was left is given back").await
            && n == worker
            && at.window == Window::Outcome
        {
            refused.extend(at.refused);
        }
        let seen = own.inspect(&left).await.expect("an answer");
        if let TaskState::Terminal(finished) = seen.state {
            break finished;
        }
    };
    assert!(recovered.recovered && recovered.status == RunStatus::Completed, "{recovered:?}");
    assert!(!refused.is_empty() && refused.iter().all(|why| why.starts_with("Fenced")), "{refused:?}");
    stage.policy(|_, _| Word::Go);
    stage.release(|_, _| true);
    for n in [worker, peer] {
        stage.shut_down(n).await;
    }
    let now = own.inspect(&taken).await.expect("an answer");
    let TaskState::Terminal(finished) = now.state else { panic!("{now:?}") };
    assert_eq!((now.run, finished.recovered), (2, false), "what the peer came to counts");
    assert_eq!(stage.run(&first_run(&taken)).await.status, RunStatus::Lost);
    let session = Subject::Task(TaskId::new("owned.test.workers.all").expect("an id"));
    let told = stage.store.events(session, 0, 100).await.expect("events");
    let late: Vec<_> = told.iter().filter(|event| event.event == EventKind::OutcomeRefused).collect();
    assert!(late.iter().any(|event| event.data["run_id"] == first_run(&taken).as_str()), "{told:?}");
    assert_eq!(stage.store.check(false).await.unwrap(), [""; 0]);
}
