//! How a scenario fails: readably, with the seed that does it again.

use std::error::Error;
use std::fmt;

use crate::testkit::Transcript;

/// Why a scenario failed. Prints what was wrong, the seed of the run, and what to look at.
#[derive(Debug, Clone)]
pub struct Failure {
    scenario: String,
    seed: u64,
    what: String,
    evidence: String,
}

impl Failure {
    pub(super) fn new(scenario: &str, seed: u64, what: &str) -> Self {
        Self { scenario: scenario.to_owned(), seed, what: what.to_owned(), evidence: String::new() }
    }

    pub(super) fn with(mut self, transcript: &Transcript) -> Self {
        self.evidence = transcript.to_string();
        self
    }

    pub(super) fn differing(mut self, known: &Transcript, other: &Transcript) -> Self {
        self.evidence = difference(&known.to_string(), &other.to_string());
        self
    }

    /// The seed of the run that failed; 0 is not shuffled.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, seed, what, evidence } = self;
        write!(f, "scenario \"{scenario}\", seed {seed}: it {what}")?;
        match evidence.is_empty() {
            true => Ok(()),
            false => write!(f, "\n\n{evidence}"),
        }
    }
}

impl Error for Failure {}

/// How many equal lines are shown around those that differ.
const AROUND: usize = 3;
/// How many differing lines of each text are shown.
const SHOWN: usize = 60;

/// The lines in which two texts differ, with a few around them.
fn difference(one: &str, other: &str) -> String {
    let (one, other): (Vec<_>, Vec<_>) = (one.lines().collect(), other.lines().collect());
    let same = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let rest = one.len().min(other.len()) - same;
    let tail =
        one.iter().rev().zip(other.iter().rev()).take(rest).take_while(|(one, other)| one == other).count();
    let mut text = String::new();
    let mut show = |mark: char, lines: &[&str]| {
        for line in lines.iter().take(SHOWN) {
            text.push_str(format!("{mark} {line}").trim_end());
            text.push('\n');
        }
        if let Some(more) = lines.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            text.push_str(&format!("{mark} ... {more} more lines\n"));
        }
    };
    show(' ', &one[same.saturating_sub(AROUND)..same]);
    show('-', &one[same..one.len() - tail]);
    show('+', &other[same..other.len() - tail]);
    show(' ', &one[one.len() - tail..(one.len() - tail + AROUND).min(one.len())]);
    text
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_difference_shows_both_sides_and_what_is_around() {
        assert_eq!(difference("a\nb\nc\nd", "a\nx\nc\nd"), "  a\n- b\n+ x\n  c\n  d\n");
        assert_eq!(difference("a\nb", "a\nb\nc"), "  a\n  b\n+ c\n");
    }
}
