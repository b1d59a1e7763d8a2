//! The table that `docs/PERFORMANCE.md` shows.

use crate::measure::{Samples, number};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    PerSecond,
    Milliseconds,
    Nanoseconds,
    Bytes,
    /// A difference.
    MoreBytes,
    Times,
}

impl Unit {
    fn show(self, value: f64) -> String {
        format!("{}{}", self.digits(value), self.symbol())
    }

    fn show_all(self, samples: &Samples) -> String {
        let (min, max) = (self.digits(samples.min()), self.digits(samples.max()));
        format!("{} ({min} to {max})", self.show(samples.median()))
    }

    fn digits(self, value: f64) -> String {
        match self {
            Self::PerSecond | Self::Bytes => grouped(value),
            Self::MoreBytes if value >= 0.0 => format!("+{}", grouped(value)),
            Self::MoreBytes => grouped(value),
            Self::Milliseconds | Self::Nanoseconds => format!("{value:.1}"),
            Self::Times => format!("{value:.2}"),
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::Milliseconds => " ms",
            Self::Nanoseconds => " ns",
            Self::Bytes | Self::MoreBytes => " B",
            Self::Times => "",
        }
    }
}

/// A count, as figures are named by it.
pub(crate) fn show(count: usize) -> String {
    grouped(number(count))
}

/// A whole number in groups of three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 { format!("-{text}") } else { text }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn show(self, unit: Unit) -> String {
        match self {
            Self::AtLeast(value) => format!("at least {}", unit.show(value)),
            Self::AtMost(value) => format!("at most {}", unit.show(value)),
        }
    }

    fn verdict(self, measured: f64, unit: Unit) -> String {
        let missing = match self {
            Self::AtLeast(value) => value - measured,
            Self::AtMost(value) => measured - value,
        };
        if missing <= 0.0 { "met".to_owned() } else { format!("short by {}", unit.show(missing)) }
    }
}

/// One line.
pub(crate) struct Row {
    figure: String,
    runtime: &'static str,
    ours: String,
    baseline: String,
    compared: String,
    goal: String,
    verdict: String,
}

impl Row {
    pub(crate) fn new(figure: impl Into<String>, runtime: &'static str, ours: &Samples, unit: Unit) -> Self {
        let nothing = String::new;
        Self {
            figure: figure.into(),
            runtime,
            ours: unit.show_all(ours),
            baseline: nothing(),
            compared: nothing(),
            goal: nothing(),
            verdict: nothing(),
        }
    }

    /// What the figure is set beside.
    pub(crate) fn beside(mut self, name: &str, baseline: &Samples, unit: Unit) -> Self {
        self.baseline = format!("{name}: {}", unit.show_all(baseline));
        self
    }

    /// How the two compare, pair by pair.
    pub(crate) fn compared(mut self, compared: &Samples, unit: Unit) -> Self {
        self.compared = unit.show_all(compared);
        self
    }

    /// Judges the median.
    pub(crate) fn goal(mut self, goal: Goal, measured: &Samples, unit: Unit) -> Self {
        self.goal = goal.show(unit);
        self.verdict = goal.verdict(measured.median(), unit);
        self
    }

    /// [`Row::goal`] for what is hoped for beyond the bar that has to be met.
    pub(crate) fn aim(mut self, goal: Goal, measured: &Samples, unit: Unit) -> Self {
        self = self.goal(goal, measured, unit);
        self.goal.insert_str(0, "aim: ");
        self
    }

    /// [`Row::compared`] and [`Row::goal`] of a quotient.
    pub(crate) fn ratio_goal(self, goal: Goal, ratio: &Samples) -> Self {
        self.compared(ratio, Unit::Times).goal(goal, ratio, Unit::Times)
    }
}

/// Prints its rows as they come.
pub(crate) struct Table {
    judges: bool,
}

impl Table {
    pub(crate) fn begin(judges: bool) -> Self {
        println!("| figure | runtime | ours | baseline | ours to baseline | goal | verdict |");
        println!("|---|---|---|---|---|---|---|");
        Self { judges }
    }

    pub(crate) fn print(&self, row: Row) {
        let Row { figure, runtime, ours, baseline, compared, goal, verdict } = row;
        let verdict = if self.judges || verdict.is_empty() { verdict } else { "not judged".to_owned() };
        println!("| {figure} | {runtime} | {ours} | {baseline} | {compared} | {goal} | {verdict} |");
    }
}
