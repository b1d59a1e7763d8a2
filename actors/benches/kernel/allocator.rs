//! The system's allocator with a count of the bytes that are live.

#![allow(unsafe_code, reason = "a global allocator is an unsafe trait; this one only passes on and counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

pub(crate) struct Counting;

/// Off while time is measured: threads would contend for the count, at every allocation.
static COUNTS: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);

/// Counts from here on. What was allocated before and is freed afterwards counts as negative.
pub(crate) fn start_counting() {
    COUNTS.store(true, Ordering::Relaxed);
}

/// How many more bytes are live than when the counting started.
pub(crate) fn live_bytes() -> isize {
    LIVE.load(Ordering::Relaxed)
}

fn count(change: isize) {
    if COUNTS.load(Ordering::Relaxed) {
        LIVE.fetch_add(change, Ordering::Relaxed);
    }
}

/// A layout is never larger than `isize::MAX`.
fn signed(size: usize) -> isize {
    size.cast_signed()
}

// SAFETY: every method hands its arguments to `System` unchanged, whose contract is the same, and returns what
// it returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(signed(new_size) - signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
