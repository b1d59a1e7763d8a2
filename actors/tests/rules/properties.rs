//! What holds for every setting, timeline and set of children.

use proptest::prelude::{Just, Strategy as _, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use tenure_actors::rules::*;

use crate::support::*;

fn any_settings() -> impl proptest::strategy::Strategy<Value = BackoffSettings> {
    let edges = || prop_oneof![1..100_000_u64, 1..=u64::MAX];
    let factor = prop_oneof![Just(1.0), 1.001..16.0_f64, Just(f64::MAX)];
    (edges(), edges(), factor, 0.0..=1.0_f64, any::<Option<u64>>()).prop_map(
        |(one_ms, other_ms, factor, jitter, reset_after_ms)| BackoffSettings {
            min_ms: one_ms.min(other_ms),
            max_ms: one_ms.max(other_ms),
            factor,
            jitter,
            reset_after_ms,
        },
    )
}

fn any_attempt() -> impl proptest::strategy::Strategy<Value = u32> {
    prop_oneof![0..80_u32, any::<u32>()]
}

fn any_children() -> impl proptest::strategy::Strategy<Value = Vec<ChildView>> {
    let child = (proptest::sample::select(&STATES[..]), proptest::sample::select(&RESTARTS[..]))
        .prop_map(|(state, restart)| ChildView { state, restart });
    proptest::collection::vec(child, 1..12)
}

/// Steps between restarts, mostly about as long as the periods drawn.
fn any_steps() -> impl proptest::strategy::Strategy<Value = Vec<u64>> {
    proptest::collection::vec(prop_oneof![0..4_u64, 0..40_u64, Just(u64::MAX / 2)], 0..60)
}

fn rises(indices: &[usize]) -> bool {
    indices.windows(2).all(|pair| pair[0] < pair[1])
}

proptest! {
    #[test]
    fn a_delay_is_never_above_the_maximum_and_the_same_for_the_same_question(
        settings in any_settings(), attempt in any_attempt(), seed: u64,
    ) {
        let backoff = backoff(settings);
        let delay_ms = backoff.delay_ms(attempt, seed);
        prop_assert!(delay_ms <= settings.max_ms);
        prop_assert_eq!(delay_ms, backoff.delay_ms(attempt, seed));
    }

    #[test]
    fn a_delay_without_jitter_stays_within_the_bounds_and_never_shrinks(
        settings in any_settings(), attempt in any_attempt(), seed: u64,
    ) {
        let backoff = backoff(BackoffSettings { jitter: 0.0, ..settings });
        let delay_ms = backoff.delay_ms(attempt, seed);
        prop_assert!((settings.min_ms..=settings.max_ms).contains(&delay_ms));
        prop_assert!(delay_ms <= backoff.delay_ms(attempt.saturating_add(1), seed));
    }

    #[test]
    fn jitter_moves_a_delay_by_no_more_than_its_share(
        min_ms in 1..1_000_000_u64, factor in 1.0..4.0_f64, jitter in 0.0..=1.0_f64,
        attempt in 0..8_u32, seed: u64,
    ) {
        let settings = BackoffSettings { min_ms, max_ms: u64::MAX, factor, jitter, reset_after_ms: None };
        let exact_ms = backoff(BackoffSettings { jitter: 0.0, ..settings }).delay_ms(attempt, seed);
        let moved_ms = backoff(settings).delay_ms(attempt, seed).abs_diff(exact_ms);
        prop_assert!(moved_ms as f64 <= jitter * exact_ms as f64 + 1.0);
    }

    #[test]
    fn a_window_agrees_with_counting_all_restarts_and_stays_small(
        restarts in 0..6_u32, period_ms in 1..40_u64, steps in any_steps(),
    ) {
        let limit = limited(restarts, period_ms);
        let mut window = RestartWindow::default();
        let (mut now_ms, mut all_ms) = (0_u64, Vec::new());
        for step_ms in steps {
            now_ms = now_ms.saturating_add(step_ms);
            all_ms.push(now_ms);
            let counted = all_ms.iter().filter(|then_ms| now_ms - **then_ms <= period_ms).count();
            let admitted = matches!(window.record(now_ms, &limit), Admission::Admitted { .. });
            prop_assert_eq!(admitted, counted <= restarts as usize);
            prop_assert!(window.counted() <= restarts + 1);
        }
    }

    #[test]
    fn a_plan_keeps_its_orders_and_touches_only_whom_it_may(
        strategy in proptest::sample::select(&STRATEGIES[..]), children in any_children(), failed in 0..12_usize,
    ) {
        let Plan { stop, forget, start } = restart_plan(strategy, &children, failed);
        let state = |index: usize| children[index].state;
        prop_assert!(rises(&start) && rises(&forget));
        prop_assert!(rises(&stop.iter().rev().copied().collect::<Vec<_>>()));
        prop_assert!(!stop.contains(&failed));
        prop_assert!(stop.iter().all(|index| matches!(state(*index), ChildState::Running | ChildState::Starting)));
        prop_assert!(stop.iter().all(|index| start.contains(index) || forget.contains(index)));
        prop_assert!(start.iter().all(|index| children[*index].restart != Restart::Temporary));
        prop_assert!(forget.iter().all(|index| children[*index].restart == Restart::Temporary));
        let undisturbed = |index: &usize| *index == failed || state(*index) != ChildState::StoppedOnPurpose;
        prop_assert!(start.iter().chain(&forget).all(undisturbed));
        let reached = stop.iter().chain(&forget).chain(&start);
        prop_assert!(strategy != Strategy::RestForOne || reached.clone().all(|index| *index >= failed));
        prop_assert!(strategy != Strategy::OneForOne || reached.clone().all(|index| *index == failed));
    }

    #[test]
    fn a_deadline_is_never_before_the_question(patience_ms: u64, now_ms: u64, close_ms: u64) {
        let patience = Patience::Time(patience_ms);
        prop_assert!(patience.deadline(now_ms).is_some_and(|at_ms| at_ms >= now_ms));
        prop_assert!(patience.deadline_within(now_ms, close_ms) <= close_ms);
    }
}
