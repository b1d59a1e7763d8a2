//! The journal: subscriptions, recorders and tracing are told the same.

use tenure_actors::{Application, ApplicationSpec, EventId, EventKind, Heard, Subscription, Verb, testkit};

use crate::bench::{self, Plain, request};
use crate::traced::{self, Lines};

fn drain(events: &mut Subscription) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(Heard::Event(event)) = events.try_next() {
        seen.push(format!("{} {} {}", event.actor, event.kind.verb(), event.kind));
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn app_a_slow_reader_is_told_how_many_events_it_missed() {
    let spec = ApplicationSpec { journal_capacity: 4, ..Default::default() };
    let application = Application::open(spec).await.unwrap();
    let mut slow = application.events();
    let recorder = application.journal().record();
    for n in 0..10 {
        let operation = format!("o{n}");
        application.current().operations().reserve(request(&operation, &["k"])).await.unwrap().release();
    }
    let all = recorder.events();
    let Some(Heard::Missed(missed)) = slow.next().await else { panic!("it missed most of {}", all.len()) };
    assert_eq!(usize::try_from(missed).unwrap(), all.len() - 4);
    let kept = std::iter::from_fn(|| slow.try_next()).map(|heard| match heard {
        Heard::Event(event) => event.id,
        Heard::Missed(missed) => panic!("missed {missed} more"),
    });
    assert_eq!(
        kept.collect::<Vec<_>>(),
        all[all.len() - 4..].iter().map(|event| event.id).collect::<Vec<_>>()
    );
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_all_readers_hear_the_same() {
    let application = bench::open().await;
    let (mut one, mut two) = (application.events(), application.journal().subscribe());
    application.current().registry().start("x", bench::waiting()).await.unwrap();
    bench::close(&application).await;
    let heard = drain(&mut one);
    assert!(heard.len() > 5, "{heard:?}");
    assert_eq!(heard, drain(&mut two));
}

#[tokio::test(start_paused = true)]
async fn app_every_cause_is_an_earlier_event() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    application.current().registry().start("x", bench::waiting()).await.unwrap();
    application.replace().await.unwrap();
    testkit::fail_registry(&application.current(), "boom");
    application.current().closed().await.unwrap();
    bench::close(&application).await;
    let events = recorder.events();
    let ids: Vec<EventId> = events.iter().map(|event| event.id).collect();
    assert!(ids.is_sorted_by(|one, two| one < two));
    for event in events {
        assert!(event.causes.iter().all(|cause| *cause < event.id), "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn app_applied_commits_make_events_only_for_a_recorder_refused_ones_always() {
    let application = bench::open().await;
    let mut events = application.events();
    let object = Plain::new();
    let process = application.current().registry().start("x", object.spec()).await.unwrap();
    object.context().commit_named("1 row", || ()).unwrap();
    assert!(!drain(&mut events).iter().any(|line| line.contains("1 row")));

    let recorder = application.journal().record();
    object.context().commit_named("2 rows", || ()).unwrap();
    process.close().await;
    assert!(object.context().commit_named("3 rows", || ()).is_err());
    let verbs: Vec<_> = recorder.events().iter().map(|event| event.kind.verb()).collect();
    for wanted in [Verb::Submit, Verb::Commit, Verb::DropLate] {
        assert!(verbs.contains(&wanted), "{verbs:?}");
    }
    let report = bench::close(&application).await;
    assert_eq!((report.commits.applied, report.commits.dropped), (2, 1));
}

/// Listens to `tracing` on this thread.
fn listen(lines: &Lines, level: tracing::Level) -> tracing::subscriber::DefaultGuard {
    let subscriber =
        tracing_subscriber::fmt().with_writer(lines.clone()).with_max_level(level).without_time();
    traced::listen(subscriber.with_ansi(false).finish())
}

#[track_caller]
fn assert_has(lines: &Lines, level: &str, parts: &[&str]) {
    let text = lines.text();
    let found = text
        .lines()
        .any(|line| line.trim_start().starts_with(level) && parts.iter().all(|part| line.contains(part)));
    assert!(found, "{level} {parts:?} in\n{text}");
}

#[tokio::test(start_paused = true)]
async fn app_tracing_is_told_what_the_journal_tells() {
    let lines = Lines::default();
    let _listening = listen(&lines, tracing::Level::DEBUG);
    let application = bench::open().await;
    application.current().registry().start("x", bench::waiting()).await.unwrap();
    testkit::fail_registry(&application.current(), "boom");
    application.current().closed().await.unwrap();
    bench::close(&application).await;
    assert_has(&lines, "DEBUG", &["tenure: actor=app verb=open", "g1 epoch 1"]);
    assert_has(
        &lines,
        "DEBUG",
        &["generation=1", "actor=registry#1", "verb=bind", "x to waiting#1, epoch 1"],
    );
    assert_has(&lines, "WARN", &["actor=registry#1", "verb=fail", "boom"]);
    assert_has(&lines, "DEBUG", &["verb=closed", "reason failed"]);
}

#[tokio::test(start_paused = true)]
async fn app_tracing_above_debug_is_told_what_went_wrong_alone() {
    let lines = Lines::default();
    let _listening = listen(&lines, tracing::Level::INFO);
    let application = bench::open().await;
    application.current().registry().start("x", bench::waiting()).await.unwrap();
    testkit::fail_registry(&application.current(), "boom");
    application.current().closed().await.unwrap();
    bench::close(&application).await;
    assert_has(&lines, "WARN", &["verb=fail", "boom"]);
    let text = lines.text();
    assert!(!["verb=bind", "verb=open", "verb=closed"].iter().any(|verb| text.contains(verb)), "{text}");
}

#[tokio::test(start_paused = true)]
async fn app_giving_up_is_told_as_an_error() {
    let lines = Lines::default();
    let _listening = listen(&lines, tracing::Level::ERROR);
    let intensity = tenure_actors::rules::Intensity::limited(0, 1_000).unwrap();
    let application = Application::open(ApplicationSpec { intensity, ..Default::default() }).await.unwrap();
    testkit::fail_operations(&application.current(), "boom");
    application.ended().await;
    assert_has(&lines, "ERROR", &["actor=app", "verb=give-up"]);
}

#[tokio::test(start_paused = true)]
async fn app_the_journal_is_silent_about_nothing_that_was_refused() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    let generation = application.current();
    let process = generation.registry().start("x", bench::waiting()).await.unwrap();
    let stranger = generation.registry().start("y", bench::waiting()).await.unwrap().identity();
    drop(generation.registry().start("x", bench::waiting()).await.unwrap_err());
    assert!(!generation.registry().remove("x", &stranger));
    let _held = generation.operations().reserve(request("a", &["k"])).await.unwrap();
    drop(generation.operations().reserve(request("b", &["k"])).await.unwrap_err());
    let refused =
        |kind: &EventKind| matches!(kind, EventKind::Refused { .. } | EventKind::UnbindRefused { .. });
    let told: Vec<_> = recorder
        .events()
        .iter()
        .filter(|event| refused(&event.kind))
        .map(|event| event.kind.to_string())
        .collect();
    assert_eq!(
        told,
        [
            "x, already running",
            "x refused, owner is g1 waiting#1",
            "b, busy: operation \"a\" of owner \"owner\", application-wide is active",
        ]
    );
    drop(process);
    bench::close(&application).await;
}
