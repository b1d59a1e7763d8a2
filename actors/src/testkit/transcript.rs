//! The transcript of a scenario: what happened, in one canonical text, and whether it adds up.
//!
//! ```text
//! recorded events --> line up --> name --> fold --> number --> text
//!               \--> verdict: the sums, checked against the close reports
//! ```

use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::event::{Event, EventKind, Verb};
use crate::generation::CloseReport;
use crate::settings::Limits;
use crate::tree::{Row, Tree};

mod fold;
mod names;
mod order;
mod verdict;

pub use fold::FOLD_FROM;
pub use verdict::{LedgerEntry, Verdict};

use fold::{Fold, fold};
use names::Names;

/// What a transcript is made from.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The name of the scenario: what happens in it, in one line.
    pub scenario: String,
    /// The events ran on tokio's paused clock. Otherwise the transcript shows no times.
    pub is_virtual: bool,
    /// The bounds of its generations.
    pub limits: Limits,
    /// Everything that was recorded, from the opening on.
    pub events: Vec<Arc<Event>>,
    /// The tree when the scenario had been set up.
    pub tree_at_open: Tree,
    /// The tree when everything was over.
    pub tree_at_end: Tree,
    /// The report of every generation that was closed.
    pub reports: Vec<Arc<CloseReport>>,
}

/// The canonical text of a scenario, and its sums. Prints as the text; compare it as a snapshot.
#[derive(Debug, Clone)]
pub struct Transcript {
    sections: [String; 6],
    ledger: Vec<LedgerEntry>,
    verdict: Verdict,
}

impl Transcript {
    /// Renders a recording.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        let order = order::line_up(&recording.events, recording.is_virtual);
        let events: Vec<_> = order.into_iter().map(|at| &*recording.events[at]).collect();
        let names = Names::of(&events);
        let ledger = verdict::ledger(&events, &names);
        let verdict = Verdict::of(&events, &recording.reports);
        let sections = [
            head(recording),
            format!("tree at open\n{}", tree(&recording.tree_at_open)),
            format!("timeline\n{}", timeline(&events, &names, recording.is_virtual)),
            format!("ledger\n{}", verdict::ledger_text(&ledger)),
            format!("tree at end\n{}", tree(&recording.tree_at_end)),
            format!("verdict\n{verdict}"),
        ];
        Self { sections, ledger, verdict }
    }

    /// Title, scenario, clock, order and limits.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.sections[0]
    }

    /// The tree when the scenario had been set up.
    #[must_use]
    pub fn tree_at_open(&self) -> &str {
        &self.sections[1]
    }

    /// What happened, a line each.
    #[must_use]
    pub fn timeline(&self) -> &str {
        &self.sections[2]
    }

    /// Every commit attempt once, in the order of the timeline; not folded.
    #[must_use]
    pub fn ledger(&self) -> &[LedgerEntry] {
        &self.ledger
    }

    /// The tree when everything was over.
    #[must_use]
    pub fn tree_at_end(&self) -> &str {
        &self.sections[4]
    }

    /// The sums.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The same transcript that also knows of what the recording does not show.
    pub(super) fn with_problems(mut self, problems: Vec<String>) -> Self {
        self.verdict.problems.extend(problems);
        self.sections[5] = format!("verdict\n{}", self.verdict);
        self
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sections.join("\n").trim_end())
    }
}

impl PartialEq for Transcript {
    /// Transcripts are compared as texts.
    fn eq(&self, other: &Self) -> bool {
        self.sections == other.sections
    }
}

impl Eq for Transcript {}

fn head(recording: &Recording) -> String {
    let Recording { scenario, limits, .. } = recording;
    let (clock, order) = match recording.is_virtual {
        true => ("virtual", "causal, then time, path, sequence"),
        false => ("real", "causal, then path, sequence"),
    };
    let (patience, deadline) = (limits.patience, limits.close_deadline);
    format!(
        "tenure transcript 1\n\
         scenario  {scenario}\n\
         clock     {clock:<11}  order  {order}\n\
         limits    patience {patience}, close deadline {deadline:?}\n"
    )
}

fn tree(tree: &Tree) -> String {
    let fold_rows = |rows: Vec<Row>| {
        let folded = fold(rows.into_iter().map(|row| ((), row.join(SEPARATOR))));
        folded.into_iter().map(|row| columns(&row.text)).collect()
    };
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = tree.draw(&mut text, fold_rows);
    text
}

/// Stands between the columns of a text that is folded as a whole.
const SEPARATOR: &str = "\u{2}";

fn columns<const N: usize>(text: &str) -> [String; N] {
    let mut columns = text.splitn(N, SEPARATOR);
    std::array::from_fn(|_| columns.next().unwrap_or_default().to_owned())
}

/// A line of the timeline.
struct Line {
    time: String,
    actor: String,
    verb: Verb,
    detail: String,
    causes: Vec<usize>,
}

fn timeline(events: &[&Event], names: &Names, is_virtual: bool) -> String {
    let lines = number(events, fold_lines(events, names, is_virtual), is_virtual);
    let longest = |text: fn(&Line) -> &str, limit: usize| {
        lines
            .iter()
            .map(|line| text(line).chars().count())
            .filter(|length| *length <= limit)
            .max()
            .unwrap_or(0)
    };
    let digits = lines.len().to_string().len().max(2);
    let times = longest(|line| &line.time, usize::MAX).max(5);
    let actors = longest(|line| &line.actor, usize::MAX);
    // A rare long detail does not push the causes of all others out of sight.
    let details = longest(|line| &line.detail, 60).max(34);
    let mut text = String::new();
    for (index, Line { time, actor, verb, detail, causes }) in lines.iter().enumerate() {
        let number = index + 1;
        let head = format!("{number:0digits$}  {time:>times$}  {actor:actors$}  {verb:9}  ");
        let causes: Vec<_> = causes.iter().map(|cause| format!("{:0digits$}", cause + 1)).collect();
        let line = match causes.is_empty() {
            true => format!("{head}{detail}"),
            false => format!("{head}{detail:details$}  <- {}", causes.join(" ")),
        };
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn fold_lines(events: &[&Event], names: &Names, is_virtual: bool) -> Vec<Fold> {
    fold(events.iter().map(|event| {
        let time = if is_virtual { event.at_ms } else { 0 };
        let text = format!("{}{SEPARATOR}{}", names.of_actor(&event.actor), names::detail(&event.kind));
        ((time, event.kind.verb()), text)
    }))
}

/// Numbers the folded lines, so that causes still come first, and names causes by those numbers.
fn number(events: &[&Event], folds: Vec<Fold>, is_virtual: bool) -> Vec<Line> {
    let folds = Folded::of(events, folds);
    let mut numbers = vec![0; folds.folds.len()];
    for (number, at) in folds.order.iter().enumerate() {
        numbers[*at] = number;
    }
    let line = |at: &usize| {
        let fold = &folds.folds[*at];
        let event = events[fold.members[0]];
        let [actor, detail] = columns(&fold.text);
        // What an answer answers comes first: a refused commit names its submission before the seal.
        let is_other = |cause: &usize| !is_submission(events[folds.folds[*cause].members[0]]);
        let mut causes: Vec<_> =
            folds.causes[*at].iter().map(|cause| (is_other(cause), numbers[*cause])).collect();
        causes.sort_unstable();
        Line {
            time: if is_virtual { format!("{}ms", event.at_ms) } else { "-".to_owned() },
            actor,
            verb: event.kind.verb(),
            detail,
            causes: causes.into_iter().map(|(_, number)| number).collect(),
        }
    };
    folds.order.iter().map(line).collect()
}

fn is_submission(event: &Event) -> bool {
    matches!(event.kind, EventKind::Submitted { .. })
}

/// Folded lines in an order in which causes come first.
struct Folded {
    folds: Vec<Fold>,
    /// By fold: the folds that its causes are in, without itself.
    causes: Vec<Vec<usize>>,
    order: Vec<usize>,
}

impl Folded {
    fn of(events: &[&Event], mut folds: Vec<Fold>) -> Self {
        loop {
            let causes = causes(events, &folds);
            let order = causes_first(&causes);
            if order.len() == folds.len() {
                return Self { folds, causes, order };
            }
            // Two folds that cause each other, as in a chain of questions and answers, cannot both come
            // first: whatever is left over is shown line by line.
            let mut is_placed = vec![false; folds.len()];
            order.iter().for_each(|at| is_placed[*at] = true);
            let before = folds.len();
            folds = unfold(folds, &is_placed, events);
            if folds.len() == before {
                let order = (0..folds.len()).collect();
                return Self { folds, causes, order };
            }
        }
    }
}

fn causes(events: &[&Event], folds: &[Fold]) -> Vec<Vec<usize>> {
    let mut fold_of = std::collections::HashMap::new();
    for (at, fold) in folds.iter().enumerate() {
        fold_of.extend(fold.members.iter().map(|member| (events[*member].id, at)));
    }
    let causes_of = |(at, fold): (usize, &Fold)| {
        let all = fold.members.iter().flat_map(|member| &events[*member].causes);
        let mut causes: Vec<_> = all.filter_map(|cause| fold_of.get(cause).copied()).collect();
        causes.sort_unstable();
        causes.dedup();
        causes.retain(|cause| *cause != at);
        causes
    };
    folds.iter().enumerate().map(causes_of).collect()
}

/// Each fold as early as its first member, but after its causes.
fn causes_first(causes: &[Vec<usize>]) -> Vec<usize> {
    let mut waits: Vec<_> = causes.iter().map(Vec::len).collect();
    let mut followers = vec![Vec::new(); causes.len()];
    for (at, causes) in causes.iter().enumerate() {
        causes.iter().for_each(|cause| followers[*cause].push(at));
    }
    let mut ready: std::collections::BTreeSet<_> = (0..causes.len()).filter(|at| waits[*at] == 0).collect();
    let mut order = Vec::with_capacity(causes.len());
    while let Some(at) = ready.pop_first() {
        order.push(at);
        for follower in &followers[at] {
            waits[*follower] -= 1;
            if waits[*follower] == 0 {
                ready.insert(*follower);
            }
        }
    }
    order
}

fn unfold(folds: Vec<Fold>, is_placed: &[bool], events: &[&Event]) -> Vec<Fold> {
    let names = Names::of(events);
    let single = |member: usize| {
        let event = events[member];
        let text = format!("{}{SEPARATOR}{}", names.of_actor(&event.actor), names::detail(&event.kind));
        Fold { members: vec![member], text }
    };
    let mut unfolded = Vec::with_capacity(folds.len());
    for (fold, is_placed) in folds.into_iter().zip(is_placed) {
        match is_placed {
            true => unfolded.push(fold),
            false => unfolded.extend(fold.members.into_iter().map(single)),
        }
    }
    unfolded.sort_unstable_by_key(|fold| fold.members.iter().copied().min());
    unfolded
}

/// Text to be appended to by the sections.
pub(super) fn line(text: &mut String, line: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{}", line.trim_end());
}
