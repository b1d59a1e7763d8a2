//! What a host that starts processes by its agents alone can do more than another: it marks them with a number
//! ([`mark`](super::mark)) that they hand down whatever they do to their environment, and adopts those that no mark
//! leads back to either. A host that adopts them becomes their parent when theirs has ended, and so knows that there
//! are some.
//!
//! # Invariants
//!
//! 1. A child of this process that it has not started itself was started by some attempt, while that attempt's program
//!    lived. So it is of no attempt that began after it; and once every attempt is over that had begun before it, its
//!    own is, and it is killed. That may be later than the end of its own: whose it is, among those, nobody can tell.
//! 2. What this process has started is known from before anybody looks: both happen under one lock. It is known until
//!    somebody has been told how it ended, so that nobody else is told.
//! 3. What is killed is a child that was not counted as ended: its number is nobody else's.
//!
//! Whatever else such a host started would bear a mark now and then, and would be taken for an orphan. The program
//! `tenure` starts nothing else; a library host decides for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use tokio::sync::Notify;

use super::mark::{Inherited, Numbers};

/// How often is looked again for what was started by what was killed, and how long that is given to be gone.
const ROUNDS: usize = 200;
const BETWEEN: Duration = Duration::from_millis(5);

static STATE: Mutex<State> =
    Mutex::new(State { adopting: None, children: BTreeSet::new(), attempts: BTreeMap::new() });
/// Notified when an attempt is over.
static OVER: Notify = Notify::const_new();

struct State {
    /// If this process adopts orphans: the numbers that attempts are marked with.
    adopting: Option<Numbers>,
    /// What this process has started, and was not told the end of.
    children: BTreeSet<u32>,
    /// The programs of attempts in progress, and when each began.
    attempts: BTreeMap<u32, u64>,
}

/// A process that this one has started.
pub(super) struct Known {
    id: Option<u32>,
    number: Option<u64>,
}

impl Known {
    /// What it was marked with.
    pub(super) const fn number(&self) -> Option<u64> {
        self.number
    }

    /// It is over, and somebody was told how it ended.
    pub(super) fn over(&mut self) {
        let Some(id) = self.id.take() else { return };
        let mut state = STATE.lock();
        state.children.remove(&id);
        if state.attempts.remove(&id).is_some() {
            OVER.notify_one();
        }
    }
}

/// Starts the program of an attempt.
pub(super) fn start_program<T>(
    start: impl FnOnce() -> io::Result<T>,
    id_of: impl FnOnce(&T) -> Option<u32>,
) -> io::Result<(T, Known)> {
    known(start, id_of, true)
}

/// Starts a process that is of no attempt.
pub(super) fn start_helper<T>(
    start: impl FnOnce() -> io::Result<T>,
    id_of: impl FnOnce(&T) -> Option<u32>,
) -> io::Result<(T, Known)> {
    known(start, id_of, false)
}

fn known<T>(
    start: impl FnOnce() -> io::Result<T>,
    id_of: impl FnOnce(&T) -> Option<u32>,
    is_program: bool,
) -> io::Result<(T, Known)> {
    let mut state = STATE.lock();
    let numbers = state.adopting.as_mut();
    let adopts = numbers.is_some();
    let number = numbers.filter(|_| is_program).map(Numbers::next);
    let inherited = if adopts { Inherited::number(number) } else { None };
    let started = start()?;
    let number = number.filter(|_| inherited.is_some());
    drop(inherited);
    let id = id_of(&started).filter(|_| adopts);
    if let Some(id) = id {
        state.children.insert(id);
        if is_program {
            // If it cannot be told it may have begun before anything.
            state.attempts.insert(id, Seen::of(id).map_or(0, |seen| seen.began));
        }
    }
    Ok((started, Known { id, number }))
}

/// What the numbers of this host begin with, if it marks what it starts.
pub(super) fn number_of_host() -> Option<u64> {
    STATE.lock().adopting.as_ref().map(Numbers::host)
}

/// What the programs of this OS process leave behind, if it adopts that. For a program that starts no processes but by
/// its agents: any other would be taken for an orphan, and ended. Whoever adopts has to [`settle`](Self::settle) when
/// the system tells that a child has ended (SIGCHLD), and when an attempt [is over](Self::over).
#[derive(Debug)]
pub struct Orphans(());

impl Orphans {
    /// Adopts them from now on.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn adopt() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        STATE.lock().adopting.get_or_insert_with(Numbers::draw);
        Ok(Self(()))
    }

    /// Waits until an attempt is over, if none was since it was asked last.
    ///
    /// Cancel safety: nothing is lost when the future is dropped.
    pub async fn over(&self) {
        OVER.notified().await;
    }

    /// Ends what is of no attempt in progress, and counts what has ended. Looks through the processes of the machine.
    ///
    /// # Errors
    /// When the runtime ends.
    pub async fn settle(&self) -> io::Result<()> {
        crate::tasks::blocking(sweep).await
    }
}

fn sweep() {
    for _ in 0..ROUNDS {
        if look() == 0 {
            return;
        }
        // What was killed is gone in a moment, and only then has what it had started another parent.
        std::thread::sleep(BETWEEN);
    }
    tracing::warn!("what programs have left behind does not end when it is killed");
}

/// About how many orphans something was done. Programs are started meanwhile: what was just started is known before
/// the lock is to be had.
fn look() -> usize {
    let children: Vec<u32> = processes().into_iter().filter(|id| is_child(*id)).collect();
    children.into_iter().filter(|id| STATE.lock().settle(*id)).count()
}

fn is_child(id: u32) -> bool {
    Seen::of(id).is_some_and(|seen| seen.parent == std::process::id())
}

impl State {
    /// Whether something was done about it: then what it had started is looked for again.
    fn settle(&self, orphan: u32) -> bool {
        if self.children.contains(&orphan) {
            return false;
        }
        let (Some(seen), Some(id)) = (Seen::of(orphan), pid(orphan)) else { return false };
        // Again: one that was ours may have been counted meanwhile, and its number be another's.
        if seen.parent != std::process::id() {
            return false;
        }
        if seen.has_ended {
            // Whoever it was: nobody else is to be told.
            return waitpid(Some(id), WaitOptions::NOHANG).is_ok_and(|ended| ended.is_some());
        }
        if self.attempts.values().any(|began| *began <= seen.began) {
            return false;
        }
        // What belongs to another user cannot be ended, and is left.
        kill_process(id, Signal::KILL).is_ok()
    }
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

/// The children of this process, where the system lists them; else all processes.
fn processes() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists: io::Result<Vec<String>> =
        threads.map(|thread| fs::read_to_string(thread?.path().join("children"))).collect();
    match lists {
        Ok(lists) => lists.iter().flat_map(|list| list.split_ascii_whitespace()).filter_map(number).collect(),
        Err(_) => {
            let all = fs::read_dir("/proc").into_iter().flatten();
            all.filter_map(|entry| number(entry.ok()?.file_name().to_str()?)).collect()
        }
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok()
}

/// What the system says of a process.
struct Seen {
    has_ended: bool,
    parent: u32,
    /// In ticks since the machine began.
    began: u64,
}

impl Seen {
    fn of(id: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// The name of a program may hold blanks and brackets: what counts stands behind the last one.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        Some(Self { has_ended, parent, began: fields.nth(17)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_of_a_process_is_read_whatever_its_name_is() {
        let stat = "7 (a) S 1 (b) Z 42 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 8675309 1000 1 184";
        let seen = Seen::parse(stat).unwrap();
        assert_eq!((seen.has_ended, seen.parent, seen.began), (true, 42, 8_675_309));
        assert!(Seen::parse("7 (a").is_none());
        let own = Seen::of(std::process::id()).unwrap();
        assert!(!own.has_ended && own.began > 0);
    }
}
