//! The reads: whatever waits is asked at once, each is answered from one snapshot.

use std::sync::Arc;

use redis::{Cmd, Value};
use tokio::sync::{mpsc, oneshot};

use super::answer::Commons;
use super::fault::{Fault, Step};
use super::link::{Link, Shared};

/// The most reads that are asked at once.
const MOST: usize = 256;

/// What becomes of an answer.
pub(super) type Then = Box<dyn FnOnce(Step<Value>, &mut Commons) + Send>;

/// A read.
pub(super) struct Read {
    pub(super) call: Cmd,
    pub(super) then: Then,
}

impl Read {
    /// A read and the place where its answer will be.
    pub(super) fn new<T: Send + 'static>(
        call: Cmd,
        take_apart: impl FnOnce(Value, &mut Commons) -> Step<T> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Step<T>>) {
        let (to, answer) = oneshot::channel();
        let then = Box::new(move |value: Step<Value>, commons: &mut Commons| {
            // Nobody waits any more: fine.
            let _ = to.send(value.and_then(|value| take_apart(value, commons)));
        });
        (Self { call, then }, answer)
    }
}

/// Asks until nobody can want anything any more.
pub(super) async fn run(shared: Arc<Shared>, mut mailbox: mpsc::UnboundedReceiver<Read>) {
    let mut link = Link::new(shared);
    let mut commons = Commons::default();
    loop {
        let mut batch = Vec::new();
        if mailbox.recv_many(&mut batch, MOST).await == 0 {
            return;
        }
        let mut pipe = redis::pipe();
        pipe.ignore_errors();
        let mut takers = Vec::with_capacity(batch.len());
        for Read { call, then } in batch {
            pipe.add_command(call);
            takers.push(then);
        }
        let mut answers = link.send(&pipe).await;
        // The connection had ended before: reading twice does no harm.
        if matches!(answers, Err(Fault::Lost(_))) {
            answers = link.send(&pipe).await;
        }
        match answers {
            Ok(answers) => {
                for (then, answer) in takers.into_iter().zip(answers) {
                    then(answer, &mut commons);
                }
            }
            Err(fault) => takers.into_iter().for_each(|then| then(Err(fault.clone()), &mut commons)),
        }
    }
}
