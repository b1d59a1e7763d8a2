//! What every store has to pass: one suite, behind the feature `conformance`.
//!
//! A [`Case`] is a promise with a name; those that prove a promise of a contract begin with its id. Each is
//! given a [`Fixture`] of its own: an empty store whose clock stands still until the case sets it. A case that
//! needs what a store cannot do holds it to that, and is not left out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a case that fails panics")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::Store;
use crate::clock::ManualClock;

mod agenda;
mod agents;
mod claims;
mod data;
mod events;
mod idempotency;
mod laneless;
mod lanes;
mod leases;
mod owned;
mod ownership;
mod pages;
mod prune;
mod runs;
mod schedules;
mod shared;
mod support;
mod tasks;
mod turns;
mod whole;

pub use support::{claim_request, spec};

/// Opens a store again on the same records, as another OS process would.
pub type Reopen = Arc<dyn Fn() -> BoxFuture<'static, Arc<dyn Store>> + Send + Sync>;

/// An empty store of its own for a case.
#[derive(Clone)]
pub struct Fixture {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The clock it goes by.
    pub clock: Arc<ManualClock>,
    /// Opens it again; a store that is durable has this.
    pub reopen: Option<Reopen>,
    /// What has to live as long: a folder, a server.
    pub keep: Option<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture").field("store", &self.store.capabilities().name).finish_non_exhaustive()
    }
}

/// A promise that a store keeps, and how to find out.
#[derive(Clone, Copy)]
pub struct Case {
    /// The promise; an id of a contract in front if it proves one.
    pub name: &'static str,
    /// Panics if the store does not keep it.
    pub run: fn(Fixture) -> BoxFuture<'static, ()>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Lists the cases of a file.
macro_rules! list {
    ($($name:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] =
            &[$(super::Case { name: stringify!($name), run: |fixture| Box::pin($name(fixture)) }),*];
    };
}
use list;

/// Every case, in the order of their files.
#[must_use]
pub fn cases() -> Vec<Case> {
    let files = [
        runs::CASES,
        laneless::CASES,
        leases::CASES,
        claims::CASES,
        lanes::CASES,
        turns::CASES,
        tasks::CASES,
        schedules::CASES,
        idempotency::CASES,
        events::CASES,
        data::CASES,
        pages::CASES,
        agenda::CASES,
        agents::CASES,
        prune::CASES,
        whole::CASES,
        owned::CASES,
        shared::CASES,
    ];
    [files.concat(), ownership::cases()].concat()
}
