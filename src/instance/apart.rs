//! One record that cannot be read keeps no other from what is asked for all of them at once (F2).

use std::future::Future;
use std::iter::repeat_n;

use crate::store::{RefusedKind, StoreError};

/// How many parts may fail before it is the store that cannot be read, and not some of its records.
const MOST: usize = 64;

/// Asks for all at once; if a record among them cannot be read, in parts. An answer for each, in order.
pub(super) async fn each<T, A, F, Fut>(all: Vec<T>, ask: F) -> Vec<Result<A, StoreError>>
where
    T: Clone,
    F: Fn(Vec<T>) -> Fut,
    Fut: Future<Output = Result<Vec<A>, StoreError>>,
{
    let (mut answers, mut failed) = (Vec::with_capacity(all.len()), 0);
    let mut parts = vec![all];
    while let Some(mut part) = parts.pop() {
        let (begun, many) = (answers.len(), part.len());
        match ask(part.clone()).await {
            Ok(found) => {
                answers.extend(found.into_iter().take(many).map(Ok));
                let missing = || Err(StoreError::unknown("no answer for one of several"));
                answers.resize_with(begun + many, missing);
            }
            Err(StoreError::Refused { kind: RefusedKind::Corrupt, .. }) if many > 1 && failed < MOST => {
                failed += 1;
                let second = part.split_off(many / 2);
                parts.extend([second, part]);
            }
            Err(error) => answers.extend(repeat_n(error, many).map(Err)),
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(all: u64, corrupt: &[u64]) -> (Vec<Option<u64>>, usize) {
        let calls = std::cell::Cell::new(0);
        let ask = |part: Vec<u64>| {
            calls.set(calls.get() + 1);
            async move {
                match part.iter().any(|one| corrupt.contains(one)) {
                    true => Err(StoreError::refused(RefusedKind::Corrupt, "it cannot be read")),
                    false => Ok(part),
                }
            }
        };
        let answers = each((0..all).collect(), ask).await;
        (answers.into_iter().map(Result::ok).collect(), calls.get())
    }

    #[tokio::test]
    async fn what_can_be_read_is_answered_in_order() {
        assert_eq!(asked(3, &[]).await, (vec![Some(0), Some(1), Some(2)], 1));
        assert_eq!(asked(0, &[]).await, (Vec::new(), 1));
        for corrupt in [&[0][..], &[6], &[2, 3], &[0, 1, 2, 3, 4, 5, 6]] {
            let expected: Vec<_> = (0..7).map(|one| (!corrupt.contains(&one)).then_some(one)).collect();
            assert_eq!(asked(7, corrupt).await.0, expected, "{corrupt:?}");
        }
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_read_is_not_asked_for_each_record() {
        let corrupt: Vec<u64> = (0..10_000).collect();
        let (answers, calls) = asked(10_000, &corrupt).await;
        assert!(answers.iter().all(Option::is_none) && answers.len() == 10_000);
        assert!(calls <= 2 * MOST + 1, "{calls}");
    }
}
