//! O3, O5, O6, O13 and O20 where parallelism matters: on four workers.

use std::sync::Arc;

use tenure_actors::{OperationFilter, OperationLease, Operations, ReserveError};
use tokio::sync::Barrier;

use crate::bench::{self, Gate, request};

type Answer = Result<OperationLease, ReserveError>;

/// All requests at once; the answers are held until the last one is there.
async fn together(operations: &Operations, requests: &[(String, &[&str])]) -> Vec<Answer> {
    let start = Arc::new(Barrier::new(requests.len()));
    let asking = requests.iter().map(|(operation, keys)| {
        let (operations, request, start) = (operations.clone(), request(operation, keys), Arc::clone(&start));
        tokio::spawn(async move {
            start.wait().await;
            operations.reserve(request).await
        })
    });
    let asking: Vec<_> = asking.collect();
    let mut answers = Vec::new();
    for answer in asking {
        answers.push(answer.await.unwrap());
    }
    answers
}

/// The one that won; every other was told its name.
#[track_caller]
fn only_winner(answers: &[Answer]) -> &OperationLease {
    let winners: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    let [winner] = winners[..] else { panic!("expected exactly one lease: {answers:?}") };
    for answer in answers {
        match answer {
            Ok(_) => {}
            Err(ReserveError::Busy(holder)) => assert_eq!(holder, winner.registration()),
            Err(other) => panic!("{other}"),
        }
    }
    winner
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn op_o03_of_64_reservations_of_one_key_exactly_one_is_made() {
    let application = bench::open().await;
    let operations = application.current().operations();
    let requests: Vec<_> = (0..64).map(|n| (format!("o{n}"), ["k"].as_slice())).collect();

    let answers = together(&operations, &requests).await;

    let winner = only_winner(&answers).registration().operation.clone();
    let listed = operations.list(&OperationFilter::default());
    assert_eq!(listed.iter().map(|listed| &listed.operation).collect::<Vec<_>>(), [&winner]);
    bench::close(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn op_o03_of_64_reservations_of_one_id_exactly_one_is_made() {
    let application = bench::open().await;
    let operations = application.current().operations();
    let keys: Vec<_> = (0..64).map(|n| format!("k{n}")).collect();
    let keys: Vec<_> = keys.iter().map(|key| [key.as_str()]).collect();
    let requests: Vec<_> = keys.iter().map(|keys| ("o".to_owned(), keys.as_slice())).collect();

    let answers = together(&operations, &requests).await;

    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let duplicate = |answer: &&Answer| matches!(answer, Err(ReserveError::DuplicateOperation(_)));
    assert_eq!(answers.iter().filter(duplicate).count(), 63);
    bench::close(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn op_o05_two_that_want_the_same_keys_in_opposite_order_never_both_and_never_neither() {
    let application = bench::open().await;
    let operations = application.current().operations();
    let requests: [(String, &[&str]); 2] = [("b".into(), &["k1", "k2"]), ("c".into(), &["k2", "k1"])];
    for _ in 0..10_000 {
        only_winner(&together(&operations, &requests).await);
    }
    assert_eq!(operations.count(), 0);
    bench::close(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn op_o06_of_three_in_a_ring_exactly_one_wins_and_the_losers_hold_nothing() {
    let application = bench::open().await;
    let operations = application.current().operations();
    let requests: [(String, &[&str]); 3] =
        [("b".into(), &["k1", "k2"]), ("c".into(), &["k2", "k3"]), ("d".into(), &["k3", "k1"])];
    for _ in 0..2_000 {
        let answers = together(&operations, &requests).await;
        only_winner(&answers).release();
        // The winner is gone: if a loser held anything, this would be busy.
        drop(operations.reserve(request("all", &["k1", "k2", "k3"])).await.unwrap());
    }
    bench::close(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn op_o13_released_from_two_threads_it_is_released_once() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    let operations = application.current().operations();
    for _ in 0..200 {
        let lease = Arc::new(operations.reserve(request("a", &["k"])).await.unwrap());
        let start = Arc::new(std::sync::Barrier::new(2));
        let threads = [(); 2].map(|()| {
            let (lease, start) = (Arc::clone(&lease), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                lease.release()
            })
        });
        let did = threads.map(|thread| thread.join().unwrap());
        assert_eq!(did.iter().filter(|did| **did).count(), 1);
        assert_eq!(operations.count(), 0);
    }
    assert_eq!(bench::terminal_steps(&recorder, "a").len(), 200);
    bench::close(&application).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn op_o20_a_reservation_that_races_close_is_cleared_or_refused_and_nothing_is_visible_after() {
    for _ in 0..200 {
        let application = bench::open().await;
        let operations = application.current().operations();
        let start = Gate::new();
        let racers = [(); 4].map(|()| {
            let (operations, start) = (operations.clone(), start.clone());
            tokio::spawn(async move {
                start.passed().await;
                let mut leases = Vec::new();
                for n in 0.. {
                    let operation = format!("{:?}{n}", tokio::task::id());
                    match operations.reserve(request(&operation, &[&operation])).await {
                        Ok(lease) => leases.push(lease),
                        Err(ReserveError::Closed) => break,
                        Err(other) => panic!("{other}"),
                    }
                }
                leases
            })
        });
        start.open();
        operations.close().await;
        assert_eq!(operations.count(), 0);
        assert!(operations.list(&OperationFilter::default()).is_empty());
        for racer in racers {
            let leases = racer.await.unwrap();
            assert!(leases.iter().all(|lease| !lease.is_held() && !lease.release()));
        }
        bench::close(&application).await;
    }
}
