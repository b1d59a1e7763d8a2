//! Random sequences of reserve, release and close against a model that fits on a page.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tenure_actors::{OperationFilter, OperationLease, ReserveError};

use crate::bench::{self, request};
use crate::via::Via;

#[derive(Debug, Clone)]
enum Step {
    Reserve {
        operation: usize,
        keys: Vec<usize>,
    },
    /// The n-th lease of all that were ever made, stale ones included.
    Release(usize),
    Drop(usize),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let keys = prop::collection::vec(0..4_usize, 0..4);
    prop_oneof![
        8 => (0..4_usize, keys).prop_map(|(operation, keys)| Step::Reserve { operation, keys }),
        4 => (0..8_usize).prop_map(Step::Release),
        2 => (0..8_usize).prop_map(Step::Drop),
        1 => Just(Step::Close),
    ]
}

/// What a reservation answers.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Lease,
    Busy(String),
    Duplicate(String),
    Invalid,
    Closed,
}

/// Active operations by id: number of their lease, and keys.
#[derive(Default)]
struct Model {
    active: BTreeMap<String, (usize, Vec<String>)>,
    /// Ids in the order of reservation.
    order: Vec<String>,
    closed: bool,
}

impl Model {
    fn reserve(&mut self, operation: &str, keys: &[String], lease: usize) -> Answer {
        if keys.is_empty() {
            return Answer::Invalid;
        }
        if self.closed {
            return Answer::Closed;
        }
        if self.active.contains_key(operation) {
            return Answer::Duplicate(operation.to_owned());
        }
        let holder = |key: &String| self.active.iter().find(|(_, (_, held))| held.contains(key));
        if let Some((blocker, _)) = keys.iter().find_map(holder) {
            return Answer::Busy(blocker.clone());
        }
        self.active.insert(operation.to_owned(), (lease, keys.to_vec()));
        self.order.push(operation.to_owned());
        Answer::Lease
    }

    fn release(&mut self, lease: usize) -> bool {
        let Some(id) = self.active.iter().find(|(_, (own, _))| *own == lease).map(|(id, _)| id.clone())
        else {
            return false;
        };
        self.active.remove(&id);
        self.order.retain(|active| *active != id);
        true
    }

    fn close(&mut self) {
        self.closed = true;
        self.active.clear();
        self.order.clear();
    }
}

fn answer(result: Result<OperationLease, ReserveError>, leases: &mut Vec<Option<OperationLease>>) -> Answer {
    match result {
        Ok(lease) => {
            leases.push(Some(lease));
            Answer::Lease
        }
        Err(ReserveError::Busy(holder)) => Answer::Busy(holder.operation.to_string()),
        Err(ReserveError::DuplicateOperation(existing)) => Answer::Duplicate(existing.operation.to_string()),
        Err(ReserveError::Invalid { .. }) => Answer::Invalid,
        Err(ReserveError::Closed) => Answer::Closed,
        Err(other @ ReserveError::TooManyOperations { .. }) => panic!("{other}"),
    }
}

async fn run(steps: Vec<Step>, by_messages: bool) {
    let application = bench::open().await;
    let via = Via::to(&application, by_messages);
    let (mut model, mut leases) = (Model::default(), Vec::new());
    for step in steps {
        match step {
            Step::Reserve { operation, keys } => {
                let operation = format!("o{operation}");
                let keys: Vec<_> = keys.iter().map(|key| format!("k{key}")).collect();
                let names: Vec<_> = keys.iter().map(String::as_str).collect();
                let wanted = model.reserve(&operation, &keys, leases.len());
                let got = via.reserve(request(&operation, &names)).await;
                assert_eq!(answer(got, &mut leases), wanted);
            }
            Step::Release(lease) => {
                if let Some(Some(held)) = leases.get(lease) {
                    assert_eq!(held.release(), model.release(lease));
                }
            }
            Step::Drop(lease) => {
                model.release(lease);
                drop(leases.get_mut(lease).and_then(Option::take));
            }
            Step::Close => {
                model.close();
                via.close().await;
            }
        }
        assert_eq!(via.list(&OperationFilter::default()).await, model.order);
        assert_eq!(application.current().operations().count(), model.order.len());
        for operation in (0..4).map(|operation| format!("o{operation}")) {
            assert_eq!(via.get(&operation).await.is_some(), model.active.contains_key(&operation));
        }
    }
    bench::close(&application).await;
}

#[test]
fn op_model_random_sequences_agree_with_the_model_step_by_step() {
    let config = Config {
        cases: 256,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x7e6e_0001),
        ..Config::default()
    };
    let sequences = (prop::collection::vec(step(), 0..60), any::<bool>());
    TestRunner::new(config)
        .run(&sequences, |(steps, by_messages)| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.unwrap().block_on(run(steps, by_messages));
            Ok(())
        })
        .unwrap();
}
