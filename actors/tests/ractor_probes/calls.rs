//! Calls: time-outs, cycles, and what becomes of work whose caller has gone.

use std::time::Duration;

use ractor::MessagingErr;
use ractor::rpc::CallResult;
use tokio::sync::oneshot;

use crate::kit::{Log, Plan, Work, gate, quiet, soon, work};

const LIMIT: u64 = 1_000;

fn answer(reply: ractor::RpcReplyPort<u8>) -> Work {
    work(async move { drop(reply.send(7)) })
}

/// Every call has a timeout: a handler that calls its own actor, or a cycle, is ended by nothing else.
#[tokio::test(start_paused = true)]
async fn a_self_call_times_out_with_call_t() {
    let actor = Plan::default().spawn().await;
    let myself = actor.actor.clone();
    let (tell, told) = oneshot::channel();
    actor.cast(work(async move {
        let answer = ractor::call_t!(myself, answer, LIMIT);
        assert!(tell.send(answer.unwrap_err().to_string()).is_ok());
    }));
    assert_eq!(soon(told).await.unwrap(), "timeout");
    assert_eq!(ractor::call_t!(actor.actor, answer, LIMIT).unwrap(), 7, "the actor is free again");
}

/// A handler that hangs in a call without a timeout is beyond patience: only the escalation to kill ends it.
#[tokio::test(start_paused = true)]
async fn a_self_call_without_timeout_is_broken_by_kill_and_not_by_stop() {
    let log = Log::default();
    let mut actor = Plan::default().spawn().await;
    let myself = actor.actor.clone();
    let note = log.on_drop("handler dropped");
    actor.cast(work(async move {
        let _note = note;
        drop(myself.call(answer, None).await);
    }));
    quiet().await;
    actor.actor.stop(None);
    quiet().await;
    assert!(!actor.task.is_finished());
    assert!(log.lines().is_empty(), "the stop is never taken");
    actor.actor.kill();
    actor.ended().await;
    assert_eq!(log.lines(), ["handler dropped"]);
}

/// "Cut off" has several faces, which the kernel maps to one typed error: refused, reply dropped, too late.
#[tokio::test(start_paused = true)]
async fn a_call_can_end_without_an_answer_in_three_ways() {
    let mut actor = Plan::default().spawn().await;
    let limit = Some(Duration::from_millis(LIMIT));
    assert_eq!(actor.actor.call(answer, limit).await.unwrap(), CallResult::Success(7));

    let forgetful = |reply| work(async move { drop::<ractor::RpcReplyPort<u8>>(reply) });
    assert_eq!(actor.actor.call(forgetful, limit).await.unwrap(), CallResult::SenderError);

    let busy = actor.busy().await;
    assert_eq!(actor.actor.call(answer, limit).await.unwrap(), CallResult::Timeout);

    let caller = actor.actor.clone();
    let cut_off = tokio::spawn(async move { caller.call(answer, limit).await.unwrap() });
    quiet().await;
    actor.actor.kill();
    assert_eq!(soon(cut_off).await.unwrap(), CallResult::SenderError, "a kill is no timeout");
    drop(busy);
    actor.ended().await;
    let refused = actor.actor.call(answer, limit).await;
    assert!(matches!(refused, Err(MessagingErr::SendErr(_))), "the message comes back");
}

/// Work does not end with its caller: what must be undone then has to look at its reply port, or be told.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_does_not_cancel_the_work() {
    let log = Log::default();
    let actor = Plan::default().spawn().await;
    let (mut door, hold) = gate();
    let done = log.clone();
    let caller = actor.actor.clone();
    let call = tokio::spawn(async move {
        let slow = |reply: ractor::RpcReplyPort<u8>| {
            work(async move {
                assert!(!reply.is_closed());
                hold.wait().await;
                assert!(reply.is_closed(), "the handler can see that the caller has gone");
                assert!(reply.send(7).is_err());
                done.note("work done");
            })
        };
        drop(caller.call(slow, None).await);
    });
    door.reached().await;
    call.abort();
    assert!(soon(call).await.unwrap_err().is_cancelled());
    door.open();
    actor.fence().await;
    assert_eq!(log.lines(), ["work done"]);
}

/// The way round call cycles: the answer comes as a message, and the handler that asked is free meanwhile.
#[tokio::test(start_paused = true)]
async fn a_forwarded_call_posts_its_answer_as_a_message() {
    let log = Log::default();
    let (asker, asked) = (Plan::default().spawn().await, Plan::default().spawn().await);
    let busy = asked.busy().await;
    let (from, to, answers) = (asked.actor.clone(), asker.actor.clone(), log.clone());
    asker.cast(work(async move {
        let mapping = move |n| {
            assert_eq!(n, 7);
            answers.noting("answer")
        };
        from.call_and_forward(answer, &to, mapping, None).unwrap();
    }));
    asker.cast(log.noting("meanwhile"));
    asker.fence().await;
    assert_eq!(log.lines(), ["meanwhile"]);
    busy.open();
    quiet().await;
    assert_eq!(log.lines(), ["meanwhile", "answer"]);
}
