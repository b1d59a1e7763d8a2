//! Keeps panics that a scenario asked for out of the test's output. The kernel contains them; what they said
//! is in the transcript.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// The last panic of this thread while it is quiet; none while it is not.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// While it lives, panics on this thread print nothing.
#[derive(Debug)]
pub(super) struct Quiet(());

impl Quiet {
    pub(super) fn begin() -> Self {
        static HOOKED: Once = Once::new();
        HOOKED.call_once(hook);
        LAST.set(Some(String::new()));
        Self(())
    }

    /// What the last panic on this thread would have printed.
    pub(super) fn last_panic() -> String {
        LAST.with_borrow(|last| last.clone().unwrap_or_default())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        LAST.set(None);
    }
}

/// Hooks are the process's, not the thread's: this one is set once, and hands on what is not to be quiet.
fn hook() {
    let otherwise = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let heard = LAST.try_with(|last| match &mut *last.borrow_mut() {
            Some(last) => {
                *last = info.to_string();
                true
            }
            None => false,
        });
        if heard != Ok(true) {
            otherwise(info);
        }
    }));
}
