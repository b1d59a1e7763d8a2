//! Many callers at once: R4 and R5, on several threads.

use std::sync::Arc;

use tenure_actors::{Application, ProcessHandle, ProcessKind, StartError};

use super::support::{Door, Play, end, open, soon};

const CALLERS: usize = 64;

/// Starts each play from a task of its own, all released together.
async fn together(
    application: &Application,
    kind: ProcessKind,
    plays: &[Arc<Play>],
    id: impl Fn(usize) -> String,
) -> Vec<tokio::task::JoinHandle<Result<ProcessHandle, StartError>>> {
    let door = Door::closed();
    let callers = plays
        .iter()
        .enumerate()
        .map(|(number, play)| {
            let (registry, play, door) =
                (application.current().registry(), Arc::clone(play), Arc::clone(&door));
            let id = id(number);
            tokio::spawn(async move {
                door.pass().await;
                registry.start(id.as_str(), play.spec(kind)).await
            })
        })
        .collect();
    door.reached_by(plays.len()).await;
    door.open();
    callers
}

async fn one_of_many_is_started(kind: ProcessKind) {
    let application = open().await;
    let plays: Vec<_> = (0..CALLERS).map(|_| Play::quiet()).collect();
    let (mut started, mut refused) = (0, 0);
    for caller in together(&application, kind, &plays, |_| "x".to_owned()).await {
        match soon(caller).await.expect("no panic") {
            Ok(_) => started += 1,
            Err(StartError::AlreadyExists { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((started, refused), (1, CALLERS - 1));
    assert_eq!(application.current().registry().count(), 1);
    let report = end(&application).await;
    assert_eq!((report.started, report.closed), (1, 1));
    assert!(plays.iter().map(|play| play.starts()).sum::<usize>() <= 1);
    assert!(plays.iter().all(|play| play.closes() <= play.starts()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r04_of_64_callers_with_one_id_exactly_one_starts_its_process_function() {
    one_of_many_is_started(ProcessKind::Function).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r04_of_64_callers_with_one_id_exactly_one_starts_its_process_object() {
    one_of_many_is_started(ProcessKind::Object).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r04_of_64_callers_with_one_id_exactly_one_starts_its_process_actor() {
    one_of_many_is_started(ProcessKind::Actor).await;
}

async fn all_start_at_once(kind: ProcessKind) {
    let application = open().await;
    let door = Door::closed();
    let plays: Vec<_> = (0..CALLERS)
        .map(|_| {
            let visited = Arc::clone(&door);
            Play::starting(move |_| {
                let visited = Arc::clone(&visited);
                async move {
                    visited.pass().await;
                    Ok(())
                }
            })
        })
        .collect();
    let callers = together(&application, kind, &plays, |number| format!("x{number}")).await;
    // All of them are inside their start before one of them may go on.
    door.reached_by(CALLERS).await;
    assert!(callers.iter().all(|caller| !caller.is_finished()));
    assert_eq!(application.current().registry().count(), CALLERS);
    door.open();
    for caller in callers {
        soon(caller).await.expect("no panic").expect("started");
    }
    assert!(plays.iter().all(|play| play.starts() == 1 && play.closes() == 0));
    let report = end(&application).await;
    assert_eq!((report.started, report.closed), (CALLERS as u64, CALLERS as u64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r05_64_starts_under_different_ids_are_in_progress_together_object() {
    all_start_at_once(ProcessKind::Object).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r05_64_starts_under_different_ids_are_in_progress_together_actor() {
    all_start_at_once(ProcessKind::Actor).await;
}

async fn one_slow_start_delays_nobody(kind: ProcessKind) {
    let application = open().await;
    let (slow, door) = Play::at_the_gate();
    let starting = tokio::spawn({
        let (registry, slow) = (application.current().registry(), Arc::clone(&slow));
        async move { registry.start("slow", slow.spec(kind)).await }
    });
    door.reached().await;
    let plays: Vec<_> = (0..CALLERS).map(|_| Play::quiet()).collect();
    for caller in together(&application, kind, &plays, |number| format!("x{number}")).await {
        soon(caller).await.expect("no panic").expect("started");
    }
    assert!(!starting.is_finished());
    door.open();
    soon(starting).await.expect("no panic").expect("started");
    end(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r05_one_slow_start_does_not_delay_64_others_object() {
    one_slow_start_delays_nobody(ProcessKind::Object).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r05_one_slow_start_does_not_delay_64_others_actor() {
    one_slow_start_delays_nobody(ProcessKind::Actor).await;
}
