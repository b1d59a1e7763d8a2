//! How actors and failures are named in a transcript.

use std::collections::{HashMap, HashSet};

use crate::event::{ActorName, Event, EventKind};
use crate::id::Epoch;

/// Names of actors: qualified by their generation where the bare name stands for more than one.
pub(super) struct Names {
    ambiguous: HashSet<String>,
}

impl Names {
    pub(super) fn of(events: &[&Event]) -> Self {
        let mut epochs: HashMap<String, HashSet<Epoch>> = HashMap::new();
        for event in events {
            if let Some(epoch) = event.actor.epoch() {
                epochs.entry(event.actor.to_string()).or_default().insert(epoch);
            }
        }
        let ambiguous = epochs.into_iter().filter(|(_, epochs)| epochs.len() > 1).map(|(name, _)| name);
        Self { ambiguous: ambiguous.collect() }
    }

    pub(super) fn of_actor(&self, actor: &ActorName) -> String {
        let name = actor.to_string();
        match actor.epoch() {
            Some(epoch) if self.ambiguous.contains(&name) => format!("g{epoch}/{name}"),
            _ => name,
        }
    }
}

/// What follows the verb. A child is named bare: it is of the generation of the line's own actor, or the line
/// names its epoch.
pub(super) fn detail(kind: &EventKind) -> String {
    match kind {
        EventKind::Failed { .. } | EventKind::Ended { .. } => masked(&kind.to_string()),
        _ => kind.to_string(),
    }
}

/// The text with every number of more than 4 digits masked: ports, addresses and process ids change from run
/// to run and mean nothing to a reader.
fn masked(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|character: char| character.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let is_hex = from.starts_with("0x");
        let digits = &from[if is_hex { 2 } else { 0 }..];
        let is_part = |character: char| match is_hex {
            true => character.is_ascii_hexdigit(),
            false => character.is_ascii_digit(),
        };
        let length = digits.find(|character| !is_part(character)).unwrap_or(digits.len());
        let end = length + if is_hex { 2 } else { 0 };
        masked.push_str(before);
        masked.push_str(if length > 4 { "<number>" } else { &from[..end] });
        rest = &from[end..];
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn numbers_above_four_digits_are_masked() {
        assert_eq!(
            masked("port 48213 of 2024 at 0x7ffe12ab, 7 left"),
            "port <number> of 2024 at <number>, 7 left"
        );
    }
}
