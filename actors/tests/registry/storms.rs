//! Races, repeated under seeds that a failure names: R31, R32 and R39.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tenure_actors::{CommitError, OperationRequest, ProcessKind, StartError};

use super::support::{Dice, Door, Play, balanced, end, open, soon};

const SEEDS: u64 = 24;
const PROCESSES: usize = 12;

fn kind(dice: &mut Dice) -> ProcessKind {
    [ProcessKind::Function, ProcessKind::Object, ProcessKind::Actor]
        [usize::try_from(dice.below(3)).expect("small")]
}

async fn turns(count: u64) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// What the race of starts and a close may lead to: admitted then closed, or refused.
async fn starts_race_a_close(seed: u64) {
    let mut dice = Dice(seed);
    let application = open().await;
    let generation = application.current();
    let mut starting = Vec::new();
    for number in 0..PROCESSES {
        let (kind, before, inside) = (kind(&mut dice), dice.below(12), dice.below(6));
        let removes = kind == ProcessKind::Object && dice.below(3) == 0;
        let play = Play::starting(move |context| async move {
            turns(inside).await;
            if removes {
                assert!(context.remove_self());
            }
            turns(inside).await;
            Ok(())
        });
        let (registry, played) = (generation.registry(), Arc::clone(&play));
        let task = tokio::spawn(async move {
            turns(before).await;
            registry.start(format!("x{number}"), played.spec(kind)).await
        });
        starting.push(((kind, removes), play, task));
    }
    turns(dice.below(16)).await;
    let report = if dice.below(2) == 0 {
        soon(generation.registry().close()).await
    } else {
        soon(generation.close()).await
    };
    let report = balanced(report.expect("from outside"));
    let at_close: Vec<_> = starting.iter().map(|(_, play, _)| (play.starts(), play.closes())).collect();
    for (number, ((kind, removes), play, task)) in starting.into_iter().enumerate() {
        let outcome = soon(task).await.expect("no panic");
        let counts = (play.starts(), play.closes());
        assert_eq!(counts, at_close[number], "seed {seed}: x{number} moved on after close had returned");
        match outcome {
            // One that removed itself may have ended before the close came to it.
            Ok(_) if removes => assert!(counts.0 == 1 && counts.1 <= 1, "seed {seed}: x{number}: {counts:?}"),
            // A function that was told to stop before its first poll still runs to its end.
            Ok(process) => {
                assert_eq!(counts, (1, 1), "seed {seed}: x{number}, {kind:?}, {:?}", process.exit());
                assert!(process.exit().is_some(), "seed {seed}: x{number} runs after close had returned");
            }
            Err(StartError::RegistryClosed { .. }) => assert_eq!(counts, (0, 0), "seed {seed}: x{number}"),
            Err(other) => panic!("seed {seed}: x{number}: {other}"),
        }
    }
    let started: usize = at_close.iter().map(|(starts, _)| starts).sum();
    assert_eq!(report.closed + report.ended, started as u64, "seed {seed}: {report:?}");
    end(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r31_starts_that_race_a_close_are_admitted_then_closed_or_refused() {
    for seed in 0..SEEDS {
        starts_race_a_close(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r31_starts_that_race_a_close_on_one_thread_are_admitted_then_closed_or_refused() {
    for seed in 1000..1000 + SEEDS * 4 {
        starts_race_a_close(seed).await;
    }
}

/// Every worker completes while the close walks the entries.
async fn completions_race_a_close(seed: u64) {
    let mut dice = Dice(seed);
    let application = open().await;
    let generation = application.current();
    let mut running = Vec::new();
    for number in 0..PROCESSES {
        let (kind, play) = (kind(&mut dice), Play::quiet());
        let process =
            generation.registry().start(format!("x{number}"), play.spec(kind)).await.expect("started");
        let (context, before) = (play.context().await, dice.below(12));
        let removing = tokio::spawn(async move {
            turns(before).await;
            context.remove_self()
        });
        running.push((kind, play, process, removing));
    }
    turns(dice.below(8)).await;
    let closing = tokio::spawn({
        let (generation, alone) = (generation.clone(), dice.below(2) == 0);
        async move { if alone { generation.registry().close().await } else { generation.close().await } }
    });
    let mut plays = Vec::new();
    for (kind, play, process, removing) in running {
        soon(removing).await.expect("no panic");
        plays.push((kind, play, process));
    }
    let report = balanced(soon(closing).await.expect("no panic").expect("from outside"));
    assert_eq!((report.started, report.killed.len()), (PROCESSES as u64, 0), "seed {seed}: {report:?}");
    assert_eq!(report.ended + report.closed, PROCESSES as u64, "seed {seed}: {report:?}");
    for (kind, play, process) in &plays {
        assert!(process.exit().is_some(), "seed {seed}");
        assert!(play.closes() <= 1, "seed {seed}: {kind:?} closed {} times", play.closes());
        assert!(play.context().await.commit(|| ()).is_err(), "seed {seed}");
    }
    assert_eq!(generation.registry().count(), 0, "seed {seed}: each id is given up once");
    end(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r32_completions_that_race_a_close_remove_or_are_closed_once_and_nothing_hangs() {
    for seed in 0..SEEDS {
        completions_race_a_close(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r32_completions_that_race_a_close_on_one_thread_remove_or_are_closed_once() {
    for seed in 2000..2000 + SEEDS * 4 {
        completions_race_a_close(seed).await;
    }
}

/// How a close can come.
#[derive(Debug, Clone, Copy)]
enum Close {
    Handle,
    Registry,
    Generation,
    Replace,
    Remove,
}

/// A thread commits as fast as it can; each effect looks at whether the close had returned.
async fn commits_race_a_close(kind: ProcessKind, how: Close) {
    let application = open().await;
    let play = Play::quiet();
    let generation = application.current();
    let process = generation.registry().start("x", play.spec(kind)).await.expect("started");
    let context = play.context().await;
    let (returned, applied, late) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
    let committing = std::thread::spawn({
        let (returned, applied, late) = (Arc::clone(&returned), Arc::clone(&applied), Arc::clone(&late));
        move || loop {
            let effect = || {
                late.fetch_add(u64::from(returned.load(Ordering::SeqCst)), Ordering::SeqCst);
                applied.fetch_add(1, Ordering::SeqCst);
            };
            match context.commit(effect) {
                Ok(()) => {}
                Err(CommitError::AuthorityRevoked { .. }) => return,
                Err(other) => panic!("{other}"),
            }
        }
    });
    while applied.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    match how {
        Close::Handle => drop(soon(process.close()).await),
        Close::Registry => drop(balanced(soon(generation.registry().close()).await.expect("from outside"))),
        Close::Generation => drop(balanced(soon(generation.close()).await.expect("from outside"))),
        Close::Replace => drop(balanced(soon(application.replace()).await.expect("replaced"))),
        // A removal revokes; what it began is over when its close or its generation's has returned.
        Close::Remove => {
            assert!(process.remove());
            drop(balanced(soon(generation.registry().close()).await.expect("from outside")));
        }
    }
    returned.store(true, Ordering::SeqCst);
    committing.join().expect("no panic");
    assert_eq!(late.load(Ordering::SeqCst), 0, "{kind:?}, {how:?}: an effect began after close had returned");
    let report = balanced(soon(generation.close()).await.expect("from outside"));
    assert_eq!(
        report.commits.applied,
        applied.load(Ordering::SeqCst),
        "{kind:?}, {how:?}: wholly, or not at all"
    );
    end(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reg_r39_a_commit_that_races_a_close_is_made_wholly_before_it_returns_or_not_at_all() {
    for kind in [ProcessKind::Function, ProcessKind::Object, ProcessKind::Actor] {
        for how in [Close::Handle, Close::Registry, Close::Generation, Close::Replace, Close::Remove] {
            commits_race_a_close(kind, how).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r02_a_refused_process_has_let_go_of_its_lease_before_its_caller_hears_of_it() {
    let application = open().await;
    let generation = application.current();
    generation.registry().start("x", Play::quiet().object()).await.expect("started");
    let caller = tokio::spawn(async move {
        for round in 0..2_000 {
            let request = OperationRequest::new("x", "plugin").and_then(|request| request.on_session("s"));
            let lease = generation.operations().reserve(request.expect("valid")).await;
            let lease = lease.unwrap_or_else(|error| panic!("round {round}: {error}"));
            let refused = generation.registry().start("x", Play::quiet().object().holding(lease)).await;
            assert!(matches!(refused, Err(StartError::AlreadyExists { .. })), "{refused:?}");
        }
    });
    soon(caller).await.expect("no panic");
    end(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_g01_ids_that_are_started_and_removed_by_many_have_one_owner_at_a_time() {
    for seed in 0..SEEDS {
        let application = open().await;
        let (door, owners) = (Door::closed(), Arc::new(AtomicU64::new(0)));
        let workers: Vec<_> = (0..PROCESSES as u64)
            .map(|number| {
                let (registry, door, owners) =
                    (application.current().registry(), Arc::clone(&door), Arc::clone(&owners));
                let mut dice = Dice(seed * 100 + number);
                tokio::spawn(async move {
                    door.pass().await;
                    for _ in 0..8 {
                        let Ok(process) = registry.start("x", Play::quiet().spec(kind(&mut dice))).await
                        else {
                            turns(dice.below(3)).await;
                            continue;
                        };
                        assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0, "seed {seed}: two own one id");
                        turns(dice.below(3)).await;
                        assert_eq!(owners.fetch_sub(1, Ordering::SeqCst), 1, "seed {seed}");
                        assert!(process.remove(), "seed {seed}");
                    }
                })
            })
            .collect();
        door.reached_by(PROCESSES).await;
        door.open();
        for worker in workers {
            soon(worker).await.expect("no panic");
        }
        assert_eq!(application.current().registry().count(), 0, "seed {seed}");
        end(&application).await;
    }
}
