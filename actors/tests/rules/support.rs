//! Aligned text for tables, and short ways to make what the rules are asked about.

#![expect(clippy::expect_used, reason = "clippy allows it in the tests themselves, not in their helpers")]

use std::fmt::Debug;

use tenure_actors::rules::*;

pub(crate) const RESTARTS: [Restart; 3] = [Restart::Permanent, Restart::Transient, Restart::Temporary];
pub(crate) const CLASSES: [ExitClass; 3] = [ExitClass::Normal, ExitClass::Shutdown, ExitClass::Abnormal];
pub(crate) const STRATEGIES: [Strategy; 3] = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne];
pub(crate) const STATES: [ChildState; 5] = [
    ChildState::Running,
    ChildState::Starting,
    ChildState::BackingOff,
    ChildState::Ended,
    ChildState::StoppedOnPurpose,
];

/// Lines up cells in columns, two blanks apart.
pub(crate) fn table<Row: IntoIterator<Item = String>>(rows: impl IntoIterator<Item = Row>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.into_iter().collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  "));
        cells.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The cells of one row.
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$(($cell).to_string()),*] };
}
pub(crate) use row;

/// `OneForAll` as `one for all`.
pub(crate) fn words(value: impl Debug) -> String {
    let mut text = String::new();
    for letter in format!("{value:?}").chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

pub(crate) fn indices(indices: &[usize]) -> String {
    match indices {
        [] => "-".to_owned(),
        some => some.iter().map(usize::to_string).collect::<Vec<_>>().join(" "),
    }
}

pub(crate) fn outcome(decision: Decision) -> String {
    match decision {
        Decision::Restart { delay_ms, attempt } => format!("restart {attempt} after {delay_ms}"),
        Decision::Keep => "keep".to_owned(),
        Decision::Forget => "forget".to_owned(),
        Decision::GiveUp { who, restarts, period_ms } => {
            format!("give up: {} had more than {restarts} in {period_ms}", words(who))
        }
    }
}

pub(crate) fn outcomes(decisions: &[Decision]) -> Vec<String> {
    decisions.iter().copied().map(outcome).collect()
}

pub(crate) fn limited(restarts: u32, period_ms: u64) -> Intensity {
    Intensity::limited(restarts, period_ms).expect("a valid limit")
}

pub(crate) fn backoff(settings: BackoffSettings) -> Backoff {
    Backoff::new(settings).expect("valid settings")
}

pub(crate) fn doubling(min_ms: u64, max_ms: u64) -> Backoff {
    backoff(BackoffSettings { min_ms, max_ms, jitter: 0.0, ..Default::default() })
}

pub(crate) const fn view(state: ChildState, restart: Restart) -> ChildView {
    ChildView { state, restart }
}

pub(crate) const UP: ChildView = view(ChildState::Running, Restart::Permanent);
pub(crate) const DOWN: ChildView = view(ChildState::BackingOff, Restart::Permanent);

pub(crate) fn plan(stop: &[usize], forget: &[usize], start: &[usize]) -> Plan {
    Plan { stop: stop.to_vec(), forget: forget.to_vec(), start: start.to_vec() }
}

/// A child, and what happens to it.
pub(crate) struct Child {
    pub(crate) state: RestartState,
}

impl Child {
    pub(crate) fn new(intensity: Intensity, backoff: Backoff) -> Self {
        Self::of(ChildPolicy { restart: Restart::Permanent, intensity, backoff })
    }

    pub(crate) fn of(policy: ChildPolicy) -> Self {
        Self { state: RestartState::new(&policy) }
    }

    /// Its start fails, or it is killed before its start is done.
    pub(crate) fn fails(&mut self, at_ms: u64, supervisor: &mut RestartLimit) -> Decision {
        self.ends(ExitClass::Abnormal, at_ms, supervisor)
    }

    /// It ran from one instant to the other and then failed.
    pub(crate) fn runs(&mut self, from_ms: u64, to_ms: u64, supervisor: &mut RestartLimit) -> Decision {
        self.state.started(from_ms);
        self.fails(to_ms, supervisor)
    }

    pub(crate) fn ends(&mut self, class: ExitClass, at_ms: u64, supervisor: &mut RestartLimit) -> Decision {
        decide(ChildEnd { class, at_ms, seed: 1 }, &mut self.state, supervisor)
    }
}

/// A child without limit or delay of its own.
pub(crate) fn plain() -> Child {
    Child::new(Intensity::Unlimited, Backoff::none())
}

pub(crate) fn is_restart(decision: Decision) -> bool {
    matches!(decision, Decision::Restart { .. })
}

pub(crate) const fn gives_up(who: Who, restarts: u32, period_ms: u64) -> Decision {
    Decision::GiveUp { who, restarts, period_ms }
}
