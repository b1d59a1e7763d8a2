//! An allocator that knows how many bytes each thread holds.
//!
//! By thread, so that tests that run beside each other do not disturb the count: a test and its
//! current-thread runtime allocate and free on the test's own thread.
#![allow(
    unsafe_code,
    reason = "a global allocator cannot be written without it; it only counts and forwards"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

pub(crate) struct Counting;

/// The bytes that this thread allocated and that are not freed.
pub(crate) fn live_bytes() -> isize {
    LIVE.with(Cell::get)
}

fn count(bytes: isize) {
    // A thread that ends frees its last values after its own have gone.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

// SAFETY: every call is forwarded to the system's allocator with the caller's own arguments; counting touches
// a cell of the thread that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promises are those of `System::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller's promises are those of `System::dealloc`; the pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
