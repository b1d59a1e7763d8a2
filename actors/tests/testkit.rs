//! The testkit itself: what it lets through, and what it fails.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_actors::testkit::{Balance, Door, Guards, Recording, Scenario, Script, Stage, Transcript, Worker};
use tenure_actors::{
    Application, ApplicationSpec, CloseReason, Heard, Limits, ProcessContext, ProcessResult, ProcessSpec,
    Tree,
};

/// The text of the failure that a scenario must end with.
#[allow(clippy::expect_used, reason = "a helper of tests")]
fn failure(scenario: &Scenario, story: impl AsyncFn(&Stage) -> ProcessResult) -> String {
    scenario.try_run(story).expect_err("the scenario passed").to_string()
}

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

/// A close and a commit at one instant.
async fn same_instant(stage: &Stage) -> ProcessResult {
    let fetch = Script::new().at(40).commit("3 rows").after_stop(21);
    stage.registry().start("feed/42", fetch.function("fetch")).await?;
    stage.at(40).await;
    stage.close_as(CloseReason::Superseded).await?;
    Ok(())
}

// --- what fails a scenario ------------------------------------------------------------------------------

#[test]
fn an_unbalanced_verdict_fails() {
    // An effect that began and is neither polled nor dropped again has no outcome.
    let lost = || {
        ProcessSpec::function("fetch", |context| async move {
            let context: &'static ProcessContext = Box::leak(Box::new(context));
            let effect: Pin<Box<_>> = Box::pin(context.commit_async(|_| std::future::pending::<()>()));
            assert!(futures_util::poll!(Box::leak(Box::new(effect))).is_pending());
            Ok(())
        })
    };
    let text = failure(&Scenario::new("an effect without outcome"), async |stage| {
        stage.registry().start("feed/42", lost()).await?;
        Ok(())
    });
    assert_says(&text, &["does not add up", "submitted 1, but applied 0 and dropped 0"]);
}

#[test]
fn a_leaked_child_fails() {
    let text = failure(&Scenario::new("an object whose close is cut off").patience(500), async |stage| {
        let worker = Arc::new(Worker::new().on_close(Script::new().hang()));
        stage.registry().start("feed/42", worker.process("fetch")).await?;
        Ok(())
    });
    assert_says(&text, &["does not add up", "killed 0  leaked 1"]);
}

#[test]
fn a_guard_that_outlives_the_story_fails() {
    let text = failure(&Scenario::new("a task goes on"), async |stage| {
        std::mem::forget(stage.guards().guard());
        Ok(())
    });
    assert_says(&text, &["does not add up", "1 guards of the stage are alive"]);
}

#[test]
fn a_story_that_differs_by_itself_fails_with_its_seed() {
    static TOLD: AtomicUsize = AtomicUsize::new(1);
    let text = failure(&Scenario::new("never the same"), async |stage| {
        let told = TOLD.fetch_add(1, Ordering::Relaxed);
        let fetch = Script::new().commit(&format!("{told} rows"));
        stage.registry().start("feed/42", fetch.function("fetch")).await?;
        stage.at(10).await;
        Ok(())
    });
    assert_says(&text, &["seed 0", "two texts in two runs that are alike"]);
    let marked = |mark| text.lines().filter(|line| line.starts_with(mark)).count();
    assert!(marked('-') > 0 && marked('-') == marked('+'), "{text}");
}

#[test]
fn a_shuffled_run_that_differs_fails_with_its_seed() {
    let text = failure(&Scenario::new("a race that nobody names"), same_instant);
    let seed = text.split("seed ").nth(1).and_then(|rest| rest.split(':').next());
    assert!(seed.is_some_and(|seed| seed != "0"), "{text}");
    assert_says(&text, &["came out differently with a shuffled ready queue", "\n- ", "\n+ "]);
}

#[test]
fn an_unlisted_alternative_fails() {
    let scenario = Scenario::new("a race of which one outcome is named");
    let text = failure(&scenario.alternative("commit-first", |it| it.verdict().applied == 1), same_instant);
    assert_says(&text, &["no alternative names", "tenure transcript 1"]);
}

#[test]
fn an_alternative_that_never_comes_up_fails() {
    let scenario = Scenario::new("a race with three outcomes")
        .alternative("commit-first", |it| it.verdict().applied == 1)
        .alternative("seal-first", |it| it.verdict().dropped == 1)
        .alternative("both", |it| it.verdict().submitted == 2);
    assert_says(&failure(&scenario, same_instant), &["never came out as \"both\""]);
}

#[test]
fn an_alternative_that_has_two_texts_fails() {
    let scenario = Scenario::new("a race under one name").alternative("any", |_| true);
    assert_says(&failure(&scenario, same_instant), &["came out as \"any\" with another text"]);
}

#[test]
fn a_failed_assertion_of_the_story_names_its_place() {
    let text = failure(&Scenario::new("a wrong claim"), async |stage| {
        assert_eq!(stage.registry().count(), 1, "nobody started it");
        Ok(())
    });
    assert_says(&text, &["tests/testkit.rs", "nobody started it", "timeline"]);
}

#[test]
fn a_story_that_waits_for_nothing_fails() {
    let text = failure(&Scenario::new("a closed door"), async |_| {
        Door::new().wait().await;
        Ok(())
    });
    assert_says(&text, &["did not end within 86400s of its own time"]);
}

#[test]
fn a_story_cannot_go_back() {
    let text = failure(&Scenario::new("backwards"), async |stage| {
        stage.at(10).await;
        stage.at(9).await;
        Ok(())
    });
    assert_says(&text, &["is at 10 ms and cannot go back to 9 ms"]);
}

#[test]
fn an_error_of_the_story_is_told() {
    let text = failure(&Scenario::new("an invalid id"), async |stage| {
        stage.registry().start("", Script::new().function("fetch")).await?;
        Ok(())
    });
    assert_says(&text, &["answered an error: process id"]);
}

// --- what a story can do --------------------------------------------------------------------------------

#[test]
fn settling_lets_everything_happen_and_no_time_pass() {
    Scenario::new("settle").run(async |stage| {
        let context =
            Arc::new(Worker::new().works(Script::new().progress(50, "half").after(1).progress(60, "more")));
        let handle = stage.registry().start("feed/42", context.process("fetch")).await?;
        stage.settle().await;
        assert_eq!(stage.now_ms(), 0);
        assert_eq!(handle.progress().and_then(|progress| progress.percent), Some(50));
        stage.at(1).await;
        stage.settle().await;
        assert_eq!(handle.progress().and_then(|progress| progress.percent), Some(60));
        Ok(())
    });
}

#[test]
fn a_door_holds_whoever_comes_until_it_is_opened() {
    Scenario::new("a door").run(async |stage| {
        let (door, guards) = (Door::new(), stage.guards());
        let script = Script::new().guarded_by(guards).wait(&door).commit("through");
        let handle = stage.registry().start("feed/42", script.function("fetch")).await?;
        door.arrived().await;
        stage.settle().await;
        assert_eq!((door.arrivals(), guards.alive(), handle.exit().is_some()), (1, 1, false));
        door.open();
        handle.ended().await;
        assert_eq!(guards.alive(), 0);
        Ok(())
    });
}

#[test]
fn an_effect_that_is_cut_off_has_an_outcome() {
    let transcript = Scenario::new("cut off in an effect").patience(20).run(async |stage| {
        let fetch = Script::new().commit_over(5_000);
        stage.registry().start("feed/42", fetch.function("fetch")).await?;
        stage.at(10).await;
        Ok(())
    });
    let verdict = transcript.verdict();
    assert_eq!((verdict.submitted, verdict.applied, verdict.killed), (1, 1, 1));
    assert_says(transcript.timeline(), &["feed/42, cut off, epoch 1"]);
    assert!(transcript.ledger()[0].applied);
}

#[test]
fn a_panic_in_an_effect_has_an_outcome() {
    let transcript = Scenario::new("a panic in an effect").run(async |stage| {
        let fetch = ProcessSpec::function("fetch", |context| async move {
            context.commit_named("3 rows", || panic!("half way"))?;
            Ok(())
        });
        stage.registry().start("feed/42", fetch).await?;
        stage.at(10).await;
        Ok(())
    });
    assert_says(transcript.timeline(), &["feed/42, 3 rows, cut off, epoch 1", "panicked: half way"]);
}

#[test]
fn a_commit_is_never_shown_behind_the_end_of_its_authority() {
    let transcript = Scenario::new("commits, gives up its id, commits again").run(async |stage| {
        let fetch = Script::new().at(10).commit("first").remove_self().commit("second");
        stage.registry().start("feed/42", fetch.function("fetch")).await?;
        stage.at(20).await;
        Ok(())
    });
    let text = transcript.timeline();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in:\n{text}"));
    assert!(at("commit     feed/42, first") < at("unbind     feed/42"));
    assert!(at("unbind     feed/42") < at("drop-late  feed/42"));
}

#[test]
fn a_refusal_stands_between_the_owner_s_coming_and_going() {
    let transcript = Scenario::new("an id is asked for while it is taken").run(async |stage| {
        let first = stage.registry().start("x", Script::new().on_stop().function("one")).await?;
        assert!(stage.registry().start("x", Script::new().function("two")).await.is_err());
        first.close().await;
        stage.registry().start("x", Script::new().on_stop().function("three")).await?;
        Ok(())
    });
    let text = transcript.timeline();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in:\n{text}"));
    assert!(at("as one#1") < at("refuse"));
    assert!(at("refuse") < at("x from one#1"));
    assert!(at("x from one#1") < at("as three#1"));
}

// --- without a scenario ---------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_balanced_application_passes() {
    let application = Balance::of(Application::open(ApplicationSpec::default()).await.unwrap());
    let registry = application.current().registry();
    registry.start("feed/42", Script::new().commit("3 rows").on_stop().function("fetch")).await.unwrap();
    application.replace().await.unwrap();
    application.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "process \"feed/42\" of generation 1 leaked")]
async fn a_leak_is_out_of_balance() {
    let application = Balance::of(Application::open(ApplicationSpec::default()).await.unwrap());
    let worker = Arc::new(Worker::new().on_close(Script::new().hang()));
    application.current().registry().start("feed/42", worker.process("fetch")).await.unwrap();
    application.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "generation 1 has no close report; close the application")]
async fn an_application_that_is_dropped_open_is_out_of_balance() {
    drop(Balance::of(Application::open(ApplicationSpec::default()).await.unwrap()));
}

#[test]
fn guards_count_what_is_alive() {
    let guards = Guards::default();
    let (one, two) = (guards.guard(), guards.guard());
    assert_eq!(guards.alive(), 2);
    drop((one, two));
    assert_eq!(guards.alive(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_of_a_real_run_shows_no_times() {
    let application = Application::open(ApplicationSpec::default()).await.unwrap();
    let (recorder, mut events) = (application.journal().record(), application.events());
    let registry = application.current().registry();
    for number in 1..=100 {
        let job = Script::new().commit("1 row").on_stop().function("job");
        registry.start(format!("job/{number}"), job).await.unwrap();
    }
    // Submitted and applied: two events each.
    let mut seen = 0;
    while seen < 200 {
        let Some(Heard::Event(event)) = events.next().await else { panic!("only {seen} of 200 events") };
        seen += usize::from(event.kind.to_string().contains("1 row, epoch 1"));
    }
    let tree_at_open = application.tree();
    let report = application.close().await.unwrap();
    let transcript = Transcript::of(&Recording {
        scenario: "real".to_owned(),
        is_virtual: false,
        limits: Limits::default(),
        events: recorder.events(),
        tree_at_open,
        tree_at_end: Tree::default(),
        reports: vec![report],
    });
    let text = transcript.to_string();
    assert_says(
        &text,
        &["clock     real", "job/1..100 as job#1..100", "submitted 100  applied 100  dropped 0"],
    );
    assert!(
        transcript.timeline().lines().skip(1).all(|line| line.split_whitespace().nth(1) == Some("-")),
        "{text}"
    );
    assert!(!text.contains("unbalanced submitted"), "{text}");
}
