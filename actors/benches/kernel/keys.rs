//! Releasing many exclusivity keys of one owner: the price of a key must not grow with their number.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;
use futures_util::{StreamExt, TryStreamExt, stream};
use tenure_actors::{Application, ExclusivityKey, OperationLease, OperationRequest};

use crate::flavour::Flavour;
use crate::measure::{Samples, interleave_numbers, nanoseconds_each};
use crate::options::Plan;
use crate::ours;
use crate::reserve::{requests, tidied};
use crate::table::{Goal, Row, Table, Unit, show};

pub(crate) fn measure(plan: &Plan, table: &Table) {
    let (few, many) = (plan.few, plan.many);
    for flavour in Flavour::BOTH {
        let operations = |count| flavour.run(release(Held::ByAsMany(count)));
        let operation = |count| flavour.run(release(Held::ByOne(count)));
        let [few_bare, many_bare, few_operations, many_operations, few_keys, many_keys] = interleave_numbers(
            plan.rounds,
            [
                &|| remove_from_a_map(few),
                &|| remove_from_a_map(many),
                &|| operations(few),
                &|| operations(many),
                &|| operation(few),
                &|| operation(many),
            ],
        );
        let bare = (&few_bare, &many_bare);
        let figure = format!("release {} operations of one owner, a key each: a key", show(many));
        print(table, (figure, flavour), (&few_operations, &many_operations), bare, few);
        let figure = format!("release one operation with {} keys: a key", show(many));
        print(table, (figure, flavour), (&few_keys, &many_keys), bare, few);
    }
}

fn print(
    table: &Table,
    (figure, flavour): (String, Flavour),
    (few, many): (&Samples, &Samples),
    (few_bare, many_bare): (&Samples, &Samples),
    count: usize,
) {
    let growth = many.over(few);
    table.print(
        Row::new(&*figure, flavour.name(), many, Unit::Nanoseconds)
            .beside(&format!("{} of them", show(count)), few, Unit::Nanoseconds)
            .ratio_goal(Goal::AtMost(1.5), &growth),
    );
    table.print(
        Row::new(format!("{figure}, growth"), flavour.name(), &growth, Unit::Times)
            .beside("a hash map", &many_bare.over(few_bare), Unit::Times)
            .compared(&growth.over(&many_bare.over(few_bare)), Unit::Times),
    );
}

/// Who holds so many keys.
enum Held {
    ByAsMany(usize),
    ByOne(usize),
}

/// Nanoseconds for each key, until the actor's tables are rid of them too.
async fn release(held: Held) -> f64 {
    let application = ours::open().await;
    let (count, requests) = match held {
        Held::ByAsMany(count) => (count, requests(count)),
        Held::ByOne(count) => (count, vec![request_with(count)]),
    };
    let leases = reserve_all(&application, requests).await;
    let operations = application.current().operations();
    let clock = Instant::now();
    for lease in &leases {
        assert!(black_box(lease.release()), "it was held");
    }
    tidied(&operations).await;
    let took = clock.elapsed();
    drop(leases);
    ours::shut(&application).await;
    nanoseconds_each(count, took)
}

async fn reserve_all(application: &Application, requests: Vec<OperationRequest>) -> Vec<OperationLease> {
    let operations = application.current().operations();
    let reserve = |request| operations.reserve(request);
    stream::iter(requests).map(reserve).buffered(64).try_collect().await.expect("reservations")
}

fn request_with(keys: usize) -> OperationRequest {
    let request = OperationRequest::new("operation", "owner").expect("valid ids");
    (0..keys).fold(request, |request, number| request.key(key(number)).expect("a valid key"))
}

fn key(number: usize) -> ExclusivityKey {
    ExclusivityKey::new(format!("key:{number}")).expect("a valid key")
}

/// What a table of keys costs by itself: it outgrows the caches too.
fn remove_from_a_map(count: usize) -> f64 {
    let value = Arc::new(());
    let keys: Vec<ExclusivityKey> = (0..count).map(key).collect();
    let mut map: HashMap<ExclusivityKey, Arc<()>, RandomState> = HashMap::default();
    map.extend(keys.iter().map(|key| (key.clone(), Arc::clone(&value))));
    let clock = Instant::now();
    for key in &keys {
        assert!(black_box(map.remove(key)).is_some(), "it was in the map");
    }
    nanoseconds_each(count, clock.elapsed())
}
