//! The rules of supervision, each as a whole table, and the peers' cases that the rules alone can prove.
//!
//! A test that carries a peer's case id asserts what that case says about the *decision*; that the actors
//! carry it out is shown by the scenarios of the supervisor.

#[path = "rules/properties.rs"]
mod properties;
#[path = "rules/support.rs"]
mod support;

use std::fmt::Debug;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{
    Error as SerdeError, MapAccessDeserializer, MapDeserializer, StrDeserializer, U64Deserializer,
};
use support::*;
use tenure_actors::rules::*;

// Restart types.

#[test]
fn restart_by_exit_class() {
    let rows = RESTARTS.iter().map(|restart| {
        let verdicts = CLASSES.iter().map(|class| words(after_exit(*restart, *class)));
        std::iter::once(words(restart)).chain(verdicts).collect()
    });
    let grid = table(std::iter::once(row!["", "normal", "shutdown", "abnormal"]).chain(rows));
    insta::assert_snapshot!(grid);
}

#[test]
fn peer_os_13_a_child_is_permanent_with_five_seconds_patience_by_default() {
    assert_eq!(Restart::default(), Restart::Permanent);
    assert_eq!(Patience::default(), Patience::Time(5_000));
}

#[test]
fn peer_os_30_a_transient_child_that_ends_normally_keeps_its_spec() {
    assert_eq!(after_exit(Restart::Transient, ExitClass::Normal), Verdict::Keep);
}

#[test]
fn peer_os_31_os_34_os_38_a_temporary_child_is_forgotten_after_any_end() {
    assert_eq!(after_exit(Restart::Temporary, ExitClass::Normal), Verdict::Forget);
    assert_eq!(after_exit(Restart::Temporary, ExitClass::Shutdown), Verdict::Forget);
    assert_eq!(after_exit(Restart::Temporary, ExitClass::Abnormal), Verdict::Forget);
}

#[test]
fn peer_os_37_a_transient_child_that_crashes_is_started_again() {
    assert_eq!(after_exit(Restart::Transient, ExitClass::Abnormal), Verdict::Restart);
}

#[test]
fn peer_ed_19_a_temporary_child_is_not_restarted_regardless_of_reason() {
    for class in CLASSES {
        let policy = ChildPolicy { restart: Restart::Temporary, ..Default::default() };
        let decision = Child::of(policy).ends(class, 0, &mut RestartLimit::default());
        assert_eq!(decision, Decision::Forget, "{class:?}");
    }
}

#[test]
fn peer_ed_21_a_permanent_child_is_restarted_regardless_of_reason() {
    for class in CLASSES {
        let decision = plain().ends(class, 0, &mut RestartLimit::default());
        assert_eq!(decision, Decision::Restart { delay_ms: 0, attempt: 0 }, "{class:?}");
    }
}

// Strategies.

fn plan_row(strategy: Strategy, children: &[ChildView], failed: usize) -> Vec<String> {
    let Plan { stop, forget, start } = restart_plan(strategy, children, failed);
    row![words(strategy), failed, indices(&stop), indices(&forget), indices(&start)]
}

fn plan_table(children: &[ChildView], failed: std::ops::RangeInclusive<usize>) -> String {
    let rows = STRATEGIES
        .iter()
        .flat_map(|strategy| failed.clone().map(|failed| plan_row(*strategy, children, failed)));
    table(std::iter::once(row!["strategy", "failed", "stop", "forget", "start"]).chain(rows))
}

#[test]
fn plan_by_strategy_and_failed_child() {
    // The last index is beyond the children.
    let grid = plan_table(&[UP; 4], 0..=4);
    insta::assert_snapshot!(grid);
}

#[test]
fn plan_among_mixed_siblings() {
    use ChildState::*;
    use Restart::*;
    let children = [
        view(Running, Permanent),
        view(Running, Temporary),
        view(StoppedOnPurpose, Permanent),
        view(Starting, Transient),
        view(BackingOff, Permanent),
        view(Ended, Transient),
        view(Running, Temporary),
        view(Running, Permanent),
    ];
    let listed = children
        .iter()
        .enumerate()
        .map(|(index, child)| row![index, words(child.restart), words(child.state)]);
    let grid = format!("{}\n\n{}", table(listed), plan_table(&children, 0..=7));
    insta::assert_snapshot!(grid);
}

/// What becomes of a sibling right before or after the failed child.
fn fate(strategy: Strategy, sibling: ChildView, before: bool) -> String {
    let (children, failed, index) = if before { ([sibling, DOWN], 1, 0) } else { ([DOWN, sibling], 0, 1) };
    let Plan { stop, forget, start } = restart_plan(strategy, &children, failed);
    assert!(start.contains(&failed), "the failed child is always started");
    let steps = [("stop", &stop), ("forget", &forget), ("start", &start)];
    let taken: Vec<_> = steps.iter().filter(|step| step.1.contains(&index)).map(|step| step.0).collect();
    if taken.is_empty() { "-".to_owned() } else { taken.join(", ") }
}

#[test]
fn fate_of_a_sibling_by_state_strategy_and_position() {
    let columns: Vec<_> =
        STRATEGIES.iter().flat_map(|strategy| [(*strategy, true), (*strategy, false)]).collect();
    let mut rows = vec![row!["sibling", ""]];
    for (strategy, before) in &columns {
        let place = if *before { "before" } else { "after" };
        rows[0].push(format!("{}, {place}", words(strategy)));
    }
    for state in STATES {
        for restart in RESTARTS {
            let mut row = row![words(state), words(restart)];
            row.extend(
                columns.iter().map(|(strategy, before)| fate(*strategy, view(state, restart), *before)),
            );
            rows.push(row);
        }
    }
    let grid = table(rows);
    insta::assert_snapshot!(grid);
}

#[test]
fn a_failed_temporary_child_is_forgotten_and_its_siblings_are_left_alone() {
    let children = [UP, view(ChildState::BackingOff, Restart::Temporary), UP];
    for strategy in STRATEGIES {
        assert_eq!(restart_plan(strategy, &children, 1), plan(&[], &[1], &[]), "{strategy:?}");
    }
}

#[test]
fn peer_os_43_one_for_all_replaces_every_child() {
    let plan_made = restart_plan(Strategy::OneForAll, &[UP, DOWN, UP], 1);
    assert_eq!(plan_made, plan(&[2, 0], &[], &[0, 1, 2]));
}

#[test]
fn peer_os_53_of_two_restarting_children_only_the_one_that_failed_to_start_is_retried() {
    // The first child failed, came back, and the second failed to start; a third still waits behind it.
    let plan_made = restart_plan(Strategy::RestForOne, &[UP, DOWN, DOWN], 1);
    assert_eq!(plan_made, plan(&[], &[], &[1, 2]));
}

#[test]
fn peer_os_85_children_are_stopped_in_exactly_the_reverse_of_their_start_order() {
    assert_eq!(stop_order(4).collect::<Vec<_>>(), [3, 2, 1, 0]);
    assert_eq!(stop_order(0).next(), None);
    let plan_made = restart_plan(Strategy::RestForOne, &[UP, DOWN, UP, UP], 1);
    assert_eq!(plan_made, plan(&[3, 2], &[], &[1, 2, 3]));
}

// Intensity.

/// The answers to restarts at these instants.
fn timeline(intensity: &Intensity, instants_ms: &[u64]) -> String {
    let mut window = RestartWindow::default();
    let answer = |now_ms: &u64| match window.record(*now_ms, intensity) {
        Admission::Admitted { left: Some(left) } => format!("{now_ms} ok, {left} left"),
        Admission::Admitted { left: None } => format!("{now_ms} ok"),
        Admission::Exceeded { restarts, period_ms } => {
            format!("{now_ms} more than {restarts} in {period_ms}")
        }
    };
    instants_ms.iter().map(answer).collect::<Vec<_>>().join(" | ")
}

#[test]
fn intensity_timelines() {
    let day_ms = 24 * 60 * 60 * 1_000;
    let cases: [(&str, Intensity, &[u64]); 13] = [
        ("all at once", Intensity::default(), &[0, 0, 0, 0]),
        ("just inside", Intensity::default(), &[0, 1, 2, 4_999]),
        ("exactly the period old", Intensity::default(), &[0, 1, 2, 5_000]),
        ("just outside", Intensity::default(), &[0, 1, 2, 5_001, 5_002]),
        ("one at a time", limited(1, 1_000), &[0, 1_001, 2_002, 3_003, 4_003]),
        ("shortest period", limited(1, 1), &[5, 7, 8]),
        ("never", limited(0, 5_000), &[0]),
        ("after the end", limited(1, 10), &[0, 1, 2, 13]),
        ("30 days", limited(2, 30 * day_ms), &[0, 29 * day_ms, 30 * day_ms, 60 * day_ms + 1]),
        ("longest period", limited(1, u64::MAX), &[0, u64::MAX]),
        ("late origin", limited(1, 10), &[u64::MAX - 11, u64::MAX, u64::MAX]),
        ("clock goes back", limited(2, 10), &[20, 5, 31, 42]),
        ("no limit", Intensity::Unlimited, &[0, 0, 0, 0]),
    ];
    let rows = cases.map(|(name, intensity, instants_ms)| row![name, timeline(&intensity, instants_ms)]);
    let grid = table(rows);
    insta::assert_snapshot!(grid);
}

#[test]
fn peer_ed_04_the_default_is_one_for_one_with_three_restarts_in_five_seconds() {
    assert_eq!(Strategy::default(), Strategy::OneForOne);
    assert_eq!(Intensity::default(), limited(3, 5_000));
}

#[test]
fn peer_ps_11_limit_0_means_never_restart() {
    let decision = plain().runs(0, 1, &mut RestartLimit::new(limited(0, 5_000)));
    assert_eq!(decision, gives_up(Who::Supervisor, 0, 5_000));
}

#[test]
fn peer_pc_21_no_limit_means_no_limit() {
    let mut supervisor = RestartLimit::new(Intensity::Unlimited);
    let mut child = plain();
    assert!((0..10_000).all(|_| is_restart(child.runs(7, 7, &mut supervisor))));
}

#[test]
fn peer_pc_24_pc_25_a_window_of_30_days_does_not_overflow_into_no_limit() {
    // One test for both strategies: the limit does not know the strategy.
    let period_ms = 30 * 24 * 60 * 60 * 1_000;
    assert!(period_ms > 1 << 31);
    let mut window = RestartWindow::default();
    let limit = limited(1, period_ms);
    assert_eq!(window.record(0, &limit), Admission::Admitted { left: Some(0) });
    assert_eq!(window.record(period_ms - 1, &limit), Admission::Exceeded { restarts: 1, period_ms });
}

// Back-off.

#[test]
fn delays_without_jitter() {
    let columns = [
        ("default", doubling(100, 30_000)),
        ("200 up", doubling(200, 60_000)),
        ("factor 1.5", backoff(BackoffSettings { factor: 1.5, jitter: 0.0, ..Default::default() })),
        ("factor 1", backoff(BackoffSettings { factor: 1.0, jitter: 0.0, ..Default::default() })),
        ("factor 1e300", backoff(BackoffSettings { factor: 1e300, jitter: 0.0, ..Default::default() })),
        ("min is max", doubling(700, 700)),
        ("no ceiling", doubling(1, u64::MAX)),
        ("none", Backoff::none()),
    ];
    let attempts = (0..=12).chain([31, 32, 53, 63, 64, 1_023, 1_024, u32::MAX]);
    let mut rows = vec![row!["attempt"]];
    rows[0].extend(columns.iter().map(|column| column.0.to_owned()));
    rows.extend(attempts.map(|attempt| {
        let delays = columns.iter().map(|column| column.1.delay_ms(attempt, 0).to_string());
        std::iter::once(attempt.to_string()).chain(delays).collect()
    }));
    let grid = table(rows);
    insta::assert_snapshot!(grid);
}

#[test]
fn delays_with_jitter_by_seed() {
    let seeds = [0, 1, 2, 0xfeed, u64::MAX];
    let mut rows = vec![row!["attempt", "exact"]];
    rows[0].extend(seeds.map(|seed| format!("seed {seed}")));
    rows.extend((0..=12).map(|attempt| {
        let exact_ms = doubling(100, 30_000).delay_ms(attempt, 0);
        let mut row = row![attempt, exact_ms];
        row.extend(seeds.map(|seed| Backoff::default().delay_ms(attempt, seed).to_string()));
        row
    }));
    let grid = table(rows);
    insta::assert_snapshot!(grid);
}

#[test]
fn jitter_is_drawn_from_the_published_splitmix64() {
    // The first numbers of seed 1234567; a share of 1 makes 2^50 ms into 2^51 ms times a number below 1.
    let published = [6_457_827_717_110_365_317_u64, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
    let ms = 1 << 50;
    let settings =
        BackoffSettings { min_ms: ms, max_ms: 2 * ms, factor: 1.0, jitter: 1.0, reset_after_ms: None };
    for (attempt, number) in (0..).zip(published) {
        let drawn = (number >> 11) as f64 / (1_u64 << 53) as f64;
        let expected_ms = (drawn * (2 * ms) as f64).round() as u64;
        assert_eq!(backoff(settings).delay_ms(attempt, 1_234_567), expected_ms, "attempt {attempt}");
    }
}

#[test]
fn resets() {
    let with = |min_ms, max_ms, reset_after_ms| {
        backoff(BackoffSettings { min_ms, max_ms, reset_after_ms, ..Default::default() })
    };
    let cases = [
        ("default", Backoff::default()),
        ("no delay", Backoff::none()),
        ("always", with(100, 30_000, Some(0))),
        ("after 1 s", with(100, 30_000, Some(1_000))),
        ("widest bounds", with(1, u64::MAX, None)),
        ("never", with(100, 30_000, Some(u64::MAX))),
    ];
    let rows = cases.map(|(name, backoff)| {
        let after_ms = backoff.reset_after_ms();
        let one_less =
            after_ms.checked_sub(1).map_or("-".to_owned(), |quiet_ms| words(backoff.reset(quiet_ms)));
        row![name, after_ms, one_less, words(backoff.reset(after_ms))]
    });
    let grid = table(std::iter::once(row!["", "resets after", "1 ms less", "exactly"]).chain(rows));
    insta::assert_snapshot!(grid);
}

#[test]
fn peer_ps_51_the_reset_time_is_the_mean_of_both_bounds_by_default() {
    let backoff = doubling(200, 1_000);
    assert_eq!(backoff.reset_after_ms(), 600);
    assert!(backoff.reset(600));
    assert!(!backoff.reset(599));
}

#[test]
fn peer_pb_09_the_delay_is_min_times_two_to_the_n_capped_without_overflow() {
    let backoff = doubling(100, 30_000);
    let computed: Vec<_> = (0..12).map(|attempt| backoff.delay_ms(attempt, 0)).collect();
    let expected: Vec<_> = (0..12).map(|n| (100 << n).min(30_000)).collect();
    assert_eq!(computed, expected);
    for huge in [64, 1_024, 100_000, u32::MAX] {
        assert_eq!(backoff.delay_ms(huge, 0), 30_000, "attempt {huge}");
    }
}

#[test]
fn peer_pb_15_exponential_back_off_of_200_400_800_1600() {
    let mut supervisor = RestartLimit::new(Intensity::Unlimited);
    let mut child = Child::new(Intensity::Unlimited, doubling(200, 10_000));
    let decisions = [0, 201, 602, 1_403].map(|at_ms| child.runs(at_ms, at_ms + 1, &mut supervisor));
    assert_eq!(
        outcomes(&decisions),
        ["restart 0 after 200", "restart 1 after 400", "restart 2 after 800", "restart 3 after 1600"]
    );
}

// Patience.

#[test]
fn deadlines_by_patience() {
    let patiences = [
        Patience::Kill,
        Patience::Time(0),
        Patience::Time(1),
        Patience::default(),
        Patience::Time(u64::MAX),
        Patience::Unlimited,
    ];
    let rows = patiences.map(|patience| {
        let deadline =
            |now_ms| patience.deadline(now_ms).map_or("never".to_owned(), |at_ms| at_ms.to_string());
        row![
            format!("{patience:?}").to_lowercase(),
            deadline(0),
            deadline(1_000),
            deadline(u64::MAX),
            patience.deadline_within(1_000, 4_000),
            patience.deadline_within(1_000, 30_000),
        ]
    });
    let head = row!["", "at 0", "at 1000", "at the end of time", "at 1000, close by 4000", "by 30000"];
    let grid = table(std::iter::once(head).chain(rows));
    insta::assert_snapshot!(grid);
}

#[test]
fn peer_es_15_ed_29_a_patience_of_0_and_of_1_ms_is_legal() {
    assert_eq!(Patience::Time(0).deadline(7), Some(7));
    assert_eq!(Patience::Time(1).deadline(7), Some(8));
}

// Decisions.

/// One end under limits that are, or are not, used up already.
fn decide_once(restart: Restart, class: ExitClass, child_spent: bool, supervisor_spent: bool) -> String {
    let limit = |spent| limited(if spent { 0 } else { 1 }, 1_000);
    let policy = ChildPolicy { restart, intensity: limit(child_spent), backoff: doubling(100, 30_000) };
    outcome(Child::of(policy).ends(class, 5, &mut RestartLimit::new(limit(supervisor_spent))))
}

#[test]
fn decision_by_restart_exit_and_limits() {
    let head = row!["", "", "both admit", "child exceeded", "supervisor exceeded", "both exceeded"];
    let cells = RESTARTS.iter().flat_map(|restart| CLASSES.iter().map(move |class| (*restart, *class)));
    let rows = cells.map(|(restart, class)| {
        let decided = [(false, false), (true, false), (false, true), (true, true)]
            .map(|(child, supervisor)| decide_once(restart, class, child, supervisor));
        row![words(restart), words(class)].into_iter().chain(decided).collect()
    });
    let grid = table(std::iter::once(head).chain(rows));
    insta::assert_snapshot!(grid);
}

#[test]
fn decisions_over_the_life_of_one_child() {
    let settings = BackoffSettings {
        min_ms: 100,
        max_ms: 400,
        jitter: 0.0,
        reset_after_ms: Some(1_000),
        ..Default::default()
    };
    let policy =
        ChildPolicy { restart: Restart::Transient, intensity: limited(4, 5_000), backoff: backoff(settings) };
    let mut child = Child::of(policy);
    let mut supervisor = RestartLimit::new(limited(10, 60_000));
    // When its start was done, if it was; how and when it ended.
    let ends = [
        (Some(0), ExitClass::Abnormal, 10),
        (Some(110), ExitClass::Abnormal, 1_109),
        (None, ExitClass::Abnormal, 1_400),
        (None, ExitClass::Abnormal, 1_900),
        (Some(2_300), ExitClass::Abnormal, 5_100),
        (Some(5_200), ExitClass::Normal, 5_300),
        (Some(5_400), ExitClass::Abnormal, 5_500),
        (Some(6_000), ExitClass::Abnormal, 6_001),
    ];
    let rows = ends.map(|(started_ms, class, at_ms): (Option<u64>, _, _)| {
        if let Some(started_ms) = started_ms {
            child.state.started(started_ms);
        }
        let decision = outcome(child.ends(class, at_ms, &mut supervisor));
        let started = started_ms.map_or("start failed".to_owned(), |ms| format!("started {ms}"));
        row![started, format!("{} {at_ms}", words(class)), decision, child.state.in_a_row()]
    });
    let grid = table(std::iter::once(row!["", "ended", "decision", "in a row"]).chain(rows));
    insta::assert_snapshot!(grid);
}

#[test]
fn peer_os_41_one_for_one_replaces_only_the_crashed_child_until_one_crash_too_many() {
    assert_eq!(restart_plan(Strategy::OneForOne, &[UP, DOWN, UP], 1), plan(&[], &[], &[1]));
    let mut supervisor = RestartLimit::default();
    let mut child = plain();
    assert!((0..3).all(|at_ms| is_restart(child.runs(at_ms, at_ms, &mut supervisor))));
    assert_eq!(child.runs(3, 3, &mut supervisor), gives_up(Who::Supervisor, 3, 5_000));
}

#[test]
fn peer_os_42_a_restart_whose_start_fails_is_retried_until_the_limit() {
    let mut supervisor = RestartLimit::new(limited(4, 5_000));
    let mut child = plain();
    assert!(is_restart(child.runs(0, 10, &mut supervisor)));
    assert!((11..14).all(|at_ms| is_restart(child.fails(at_ms, &mut supervisor))));
    assert_eq!(child.fails(14, &mut supervisor), gives_up(Who::Supervisor, 4, 5_000));
}

/// One child crashes and comes back, a sibling of its group cannot be started again.
fn sibling_that_cannot_start_again() -> Decision {
    let mut supervisor = RestartLimit::default();
    assert!(is_restart(plain().runs(0, 10, &mut supervisor)));
    let mut sibling = plain();
    assert!((11..13).all(|at_ms| is_restart(sibling.fails(at_ms, &mut supervisor))));
    sibling.fails(13, &mut supervisor)
}

#[test]
fn peer_os_44_a_sibling_that_cannot_start_again_ends_all_under_one_for_all() {
    assert_eq!(restart_plan(Strategy::OneForAll, &[UP, DOWN], 1), plan(&[0], &[], &[0, 1]));
    assert_eq!(sibling_that_cannot_start_again(), gives_up(Who::Supervisor, 3, 5_000));
}

#[test]
fn peer_os_52_a_later_sibling_that_cannot_start_again_ends_the_supervisor_at_the_limit() {
    assert_eq!(restart_plan(Strategy::RestForOne, &[UP, DOWN], 1), plan(&[], &[], &[1]));
    assert_eq!(sibling_that_cannot_start_again(), gives_up(Who::Supervisor, 3, 5_000));
}

#[test]
fn peer_ed_26_a_failed_restart_is_tried_again_and_succeeds_within_the_limit() {
    let mut supervisor = RestartLimit::default();
    let mut child = plain();
    assert!(is_restart(child.runs(0, 10, &mut supervisor)));
    assert!(is_restart(child.fails(11, &mut supervisor)));
    child.state.started(12);
    assert_eq!(
        child.ends(ExitClass::Normal, 13, &mut supervisor),
        Decision::Restart { delay_ms: 0, attempt: 2 }
    );
}

#[test]
fn peer_ed_27_limit_1_with_a_failing_restart_ends_the_supervisor() {
    let mut supervisor = RestartLimit::new(limited(1, 5_000));
    let mut child = plain();
    assert!(is_restart(child.runs(0, 10, &mut supervisor)));
    assert_eq!(child.fails(11, &mut supervisor), gives_up(Who::Supervisor, 1, 5_000));
}

#[test]
fn peer_ed_28_retries_count_against_the_limit_of_ten() {
    let mut supervisor = RestartLimit::new(limited(10, 5_000));
    let mut child = plain();
    assert!(is_restart(child.runs(0, 10, &mut supervisor)));
    assert!((0..9).all(|_| is_restart(child.fails(11, &mut supervisor))));
    assert_eq!(child.fails(11, &mut supervisor), gives_up(Who::Supervisor, 10, 5_000));
}

#[test]
fn peer_ps_27_after_a_quiet_window_a_third_failure_restarts() {
    let mut supervisor = RestartLimit::new(limited(2, 1_000));
    let mut child = plain();
    assert!([0, 1, 1_002].iter().all(|at_ms| is_restart(child.runs(*at_ms, *at_ms, &mut supervisor))));
}

#[test]
fn peer_ps_43_start_failures_count_to_the_maximum_with_back_off() {
    let mut supervisor = RestartLimit::new(Intensity::Unlimited);
    let mut child = Child::new(limited(2, u64::MAX), doubling(100, 30_000));
    let decisions = [0, 100, 300].map(|at_ms| child.fails(at_ms, &mut supervisor));
    assert_eq!(outcomes(&decisions[..2]), ["restart 0 after 100", "restart 1 after 200"]);
    assert_eq!(decisions[2], gives_up(Who::Child, 2, u64::MAX));
}

#[test]
fn peer_ps_44_a_quiet_period_brings_the_delay_back_to_the_minimum() {
    let mut supervisor = RestartLimit::new(Intensity::Unlimited);
    let mut child = Child::new(Intensity::Unlimited, doubling(100, 300));
    assert_eq!(outcome(child.runs(0, 10, &mut supervisor)), "restart 0 after 100");
    assert_eq!(outcome(child.runs(110, 309, &mut supervisor)), "restart 1 after 200");
    assert_eq!(outcome(child.runs(509, 709, &mut supervisor)), "restart 0 after 100");
}

#[test]
fn peer_ps_52_a_failing_first_start_is_retried_after_the_delay() {
    let mut child = Child::new(Intensity::Unlimited, doubling(100, 300));
    assert_eq!(outcome(child.fails(0, &mut RestartLimit::default())), "restart 0 after 100");
}

#[test]
fn peer_pc_41_the_count_renews_when_the_window_has_passed() {
    let mut supervisor = RestartLimit::new(limited(1, 1_000));
    let mut child = plain();
    assert!((0..50).all(|turn| is_restart(child.runs(turn * 1_001, turn * 1_001, &mut supervisor))));
}

#[test]
fn peer_pc_42_a_limit_without_a_window_never_renews() {
    let mut supervisor = RestartLimit::new(limited(1, u64::MAX));
    let mut child = plain();
    assert!(is_restart(child.runs(0, 0, &mut supervisor)));
    assert_eq!(child.runs(0, u64::MAX, &mut supervisor), gives_up(Who::Supervisor, 1, u64::MAX));
}

#[test]
fn peer_pc_49_a_failing_start_is_tried_once_and_as_often_as_the_limit_allows() {
    let mut supervisor = RestartLimit::new(limited(2, 5_000));
    let mut child = plain();
    let starts = 1 + (0..100).take_while(|at_ms| is_restart(child.fails(*at_ms, &mut supervisor))).count();
    assert_eq!(starts, 1 + 2);
}

#[test]
fn peer_pb_10_pb_11_after_two_restarts_the_third_end_or_failure_ends_the_supervisor() {
    for class in [ExitClass::Normal, ExitClass::Abnormal] {
        let mut supervisor = RestartLimit::new(Intensity::Unlimited);
        let mut child = Child::new(limited(2, u64::MAX), doubling(100, 30_000));
        assert!([0, 1_000].iter().all(|at_ms| is_restart(child.ends(class, *at_ms, &mut supervisor))));
        assert_eq!(child.ends(class, 9_000, &mut supervisor), gives_up(Who::Child, 2, u64::MAX), "{class:?}");
    }
}

// The close report.

#[test]
fn bucket_by_end_told_and_kind() {
    use EndKind::*;
    let kinds = [ProcessKind::Actor, ProcessKind::Object, ProcessKind::Function];
    let mut rows = vec![row!["", "told", "actor", "object", "function"]];
    for told in [ToldToStop::No, ToldToStop::Yes] {
        for end in [Completed, Removed, Failed, Panicked, Killed, Remains] {
            let mut row = row![words(end), words(told)];
            row.extend(kinds.map(|kind| words(bucket(end, told, kind))));
            rows.push(row);
        }
    }
    let grid = table(rows);
    insta::assert_snapshot!(grid);
}

// Settings.

fn read_word<'de, T: Deserialize<'de>>(word: &'de str) -> Result<T, SerdeError> {
    T::deserialize(StrDeserializer::new(word))
}

fn read_fields<'de, T: Deserialize<'de>>(fields: &[(&'static str, u64)]) -> Result<T, SerdeError> {
    T::deserialize(MapDeserializer::new(fields.iter().copied()))
}

fn read_limited(fields: &[(&'static str, u64)]) -> Result<Intensity, SerdeError> {
    let inner = MapDeserializer::<_, SerdeError>::new(fields.iter().copied());
    let outer = MapDeserializer::new(std::iter::once(("limited", inner)));
    Intensity::deserialize(MapAccessDeserializer::new(outer))
}

fn read_time(ms: u64) -> Result<Patience, SerdeError> {
    let time: U64Deserializer<SerdeError> = ms.into_deserializer();
    let outer = MapDeserializer::new(std::iter::once(("time", time)));
    Patience::deserialize(MapAccessDeserializer::new(outer))
}

fn read<T: Debug>(text: &str, value: Result<T, SerdeError>) -> Vec<String> {
    let type_path = std::any::type_name::<T>();
    let type_name = type_path.rsplit("::").next().unwrap_or(type_path);
    let meaning = value.map_or_else(|error| format!("refused: {error}"), |value| format!("{value:?}"));
    row![type_name, text, meaning]
}

#[test]
fn settings_as_written() {
    let grid = table([
        read("permanent", read_word::<Restart>("permanent")),
        read("transient", read_word::<Restart>("transient")),
        read("temporary", read_word::<Restart>("temporary")),
        read("always", read_word::<Restart>("always")),
        read("one_for_one", read_word::<Strategy>("one_for_one")),
        read("one_for_all", read_word::<Strategy>("one_for_all")),
        read("rest_for_one", read_word::<Strategy>("rest_for_one")),
        read("simple_one_for_one", read_word::<Strategy>("simple_one_for_one")),
        read("unlimited", read_word::<Intensity>("unlimited")),
        read("limited, restarts 1, period_ms 9", read_limited(&[("restarts", 1), ("period_ms", 9)])),
        read("limited, restarts 1, period_ms 0", read_limited(&[("restarts", 1), ("period_ms", 0)])),
        read("limited, restarts 2^32, period_ms 9", read_limited(&[("restarts", 1 << 32), ("period_ms", 9)])),
        read("limited, restarts 1", read_limited(&[("restarts", 1)])),
        read("limited, period 9", read_limited(&[("period", 9)])),
        read("kill", read_word::<Patience>("kill")),
        read("time 0", read_time(0)),
        read("unlimited", read_word::<Patience>("unlimited")),
        read("(nothing)", read_fields::<Backoff>(&[])),
        read("min_ms 7, factor 3", read_fields::<Backoff>(&[("min_ms", 7), ("factor", 3)])),
        read("min_ms 40000", read_fields::<Backoff>(&[("min_ms", 40_000)])),
        read("jitter 2", read_fields::<Backoff>(&[("jitter", 2)])),
        read("delay 2", read_fields::<Backoff>(&[("delay", 2)])),
        read("(nothing)", read_fields::<ChildPolicy>(&[])),
    ]);
    insta::assert_snapshot!(grid);
}

#[test]
fn settings_refused() {
    let refused = |change: fn(&mut BackoffSettings)| {
        let mut settings = BackoffSettings::default();
        change(&mut settings);
        Backoff::new(settings).expect_err("outside its range").to_string()
    };
    let messages = [
        Intensity::limited(3, 0).expect_err("no period").to_string(),
        refused(|settings| settings.min_ms = 0),
        refused(|settings| settings.min_ms = 30_001),
        refused(|settings| settings.factor = 0.99),
        refused(|settings| settings.factor = f64::NAN),
        refused(|settings| settings.factor = f64::INFINITY),
        refused(|settings| settings.jitter = -0.1),
        refused(|settings| settings.jitter = 1.1),
        refused(|settings| settings.jitter = f64::NAN),
    ];
    let messages = messages.join("\n");
    insta::assert_snapshot!(messages);
}

#[test]
fn peer_os_28_ed_05_an_unknown_strategy_and_a_zero_period_are_refused_by_name() {
    let strategy = read_word::<Strategy>("two_for_one").expect_err("unknown").to_string();
    assert!(strategy.contains("two_for_one") && strategy.contains("one_for_one"), "{strategy}");
    let period = Intensity::limited(3, 0).expect_err("zero");
    assert_eq!(period.field, "period_ms");
}
