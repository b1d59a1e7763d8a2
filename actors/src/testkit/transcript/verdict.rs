//! The sums of a scenario. They are taken from the events and checked against the close reports, so that
//! neither is believed alone.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::event::{ActorName, ChildName, Event, EventKind};
use crate::generation::CloseReport;
use crate::id::{Epoch, ProcessId};

use super::fold::fold;
use super::names::Names;
use super::{SEPARATOR, columns, line};

/// What became of everything in a scenario.
///
/// It balances when `started` is the sum of `ended`, `killed` and `leaked`, `bound` that of `unbound` and
/// `left`, and `submitted` that of `applied` and `dropped`. A scenario fails when it does not, and when
/// anything leaked or was left, whatever the snapshot says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Children that were started: processes, services, registries and operations.
    pub started: u64,
    /// Those that ended by themselves or in order.
    pub ended: u64,
    /// Those that were cut off, and are gone.
    pub killed: u64,
    /// Those that have not ended, and those that a close report calls abandoned.
    pub leaked: u64,
    /// How often an id was bound.
    pub bound: u64,
    /// How often one was given up.
    pub unbound: u64,
    /// Ids that are bound still.
    pub left: u64,
    /// Commits that were attempted.
    pub submitted: u64,
    /// Those whose effect ran.
    pub applied: u64,
    /// Those that were refused.
    pub dropped: u64,
    /// What does not add up, a sentence each; empty when everything does.
    pub problems: Vec<String>,
}

impl Verdict {
    /// Whether everything adds up, nothing leaked and nothing was left.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.problems.is_empty() && self.leaked == 0 && self.left == 0
    }

    pub(super) fn of(events: &[&Event], reports: &[Arc<CloseReport>]) -> Self {
        let tallies = tallies(events);
        let abandoned: u64 = reports.iter().map(|report| report.abandoned.len() as u64).sum();
        let mut verdict = Self::default();
        for tally in tallies.values() {
            verdict.add(tally);
        }
        // An object whose close was cut off ends killed as an actor; what it set going may still be there.
        let reported = abandoned.min(verdict.killed);
        verdict.killed -= reported;
        verdict.leaked += reported;
        verdict.check(&tallies, reports);
        verdict
    }

    fn add(&mut self, tally: &Tally) {
        self.started += tally.started;
        self.ended += tally.ended;
        self.killed += tally.killed;
        self.leaked += tally.alive();
        self.bound += tally.bound();
        self.unbound += tally.unbound();
        self.left += tally.left();
        self.submitted += tally.submitted;
        self.applied += tally.applied;
        self.dropped += tally.dropped;
    }

    fn check(&mut self, tallies: &HashMap<Epoch, Tally>, reports: &[Arc<CloseReport>]) {
        let Self { started, ended, killed, leaked, .. } = *self;
        self.claim(started == ended + killed + leaked, || {
            format!("started {started}, but ended {ended}, killed {killed} and leaked {leaked}")
        });
        let Self { bound, unbound, left, .. } = *self;
        self.claim(bound == unbound + left, || {
            format!("bound {bound}, but unbound {unbound} and left {left}")
        });
        let Self { submitted, applied, dropped, .. } = *self;
        self.claim(submitted == applied + dropped, || {
            format!("submitted {submitted}, but applied {applied} and dropped {dropped}")
        });
        let mut epochs: Vec<_> = tallies.keys().copied().collect();
        epochs.sort_unstable();
        for epoch in epochs {
            match reports.iter().find(|report| report.epoch == epoch) {
                Some(report) => self.check_report(&tallies[&epoch], report),
                None => self.problems.push(format!("generation {epoch} has no close report; close it")),
            }
        }
    }

    fn check_report(&mut self, tally: &Tally, report: &CloseReport) {
        let epoch = report.epoch;
        if let Some(imbalance) = report.imbalance() {
            self.problems.push(format!("the report of generation {epoch} does not balance: {imbalance}"));
        }
        let could_have_started = tally.children - tally.never_started;
        let started = could_have_started.saturating_sub(tally.killed_unbound)..=could_have_started;
        self.claim(started.contains(&report.started), || {
            format!("generation {epoch} reports {} started, the events show {started:?}", report.started)
        });
        let cut_off = (report.killed.len() + report.abandoned.len()) as u64;
        self.claim(cut_off <= tally.killed, || {
            format!(
                "generation {epoch} reports {cut_off} killed or abandoned, the events show {}",
                tally.killed
            )
        });
        self.claim(report.commits.applied == tally.applied, || {
            format!(
                "generation {epoch} reports {} applied, the events show {}",
                report.commits.applied, tally.applied
            )
        });
        // A result may be refused after the report was given.
        let dropped = tally.dropped_by_closed..=tally.dropped;
        self.claim(dropped.contains(&report.commits.dropped), || {
            format!(
                "generation {epoch} reports {} dropped, the events show {dropped:?}",
                report.commits.dropped
            )
        });
    }

    fn claim(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(problem());
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { started, ended, killed, leaked, bound, unbound, left, .. } = self;
        let Self { submitted, applied, dropped, problems, .. } = self;
        writeln!(f, "children   started {started}  ended {ended}  killed {killed}  leaked {leaked}")?;
        writeln!(f, "names      bound {bound}  unbound {unbound}  left {left}")?;
        writeln!(f, "results    submitted {submitted}  applied {applied}  dropped {dropped}")?;
        problems.iter().try_for_each(|problem| writeln!(f, "unbalanced {problem}"))
    }
}

/// The sums of one generation, from its events.
#[derive(Default)]
struct Tally {
    started: u64,
    ended: u64,
    killed: u64,
    /// Of the started: those that are processes or services.
    children: u64,
    never_started: u64,
    /// Killed, and maybe before they had started.
    killed_unbound: u64,
    /// By child: how often it was bound and unbound.
    names: HashMap<ChildName, (u64, u64)>,
    submitted: u64,
    applied: u64,
    dropped: u64,
    dropped_by_closed: u64,
}

fn tallies(events: &[&Event]) -> HashMap<Epoch, Tally> {
    let mut tallies: HashMap<Epoch, Tally> = HashMap::new();
    // The sums before and after an instant need the order in which things happened.
    let mut events = events.to_vec();
    events.sort_unstable_by_key(|event| event.id);
    for event in events {
        if let EventKind::Opened { epoch } = &event.kind {
            tallies.entry(*epoch).or_default();
        } else if let Some(epoch) = event.actor.epoch() {
            tallies.entry(epoch).or_default().count(event);
        }
    }
    tallies
}

impl Tally {
    fn count(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Started { child } => {
                self.started += 1;
                self.children += u64::from(matches!(child, ActorName::Child(_)));
            }
            EventKind::Ended { exit, killed } => self.count_end(&event.actor, exit, *killed),
            EventKind::Bound { child, .. } => self.names.entry(child.clone()).or_default().0 += 1,
            EventKind::Unbound { child, .. } => self.names.entry(child.clone()).or_default().1 += 1,
            EventKind::Submitted { .. } => self.submitted += 1,
            EventKind::Committed { .. } => self.applied += 1,
            EventKind::DroppedLate { .. } => self.dropped += 1,
            EventKind::Closed { .. } => self.dropped_by_closed = self.dropped,
            _ => {}
        }
    }

    fn count_end(&mut self, actor: &ActorName, exit: &str, killed: bool) {
        if killed {
            self.killed += 1
        } else {
            self.ended += 1
        }
        if let ActorName::Child(child) = actor {
            self.never_started += u64::from(exit == "never started");
            self.killed_unbound += u64::from(killed && !self.names.contains_key(child));
        }
    }

    fn alive(&self) -> u64 {
        self.started.saturating_sub(self.ended + self.killed)
    }

    fn bound(&self) -> u64 {
        self.names.values().map(|(bound, _)| bound).sum()
    }

    fn unbound(&self) -> u64 {
        self.names.values().map(|(_, unbound)| unbound).sum()
    }

    fn left(&self) -> u64 {
        self.names.values().map(|(bound, unbound)| bound.saturating_sub(*unbound)).sum()
    }
}

// --- the ledger -----------------------------------------------------------------------------------------

/// One commit attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// Its effect ran; otherwise it was refused.
    pub applied: bool,
    /// The process.
    pub process: ProcessId,
    /// The child that made it, as the timeline names it.
    pub by: String,
    /// The epoch it was made in, and what it met: `made in epoch 1, met sealed epoch 1`.
    pub outcome: String,
}

pub(super) fn ledger(events: &[&Event], names: &Names) -> Vec<LedgerEntry> {
    events.iter().filter_map(|event| entry(&event.kind, names)).collect()
}

fn entry(kind: &EventKind, names: &Names) -> Option<LedgerEntry> {
    let (applied, process, child, outcome) = match kind {
        EventKind::Committed { process, what, child } => {
            let what = what.as_deref().map(|what| format!("{what}, ")).unwrap_or_default();
            (true, process, child, format!("{what}made in epoch {}", child.epoch))
        }
        EventKind::DroppedLate { process, child, current, sealed } => {
            let made = child.epoch;
            let met = match current {
                Some(current) if *current != made => format!("epoch {current}"),
                _ if *sealed => format!("sealed epoch {made}"),
                _ => "revoked authority".to_owned(),
            };
            (false, process, child, format!("made in epoch {made}, met {met}"))
        }
        _ => return None,
    };
    let by = names.of_actor(&ActorName::Child(child.clone()));
    Some(LedgerEntry { applied, process: process.clone(), by, outcome })
}

/// Refusals first: they are what a reader looks for.
pub(super) fn ledger_text(ledger: &[LedgerEntry]) -> String {
    let mut text = String::new();
    for (verb, applied) in [("drop-late", false), ("applied", true)] {
        let entries = ledger.iter().filter(|entry| entry.applied == applied);
        let row = |entry: &LedgerEntry| {
            format!("{}{SEPARATOR}by {}{SEPARATOR}{}", entry.process, entry.by, entry.outcome)
        };
        let rows = fold(entries.map(|entry| ((), row(entry))));
        let rows: Vec<[String; 3]> = rows.iter().map(|row| columns(&row.text)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (ids, bys) = (width(0), width(1));
        if rows.is_empty() {
            line(&mut text, &format!("{verb:9}  none"));
        }
        for [id, by, outcome] in &rows {
            line(&mut text, &format!("{verb:9}  {id:ids$}  {by:bys$}  {outcome}"));
        }
    }
    text
}
