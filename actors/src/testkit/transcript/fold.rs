//! Folding: runs of lines that differ in their numbers alone become one line, `job#1..10000`.

use std::collections::HashMap;
use std::hash::Hash;

/// How many lines of a kind are folded: this many and more. Fewer stay as they are.
pub const FOLD_FROM: usize = 8;

/// Lines that were folded into one, or one line.
pub(super) struct Fold {
    /// Which of the lines it stands for.
    pub(super) members: Vec<usize>,
    pub(super) text: String,
}

/// Folds lines that have one key, and one text but for numbers that count up together. The order is that of
/// each fold's first member.
pub(super) fn fold<K: Eq + Hash>(lines: impl IntoIterator<Item = (K, String)>) -> Vec<Fold> {
    let mut groups: HashMap<(K, String), Vec<Member>> = HashMap::new();
    for (at, (key, text)) in lines.into_iter().enumerate() {
        let (pattern, numbers) = pattern(&text);
        groups.entry((key, pattern)).or_default().push(Member { at, text, numbers });
    }
    let mut folds: Vec<Fold> =
        groups.into_iter().flat_map(|((_, pattern), group)| runs(&pattern, group)).collect();
    folds.sort_unstable_by_key(|fold| fold.members.iter().copied().min());
    folds
}

struct Member {
    at: usize,
    text: String,
    numbers: Vec<u64>,
}

const HOLE: char = '\u{1}';

/// The text with a hole for every number, and the numbers. Numbers with leading zeros, or too long for one,
/// stay text.
fn pattern(text: &str) -> (String, Vec<u64>) {
    let (mut pattern, mut numbers) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text;
    while let Some(start) = rest.find(|character: char| character.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let length = from.find(|character: char| !character.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(length);
        pattern.push_str(before);
        match digits.parse() {
            Ok(number) if digits == "0" || !digits.starts_with('0') => {
                pattern.push(HOLE);
                numbers.push(number);
            }
            _ => pattern.push_str(digits),
        }
        rest = after;
    }
    pattern.push_str(rest);
    (pattern, numbers)
}

/// Splits lines of one pattern into runs whose numbers stay or count up.
fn runs(pattern: &str, mut group: Vec<Member>) -> Vec<Fold> {
    group.sort_by(|one, other| one.numbers.cmp(&other.numbers));
    let mut folds = Vec::new();
    let mut rest = group.as_slice();
    while !rest.is_empty() {
        let (run, after) = rest.split_at(run_length(rest));
        rest = after;
        if run.len() < FOLD_FROM {
            folds.extend(run.iter().map(|one| Fold { members: vec![one.at], text: one.text.clone() }));
        } else {
            let members = run.iter().map(|one| one.at).collect();
            folds.push(Fold { members, text: text_of(pattern, run) });
        }
    }
    folds
}

/// How many of the lines, from the first on, are one run.
fn run_length(lines: &[Member]) -> usize {
    let [first, second, ..] = lines else {
        return lines.len();
    };
    let steps: Vec<_> =
        first.numbers.iter().zip(&second.numbers).map(|(one, two)| two.wrapping_sub(*one)).collect();
    if steps.iter().any(|step| *step > 1) {
        return 1;
    }
    let fits = |offset: usize, line: &Member| {
        let offset = offset as u64;
        let mut numbers = line.numbers.iter().zip(&first.numbers).zip(&steps);
        numbers.all(|((number, first), step)| *number == first.wrapping_add(step.wrapping_mul(offset)))
    };
    lines.iter().enumerate().take_while(|(offset, line)| fits(*offset, line)).count()
}

fn text_of(pattern: &str, run: &[Member]) -> String {
    let [first, .., last] = run else {
        return pattern.to_owned();
    };
    if first.numbers == last.numbers {
        return format!("{} ({} times)", first.text, run.len());
    }
    let mut numbers = first.numbers.iter().zip(&last.numbers);
    let mut text = String::new();
    for character in pattern.chars() {
        match (character, if character == HOLE { numbers.next() } else { None }) {
            (HOLE, Some((first, last))) if first == last => text.push_str(&first.to_string()),
            (HOLE, Some((first, last))) => text.push_str(&format!("{first}..{last}")),
            (other, _) => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{FOLD_FROM, fold};

    fn folded(lines: impl IntoIterator<Item = String>) -> Vec<String> {
        fold(lines.into_iter().map(|line| ((), line))).into_iter().map(|fold| fold.text).collect()
    }

    #[test]
    fn lines_that_count_up_together_are_one() {
        let lines = (1..=FOLD_FROM).rev().map(|n| format!("feed/{n} as job#{n}, epoch 1"));
        assert_eq!(folded(lines), ["feed/1..8 as job#1..8, epoch 1"]);
    }

    #[test]
    fn fewer_lines_stay_as_they_are() {
        let lines: Vec<_> = (1..FOLD_FROM).map(|n| format!("job#{n}")).collect();
        assert_eq!(folded(lines.clone()), lines);
    }

    #[test]
    fn a_gap_ends_a_run() {
        let lines = (1..=8).chain(10..=17).map(|n| format!("job#{n}"));
        assert_eq!(folded(lines), ["job#1..8", "job#10..17"]);
    }

    #[test]
    fn equal_lines_are_counted() {
        assert_eq!(folded((0..8).map(|_| "x, already running".to_owned())), ["x, already running (8 times)"]);
    }
}
