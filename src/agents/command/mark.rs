//! What tells the processes of an attempt from all others, whatever becomes of them: what they inherit.
//!
//! 1. A token in the environment. Programs may clear it.
//! 2. A number, as their limit of time under a scheduling that nobody asks for (`RLIMIT_RTTIME`, in microseconds):
//!    longer than any machine lives, so that it limits nothing. The system hands it down to all that they start and
//!    shows it to everybody. It is given where nothing else is started meanwhile; a program that sets this one limit
//!    as well bears it no longer.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uuid::Uuid;

/// What the system calls the limit.
const LIMIT: &str = "Max realtime timeout";
/// How many numbers a host has: as many as there are with the digits behind its own.
const NUMBERS: u64 = 1_000_000_000;

/// What the processes of one attempt have.
#[derive(Debug, Default)]
pub(super) struct Mark {
    /// `NAME=TOKEN`, in the environment.
    pub(super) variable: Option<String>,
    /// The limit.
    pub(super) number: Option<u64>,
}

impl Mark {
    /// Whether a process bears it. One that has ended has no environment any more.
    pub(super) fn is_on(&self, process: i32) -> bool {
        let has_variable = self.variable.as_deref().is_some_and(|variable| {
            let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|it| it == variable.as_bytes())
        });
        has_variable || self.number.is_some_and(|number| limit_of(process) == Some(number))
    }
}

fn limit_of(process: i32) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).ok()?;
    limits.lines().find_map(|line| line.strip_prefix(LIMIT))?.split_ascii_whitespace().next()?.parse().ok()
}

/// The numbers of a host's attempts: one drawn for the host, and nine digits behind it.
#[derive(Debug)]
pub(super) struct Numbers {
    host: u64,
    given: u64,
}

impl Numbers {
    pub(super) fn draw() -> Self {
        // Nine digits as well, so that both together are below what a limit can be.
        let host = NUMBERS / 10 + Uuid::new_v4().as_u64_pair().0 % (NUMBERS / 10 * 9);
        Self { host, given: 0 }
    }

    /// What all of them begin with.
    pub(super) const fn host(&self) -> u64 {
        self.host
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.given = (self.given + 1) % NUMBERS;
        self.host * NUMBERS + self.given
    }
}

/// While it lives, what this OS process starts inherits this limit, and no other.
pub(super) struct Inherited {
    before: Rlimit,
}

impl Inherited {
    /// None where the system does not allow it.
    pub(super) fn number(number: Option<u64>) -> Option<Self> {
        let before = getrlimit(Resource::Rttime);
        // Without a number: none that this process itself was given.
        setrlimit(Resource::Rttime, Rlimit { current: number.or(before.maximum), ..before }).ok()?;
        Some(Self { before })
    }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        // As it was: that is always allowed.
        let _ = setrlimit(Resource::Rttime, self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_their_host_and_differ() {
        let mut numbers = Numbers::draw();
        let (first, second) = (numbers.next(), numbers.next());
        assert_ne!(first, second);
        assert_eq!((first / NUMBERS, second / NUMBERS), (numbers.host(), numbers.host()));
        assert_eq!(first.to_string().len(), 18);
    }

    #[test]
    fn a_number_is_handed_down_to_what_clears_its_environment() {
        let mut numbers = Numbers::draw();
        let number = numbers.next();
        let inherited = Inherited::number(Some(number)).expect("the system allows it");
        let mut sleep = std::process::Command::new("env").args(["-i", "sleep", "1000"]).spawn().unwrap();
        drop(inherited);
        let id = i32::try_from(sleep.id()).unwrap();
        let borne = Mark { variable: None, number: Some(number) }.is_on(id);
        let other = Mark { variable: Some("A=B".into()), number: Some(numbers.next()) }.is_on(id);
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(borne && !other);
        assert_ne!(limit_of(i32::try_from(std::process::id()).unwrap()), Some(number), "it is taken back");
    }
}
