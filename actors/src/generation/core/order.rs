//! What a ledger holds in start order. Additions come at the end alone, so one is a write to the end of a vector;
//! what is taken out leaves a hole, until more than half of all are holes.

use crate::id::Seq;

/// See the module.
#[derive(Debug)]
pub(super) struct StartOrder<T> {
    /// By rising number.
    places: Vec<(Seq, Option<T>)>,
    holes: usize,
}

/// So many holes nobody minds.
const FEW: usize = 32;

impl<T> Default for StartOrder<T> {
    fn default() -> Self {
        Self { places: Vec::new(), holes: 0 }
    }
}

impl<T> StartOrder<T> {
    /// Adds what has the highest number so far.
    pub(super) fn add(&mut self, seq: Seq, item: T) {
        debug_assert!(self.places.last().is_none_or(|(last, _)| *last < seq), "numbers rise");
        self.places.push((seq, Some(item)));
    }

    pub(super) fn take_out(&mut self, seq: Seq) -> Option<T> {
        let at = self.places.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        let taken = self.places[at].1.take()?;
        self.holes += 1;
        if self.holes > FEW.max(self.places.len() / 2) {
            self.places.retain(|(_, item)| item.is_some());
            self.holes = 0;
        }
        Some(taken)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.len() == self.holes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, item)| item.as_ref())
    }
}

impl<T> IntoIterator for StartOrder<T> {
    type Item = T;
    type IntoIter =
        std::iter::FilterMap<std::vec::IntoIter<(Seq, Option<T>)>, fn((Seq, Option<T>)) -> Option<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.places.into_iter().filter_map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As an ordered map of the same, whatever is taken out, twice or never there.
        #[test]
        fn it_holds_what_an_ordered_map_would(taken in prop::collection::vec(0_u64..400, 0..600)) {
            let (mut order, mut map) = (StartOrder::default(), BTreeMap::new());
            let mut next = 0;
            for gone in taken {
                for _ in 0..gone % 3 {
                    order.add(Seq(next), next);
                    map.insert(next, next);
                    next += 1;
                }
                prop_assert_eq!(order.take_out(Seq(gone)), map.remove(&gone));
                prop_assert_eq!(order.is_empty(), map.is_empty());
                prop_assert!(order.places.len() <= 2 * map.len() + FEW + 1, "holes are given back");
                prop_assert!(order.iter().eq(map.values()));
            }
            prop_assert!(order.into_iter().eq(map.into_values()));
        }
    }
}
