//! Children by their ids, found without a lock.
//!
//! An entry carries the hash of its id. A table that grows asks for the hashes of all that it holds, and the texts
//! are by then far from every cache.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use papaya::{Equivalent, HashMap, HashMapRef, LocalGuard};

use crate::child::Child;
use crate::id::ProcessId;

#[derive(Default)]
pub(super) struct Index {
    children: HashMap<Key, Weak<Child>, BuildHasherDefault<Known>>,
    random: RandomState,
}

/// The place of one id.
pub(super) struct Slot<'a> {
    children: HashMapRef<'a, Key, Weak<Child>, BuildHasherDefault<Known>, LocalGuard<'a>>,
    wanted: Wanted<'a>,
}

impl Index {
    pub(super) fn slot<'a>(&'a self, id: &'a str) -> Slot<'a> {
        Slot { children: self.children.pin(), wanted: Wanted { hash: self.random.hash_one(id), id } }
    }

    /// All that are left of those that were entered, in no order.
    pub(super) fn all(&self) -> Vec<Arc<Child>> {
        self.children.pin().values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn clear(&self) {
        self.children.pin().clear();
    }
}

impl Slot<'_> {
    pub(super) fn child(&self) -> Option<Arc<Child>> {
        self.children.get(&self.wanted).and_then(Weak::upgrade)
    }

    pub(super) fn enter(&self, child: &Arc<Child>) {
        let key = Key { hash: self.wanted.hash, id: child.id.clone() };
        self.children.insert(key, Arc::downgrade(child));
    }

    /// By identity: the id may belong to a successor by now.
    pub(super) fn leave(&self, child: &Arc<Child>) {
        let is_own = |_: &Key, found: &Weak<Child>| std::ptr::eq(found.as_ptr(), Arc::as_ptr(child));
        let _ = self.children.remove_if(&self.wanted, is_own);
    }
}

#[derive(PartialEq, Eq)]
struct Key {
    hash: u64,
    id: ProcessId,
}

struct Wanted<'a> {
    hash: u64,
    id: &'a str,
}

impl Equivalent<Key> for Wanted<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.hash == key.hash && self.id == key.id.as_str()
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for Wanted<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Hands on a hash that is known.
#[derive(Default)]
struct Known(u64);

impl Hasher for Known {
    fn write(&mut self, _: &[u8]) {
        debug_assert!(false, "a hash that is known is one number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
