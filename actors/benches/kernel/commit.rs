//! A commit that nobody contends for, beside a mutex that nobody contends for.

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_actors::ProcessContext;

use crate::flavour::Flavour;
use crate::measure::{Samples, interleave_numbers, rate, rate_of_two};
use crate::options::Plan;
use crate::ours;
use crate::table::{Goal, Row, Table, Unit};

pub(crate) fn measure(plan: &Plan, table: &Table) {
    let (rounds, span) = (plan.rounds, plan.span);
    for flavour in Flavour::BOTH {
        // Inside a task, as a process commits.
        let samples = flavour.run(async move {
            let application = ours::open().await;
            let registry = application.current().registry();
            let contexts =
                [ours::context_of(&registry, "one").await, ours::context_of(&registry, "two").await];
            let samples = sample(rounds, span, &contexts);
            ours::shut(&application).await;
            samples
        });
        print(table, flavour, &samples);
    }
}

/// Commits per second: mutexes by one thread, directly and through a handle, and by two; commits by one and by
/// two.
fn sample(rounds: usize, span: Duration, contexts: &[ProcessContext; 2]) -> [Samples; 5] {
    let lock = |_| lock(span);
    let commit = |which: usize| commit(span, &contexts[which]);
    interleave_numbers(
        rounds,
        [&|| lock(0), &|| lock_by_handle(span), &|| commit(0), &|| rate_of_two(lock), &|| {
            rate_of_two(commit)
        }],
    )
}

/// A mutex that is reached as a process reaches its gate: through a handle that others may have too.
struct Handle(Arc<Mutex<u64>>);

fn lock_by_handle(span: Duration) -> f64 {
    let handle = Handle(Arc::default());
    let handle = black_box(&handle);
    rate(span, |_| *handle.0.lock().expect("nobody panics") += 1)
}

fn lock(span: Duration) -> f64 {
    let mutex = Mutex::new(0_u64);
    let mutex = black_box(&mutex);
    rate(span, |_| *mutex.lock().expect("nobody panics") += 1)
}

fn commit(span: Duration, context: &ProcessContext) -> f64 {
    let mut total = 0_u64;
    // The compiler must not keep it in a register: the mutex cannot do so either.
    let total = black_box(&mut total);
    let context = black_box(context);
    rate(span, |_| context.commit(|| *total += 1).expect("the process has its authority"))
}

fn print(table: &Table, flavour: Flavour, samples: &[Samples; 5]) {
    let [lock, by_handle, commit, two_locks, two_commits] = samples;
    let nanoseconds = |rates: &Samples| rates.map(|rate| 1e9 / rate);
    let [lock_time, commit_time] = [nanoseconds(lock), nanoseconds(commit)];
    table.print(
        Row::new("commit", flavour.name(), &commit_time, Unit::Nanoseconds)
            .beside("mutex", &lock_time, Unit::Nanoseconds)
            .ratio_goal(Goal::AtMost(1.0), &commit_time.over(&lock_time)),
    );
    let by_handle_time = nanoseconds(by_handle);
    table.print(
        Row::new("commit", flavour.name(), &commit_time, Unit::Nanoseconds)
            .beside("mutex behind a handle", &by_handle_time, Unit::Nanoseconds)
            .compared(&commit_time.over(&by_handle_time), Unit::Times),
    );
    let [own, locks] = [two_commits.over(commit), two_locks.over(lock)];
    table.print(
        Row::new("commits of two processes by two threads, to one", flavour.name(), &own, Unit::Times)
            .beside("a mutex each", &locks, Unit::Times)
            .compared(&own.over(&locks), Unit::Times)
            .goal(Goal::AtLeast(1.7), &own, Unit::Times),
    );
}
