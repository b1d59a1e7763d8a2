//! The life of a function: one call.

use std::sync::Arc;

use super::{Ending, Life, contained};
use crate::child::Child;
use crate::contain::{self, Kept};
use crate::exit::{ExitReason, PanicText, ProcessResult};
use crate::process::{FunctionBody, ProcessContext};

/// When it is cut off the code goes first, then the end is told.
pub(super) struct Call {
    pub(super) body: Kept<FunctionBody>,
    pub(super) ending: Ending,
}

/// A function that is cut off before it begins goes here: then the end is told.
impl Drop for Call {
    fn drop(&mut self) {
        if let Err(panic) = self.body.let_go() {
            self.ending.child.fail("drop", &panic);
        }
    }
}

impl Life for Call {
    fn child(&self) -> &Arc<Child> {
        &self.ending.child
    }

    async fn live(&mut self) {
        let child = &self.ending.child;
        if let Some(body) = self.body.take() {
            let context = ProcessContext::new(Arc::clone(child));
            let outcome = contained(child, contain::call(|| body(context))).await;
            child.finish(exit(child, outcome)).await;
        }
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
