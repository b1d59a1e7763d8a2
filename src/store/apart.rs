//! One record that cannot be read keeps no other from what is asked for all of them at once (F2).

use std::future::Future;
use std::iter::repeat_n;
use std::time::Duration;

use tokio::time::Instant;

use super::{RefusedKind, StoreError};

/// How many parts may fail before it is the store that cannot be read, and not some of its records: so many, and one
/// for each record that can.
const MOST: usize = 64;

/// An answer that comes sooner is one. A store that writes each record for itself cannot say that nothing was done when
/// one of them cannot be read.
const SOON: Duration = Duration::from_secs(1);

fn may_be_of_one(error: &StoreError, after: Duration) -> bool {
    match error {
        StoreError::Refused { kind, .. } => *kind == RefusedKind::Corrupt,
        StoreError::Unknown { .. } => after < SOON,
    }
}

/// Asks for all at once; if a record among them cannot be read, in parts. An answer for each, in order.
pub(crate) async fn each<T, A, F, Fut>(all: Vec<T>, ask: F) -> Vec<Result<A, StoreError>>
where
    T: Clone,
    F: Fn(Vec<T>) -> Fut,
    Fut: Future<Output = Result<Vec<A>, StoreError>>,
{
    let (mut answers, mut may_fail) = (Vec::with_capacity(all.len()), MOST);
    let mut parts = vec![all];
    while let Some(mut part) = parts.pop() {
        let (begun, many, asked) = (answers.len(), part.len(), Instant::now());
        match ask(part.clone()).await {
            Ok(found) => {
                may_fail += many;
                answers.extend(found.into_iter().take(many).map(Ok));
                let missing = || Err(StoreError::unknown("no answer for one of several"));
                answers.resize_with(begun + many, missing);
            }
            Err(error) if many > 1 && may_fail > 0 && may_be_of_one(&error, asked.elapsed()) => {
                may_fail -= 1;
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
        let error = StoreError::refused(RefusedKind::Corrupt, "it cannot be read");
        failing(all, corrupt, error, Duration::ZERO).await
    }

    async fn failing(
        all: u64,
        corrupt: &[u64],
        error: StoreError,
        after: Duration,
    ) -> (Vec<Option<u64>>, usize) {
        let calls = std::cell::Cell::new(0);
        let ask = |part: Vec<u64>| {
            calls.set(calls.get() + 1);
            let error = error.clone();
            async move {
                if part.iter().any(|one| corrupt.contains(one)) {
                    let _passed = tokio::time::timeout(after, std::future::pending::<()>()).await;
                    return Err(error);
                }
                Ok(part)
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

    #[tokio::test(start_paused = true)]
    async fn what_others_were_asked_for_is_not_known_only_when_an_answer_was_missing() {
        let unknown = || StoreError::unknown("one of its records cannot be read");
        let expected = vec![Some(0), None, Some(2), Some(3)];
        assert_eq!(failing(4, &[1], unknown(), Duration::ZERO).await.0, expected);
        assert_eq!(failing(4, &[1], unknown(), SOON).await, (vec![None; 4], 1), "nobody has answered");
        let away = StoreError::refused(RefusedKind::Unavailable, "it is not there");
        assert_eq!(failing(4, &[1], away, Duration::ZERO).await, (vec![None; 4], 1));
    }

    #[tokio::test]
    async fn own_f2_many_records_that_cannot_be_read_keep_none_that_can_from_its_answer() {
        let spoilt: Vec<u64> = (0..512).filter(|one| one % 16 == 5).collect();
        let expected: Vec<_> = (0..512).map(|one| (!spoilt.contains(&one)).then_some(one)).collect();
        let (answers, calls) = asked(512, &spoilt).await;
        assert_eq!(answers, expected);
        assert!(calls <= 2 * 512, "{calls}");
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_read_is_not_asked_for_each_record() {
        let corrupt: Vec<u64> = (0..10_000).collect();
        let (answers, calls) = asked(10_000, &corrupt).await;
        assert!(answers.iter().all(Option::is_none) && answers.len() == 10_000);
        assert!(calls <= 2 * MOST + 1, "{calls}");
    }
}
