//! Supervised scenarios by their transcripts (contract: transcript). Each is a snapshot.

use std::sync::Arc;
use std::time::Duration;

use tenure_actors::rules::{Backoff, BackoffSettings, Intensity, Strategy};
use tenure_actors::testkit::{
    Door, Scenario, Script, Worker, fail_operations, fail_registry, fail_supervisor, incarnations,
};
use tenure_actors::{
    ApplicationSpec, CloseReason, GenerationSpec, OperationRequest, ServiceSpec, StartError,
};

const WORKED_EXAMPLE: &str = include_str!("worked_example.txt");

/// The limits of the worked example.
fn scenario(name: &str) -> Scenario {
    Scenario::new(name).patience(500).close_deadline(Duration::from_secs(2))
}

/// 100 ms, then 200, and no jitter: for scenarios in which something is started again.
#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn backoff() -> Backoff {
    Backoff::new(BackoffSettings { jitter: 0.0, ..BackoffSettings::default() }).unwrap()
}

fn application() -> ApplicationSpec {
    ApplicationSpec { backoff: backoff(), ..ApplicationSpec::default() }
}

/// Commits at this instant, and ends 21 ms after it was told to.
fn fetch(commit_at_ms: u64) -> Script {
    Script::new().at(commit_at_ms).commit("3 rows").after_stop(21)
}

/// Ends 5 ms after it was told to.
fn index() -> Script {
    Script::new().after_stop(5)
}

// --- the worked example and its sisters -----------------------------------------------------------------

#[test]
fn worked_example() {
    let transcript = scenario("close while two processes run, one commits late").run(async |stage| {
        stage.registry().start("feed/42", fetch(60).function("fetch")).await?;
        stage.registry().start("docs", index().function("index")).await?;
        stage.at(40).await;
        stage.close_as(CloseReason::Superseded).await?;
        Ok(())
    });
    assert_eq!(transcript.to_string(), WORKED_EXAMPLE.trim_end());
    insta::assert_snapshot!(transcript);
}

#[test]
fn commit_first() {
    insta::assert_snapshot!(scenario("close while two processes run, one has committed").run(
        async |stage| {
            stage.registry().start("feed/42", fetch(39).function("fetch")).await?;
            stage.registry().start("docs", index().function("index")).await?;
            stage.at(40).await;
            stage.close_as(CloseReason::Superseded).await?;
            Ok(())
        }
    ));
}

#[test]
fn same_instant() {
    let outcomes = scenario("one commits in the instant of the close")
        .alternative("commit-first", |transcript| transcript.verdict().applied == 1)
        .alternative("seal-first", |transcript| transcript.verdict().dropped == 1)
        .run_all(async |stage| {
            stage.registry().start("feed/42", fetch(40).function("fetch")).await?;
            stage.registry().start("docs", index().function("index")).await?;
            stage.at(40).await;
            stage.close_as(CloseReason::Superseded).await?;
            Ok(())
        });
    for (name, transcript) in outcomes.iter() {
        insta::assert_snapshot!(format!("same_instant__{name}"), transcript);
    }
}

#[test]
fn deaf_child() {
    insta::assert_snapshot!(scenario("close while one does not hear").run(async |stage| {
        let deaf = Script::new().commit_afterwards(600, "3 rows").hang();
        stage.registry().start("feed/42", deaf.function("fetch")).await?;
        stage.registry().start("docs", index().function("index")).await?;
        stage.at(40).await;
        stage.close_as(CloseReason::Superseded).await?;
        stage.at(600).await;
        Ok(())
    }));
}

#[test]
fn successor_open() {
    insta::assert_snapshot!(scenario("the successor opens while one drains").run(async |stage| {
        let old = stage.registry().start("feed/42", fetch(60).function("fetch")).await?;
        stage.registry().start("docs", index().function("index")).await?;
        stage.at(40).await;
        stage.begin_close(CloseReason::Superseded);
        stage.at(50).await;
        let successor = async {
            stage.settle().await;
            stage.registry().start("feed/42", index().function("fetch")).await
        };
        let (replaced, new) = tokio::join!(stage.application().replace(), successor);
        assert_eq!((replaced?.commits.dropped, new?.epoch().get()), (1, 2));
        stage.at(70).await;
        assert!(!stage.registry().remove("feed/42", &old.identity()));
        Ok(())
    }));
}

#[test]
fn supervisor_failure() {
    let application = scenario("the supervisor fails").application(application);
    insta::assert_snapshot!(application.run(async |stage| {
        stage.registry().start("feed/42", fetch(60).function("fetch")).await?;
        stage.registry().start("docs", index().function("index")).await?;
        stage.at(40).await;
        let generation = stage.generation();
        assert!(fail_supervisor(&generation, "out of order 1234567"));
        generation.closed().await?;
        Ok(())
    }));
}

// --- failures of the kernel -----------------------------------------------------------------------------

#[test]
fn reg_r42_registry_failure() {
    let application =
        scenario("the registry fails, its ids are free in the next epoch").application(application);
    insta::assert_snapshot!(application.run(async |stage| {
        stage.registry().start("feed/42", fetch(60).function("fetch")).await?;
        stage.at(40).await;
        let failed = stage.generation();
        assert!(fail_registry(&failed, "index lost"));
        failed.closed().await?;
        let refused = failed.registry().start("feed/42", index().function("fetch")).await;
        assert!(matches!(refused, Err(StartError::RegistryClosed { .. })));
        stage.at(200).await;
        stage.registry().start("feed/42", index().function("fetch")).await?;
        Ok(())
    }));
}

#[test]
fn operations_failure() {
    let application = scenario("the operations fail while one is active").application(application);
    insta::assert_snapshot!(application.run(async |stage| {
        let request = OperationRequest::new("compact:s1", "compaction")?.on_session("s1")?;
        let lease = stage.operations().reserve(request).await?;
        let compact = index().function("compaction").holding(lease);
        stage.registry().start("compact:s1", compact).await?;
        stage.at(40).await;
        let failed = stage.generation();
        assert!(fail_operations(&failed, "table lost"));
        failed.closed().await?;
        assert_eq!(failed.operations().count(), 0);
        Ok(())
    }));
}

// --- services -------------------------------------------------------------------------------------------

#[test]
fn service_restart_one_for_all() {
    let generation = || {
        let feed = incarnations("feed", [Script::new().at(10).panic("no route"), Script::new().on_stop()]);
        GenerationSpec::default()
            .strategy(Strategy::OneForAll)
            .service(ServiceSpec::new("store", incarnations("store", [index()])).backoff(backoff()))
            .service(ServiceSpec::new("feed", feed).backoff(backoff()))
            .service(ServiceSpec::new("clock", incarnations("clock", [Script::new().on_stop()])))
    };
    insta::assert_snapshot!(scenario("one service fails, all are restarted").generation(generation).run(
        async |stage| {
            stage.at(200).await;
            Ok(())
        }
    ));
}

#[test]
fn escalation_to_the_next_epoch() {
    let application_of_one_service = || {
        let restless = Script::new().after(10).fail("disk full");
        let feed = incarnations("feed", [restless.clone(), restless, Script::new().on_stop()]);
        let intensity = Intensity::limited(1, 5_000).unwrap();
        let service = ServiceSpec::new("feed", feed).backoff(backoff()).intensity(intensity);
        let generation = GenerationSpec::default().service(service);
        ApplicationSpec { generation, ..application() }
    };
    let scenario =
        scenario("a service fails too often, the next epoch opens").application(application_of_one_service);
    insta::assert_snapshot!(scenario.run(async |stage| {
        stage.registry().start("docs", index().function("index")).await?;
        stage.at(400).await;
        assert_eq!(stage.generation().epoch().get(), 2);
        Ok(())
    }));
}

// --- starts ---------------------------------------------------------------------------------------------

#[test]
fn reg_r09_start_failure_with_clean_up() {
    insta::assert_snapshot!(scenario("a start fails, and so does its clean-up").run(async |stage| {
        let close = Script::new().after(2).fail("socket 123456 is stuck");
        let worker =
            Arc::new(Worker::new().on_start(Script::new().after(3).fail("no route")).on_close(close));
        let refused = stage.registry().start("feed/42", worker.process("fetch")).await;
        assert!(matches!(refused, Err(StartError::StartFailed { cleanup: Some(_), .. })));
        assert_eq!((worker.starts(), worker.closes()), (1, 1));
        stage.registry().start("feed/42", index().function("fetch")).await?;
        stage.at(40).await;
        Ok(())
    }));
}

#[test]
fn reg_r25_close_while_starting() {
    insta::assert_snapshot!(scenario("the close waits for a start").run(async |stage| {
        let door = Door::new();
        let worker = Arc::new(Worker::new().on_start(Script::new().wait(&door)));
        let start = stage.registry();
        let start = start.start("feed/42", worker.process("fetch"));
        let close = async {
            door.arrived().await;
            stage.at(40).await;
            stage.begin_close(CloseReason::Requested);
            stage.at(50).await;
            assert_eq!(worker.closes(), 0);
            door.open();
            stage.generation().closed().await
        };
        let (started, report) = tokio::join!(start, close);
        assert_eq!((started?.id().as_str(), report?.closed), ("feed/42", 1));
        assert_eq!((worker.starts(), worker.closes()), (1, 1));
        Ok(())
    }));
}

// --- many -----------------------------------------------------------------------------------------------

#[test]
fn ten_thousand_processes() {
    insta::assert_snapshot!(scenario("ten thousand processes").seeds(1).run(async |stage| {
        for number in 1..=10_000 {
            let job = Script::new().at(20).commit("1 row").after_stop(5);
            stage.registry().start(format!("job/{number}"), job.function("job")).await?;
        }
        stage.at(40).await;
        stage.close_as(CloseReason::Superseded).await?;
        Ok(())
    }));
}
