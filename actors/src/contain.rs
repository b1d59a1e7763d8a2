//! Containment of user code: a panic in a poll, a call or a drop becomes data.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::exit::PanicText;
use crate::inside::{self, Inside};

/// Runs user code that is not a future.
pub(crate) fn call<R>(code: impl FnOnce() -> R) -> Result<R, PanicText> {
    // The values that unwind safety worries about are dropped with the child they belong to.
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| {
        let text = PanicText::of(&*payload);
        // A payload may panic in its own drop; it is a stranger's value.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(payload)));
        text
    })
}

/// A value of user code. Wherever it is dropped, a panic of its drop is contained, and told to nobody.
pub(crate) struct Kept<T>(Option<T>);

impl<T> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }

    /// It is there until it is taken or let go.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut()
    }

    /// From here on it is the caller's to contain.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.0.take()
    }

    /// Drops it here, and tells of a panic.
    pub(crate) fn let_go(&mut self) -> Result<(), PanicText> {
        let value = self.0.take();
        call(move || drop(value))
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if self.0.is_some() {
            let _ = self.let_go();
        }
    }
}

/// A user future whose panics, also those of its drop, are contained, and which is known to run inside a
/// generation while it is polled.
///
/// A panic in a drop that nobody polls for any more goes to `late`.
pub(crate) struct Contained<F, L: FnMut(PanicText)> {
    future: Option<F>,
    inside: Option<Inside>,
    late: L,
}

impl<F: Future + Unpin, L: FnMut(PanicText)> Contained<F, L> {
    pub(crate) fn new(future: F, inside: Option<Inside>, late: L) -> Self {
        Self { future: Some(future), inside, late }
    }
}

impl<F: Future + Unpin, L: FnMut(PanicText) + Unpin> Future for Contained<F, L> {
    type Output = Result<F::Output, PanicText>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let inside = self.inside;
        let Some(future) = &mut self.future else {
            return Poll::Pending;
        };
        let poll = || Pin::new(future).poll(context);
        let polled = match call(|| inside::enter(inside, poll)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(panic),
        };
        let future = self.future.take();
        // The first cause is what counts: a panic in the drop is told only if the poll had none.
        Poll::Ready(match (polled, call(|| drop(future))) {
            (Ok(output), Ok(())) => Ok(output),
            (Err(panic), _) | (Ok(_), Err(panic)) => Err(panic),
        })
    }
}

impl<F, L: FnMut(PanicText)> Drop for Contained<F, L> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take()
            && let Err(panic) = call(|| drop(future))
        {
            (self.late)(panic);
        }
    }
}
