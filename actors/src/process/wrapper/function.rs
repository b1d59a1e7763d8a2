//! The actor of a function: its whole life is its `post_start`, in which it is linked, visible and killable.
//!
//! It is told to stop by the order itself and takes no message, so it never looks into its mailbox: that, and the
//! word of its start to a supervisor that does not listen, are a quarter of what an actor costs.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::{Ending, Over, contained};
use crate::child::Child;
use crate::contain::{self, Kept};
use crate::exit::{ExitReason, PanicText, ProcessResult};
use crate::process::{FunctionBody, ProcessContext};

pub(super) struct FunctionActor;

/// When it is cut off the code goes first, then the end is told.
pub(super) struct Life {
    pub(super) body: Kept<FunctionBody>,
    pub(super) ending: Ending,
}

/// A function that is cut off before it begins goes here: then the end is told.
impl Drop for Life {
    fn drop(&mut self) {
        if let Err(panic) = self.body.let_go() {
            self.ending.child.fail("drop", &panic);
        }
    }
}

impl Actor for FunctionActor {
    type Msg = ();
    type State = Life;
    type Arguments = Life;

    async fn pre_start(&self, _: ActorRef<()>, life: Life) -> Result<Life, ActorProcessingErr> {
        Ok(life)
    }

    async fn post_start(&self, _: ActorRef<()>, life: &mut Life) -> Result<(), ActorProcessingErr> {
        let child = &life.ending.child;
        child.core.chaos.pause().await;
        if let Some(body) = life.body.take() {
            let context = ProcessContext::new(Arc::clone(child));
            let outcome = contained(child, contain::call(|| body(context))).await;
            child.finish(exit(child, outcome)).await;
        }
        Err(Over.into())
    }
}

fn exit(child: &Child, outcome: Result<ProcessResult, PanicText>) -> ExitReason {
    match outcome {
        Ok(Ok(())) if child.is_told_to_stop() => ExitReason::Stopped,
        Ok(Ok(())) => ExitReason::Completed,
        Ok(Err(error)) => {
            child.fail("run", &error);
            ExitReason::Failed(error.into())
        }
        Err(panic) => {
            child.fail("run", &panic);
            ExitReason::Panicked(panic.0)
        }
    }
}
