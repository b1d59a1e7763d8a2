//! What is a process's own, where the runtime may drop it and nobody would hear of a panic.

use std::ops::Deref;

use crate::child::Child;
use crate::contain::Kept;
use crate::exit::PanicText;

/// A value of a child's code. Wherever it is dropped, a panic of its drop is contained, and told.
pub(crate) struct Held<T, C: Deref<Target = Child>> {
    value: Kept<T>,
    child: C,
}

impl<T, C: Deref<Target = Child>> Held<T, C> {
    pub(crate) fn new(value: T, child: C) -> Self {
        Self { value: Kept::new(value), child }
    }

    /// It is there as long as this is.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// It is there as long as this is.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        let value = self.value.get_mut();
        debug_assert!(value.is_some(), "it is there as long as this is");
        value
    }

    /// From here on it is the caller's to contain.
    pub(crate) fn take(mut self) -> Option<T> {
        let value = self.value.take();
        debug_assert!(value.is_some(), "it is there as long as this is");
        value
    }

    /// Drops it here: a panic is the caller's to tell.
    pub(crate) fn let_go(mut self) -> Result<(), PanicText> {
        self.value.let_go()
    }
}

impl<T, C: Deref<Target = Child>> Drop for Held<T, C> {
    fn drop(&mut self) {
        if let Err(panic) = self.value.let_go() {
            self.child.fail("drop", &panic);
            self.child.note_late_panic(panic);
        }
    }
}
