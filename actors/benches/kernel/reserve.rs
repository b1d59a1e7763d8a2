//! Reserving operations and releasing them, pair after pair.

use std::future::Future;
use std::hint::black_box;
use std::time::Instant;

use futures_util::{StreamExt, stream};
use ractor::{Actor, ActorRef};
use tenure_actors::{OperationId, OperationRequest, Operations, OperationsMessage, OwnerId};

use crate::baseline::{Echo, EchoMessage, ask};
use crate::flavour::Flavour;
use crate::measure::{interleave_numbers, per_second};
use crate::options::Plan;
use crate::ours;
use crate::table::{Goal, Row, Table, Unit};

pub(crate) fn measure(plan: &Plan, table: &Table) {
    let pairs = plan.pairs;
    for flavour in Flavour::BOTH {
        for (mode, in_flight) in [("one at a time", 1), ("64 in flight", 64)] {
            let [bare, own] = interleave_numbers(
                plan.rounds,
                [&|| flavour.run(calls_and_casts(pairs, in_flight)), &|| {
                    flavour.run(reserves_and_releases(pairs, in_flight))
                }],
            );
            table.print(
                Row::new(format!("reserve and release, {mode}"), flavour.name(), &own, Unit::PerSecond)
                    .beside("a call and a cast", &bare, Unit::PerSecond)
                    .compared(&own.over(&bare), Unit::Times)
                    .goal(Goal::AtLeast(5e5), &own, Unit::PerSecond),
            );
        }
    }
}

async fn calls_and_casts(pairs: usize, in_flight: usize) -> f64 {
    let (echo, task) = Actor::spawn(None, Echo, ()).await.expect("an actor");
    let clock = Instant::now();
    for_each((0..pairs).collect(), in_flight, |value| call_and_cast(&echo, value)).await;
    // What was cast is done when this is answered.
    black_box(ask(&echo, pairs).await);
    let took = clock.elapsed();
    echo.stop(None);
    task.await.expect("the actor ends");
    per_second(pairs, took)
}

async fn call_and_cast(echo: &ActorRef<EchoMessage>, value: usize) {
    let answer = black_box(ask(echo, value).await);
    echo.cast(EchoMessage::Tell(answer)).expect("the actor runs");
}

async fn reserves_and_releases(pairs: usize, in_flight: usize) -> f64 {
    let application = ours::open().await;
    let operations = application.current().operations();
    let requests = requests(pairs);
    let clock = Instant::now();
    for_each(requests, in_flight, |request| reserve_and_release(&operations, request)).await;
    tidied(&operations).await;
    let took = clock.elapsed();
    ours::shut(&application).await;
    per_second(pairs, took)
}

async fn reserve_and_release(operations: &Operations, request: OperationRequest) {
    let lease = operations.reserve(request).await.expect("a reservation");
    assert!(lease.release(), "it was held");
}

/// Operations of one owner on a session each.
pub(crate) fn requests(count: usize) -> Vec<OperationRequest> {
    let owner = OwnerId::new("owner").expect("a valid id");
    let request = |number| {
        let request = OperationRequest::new(format!("operation:{number}"), &owner).expect("valid ids");
        request.on_session(format!("session:{number}")).expect("a valid id")
    };
    (0..count).map(request).collect()
}

/// Completes when the actor has taken everything out of its tables that was released before.
pub(crate) async fn tidied(operations: &Operations) {
    let operation = OperationId::new("none").expect("a valid id");
    let actor = operations.actor_ref().expect("open operations");
    let asked = actor.call(|reply| OperationsMessage::Get { operation, reply }, None).await;
    let found = asked.expect("the actor runs").expect("the actor answers");
    assert!(found.is_none(), "there is no such operation");
}

/// Does something with every item, so many at a time.
async fn for_each<T, F>(items: Vec<T>, in_flight: usize, mut work: impl FnMut(T) -> F)
where
    F: Future<Output = ()>,
{
    if in_flight == 1 {
        for item in items {
            work(item).await;
        }
        return;
    }
    stream::iter(items).for_each_concurrent(in_flight, work).await;
}
