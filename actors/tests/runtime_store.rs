//! The runtime store: R35 and R36 of the supervision contract, and how what it holds is made and closed.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test says so by panicking")]

#[path = "support/bench.rs"]
mod bench;

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_actors::{
    BoxError, Limits, ProcessResult, Resource, ResourceError, ResourceName, RuntimeStore, RuntimeStoreClosed,
};

use bench::{Count, Gate};

/// What a [`Shared`] does when it is closed.
#[derive(Clone, Copy)]
enum Close {
    Well,
    Fails,
    Panics,
    Hangs,
}

/// A resource that writes down that it was closed.
struct Shared {
    name: &'static str,
    close: Close,
    log: Arc<Mutex<Vec<&'static str>>>,
}

impl Resource for Shared {
    async fn close(self: Arc<Self>) -> ProcessResult {
        self.log.lock().push(self.name);
        match self.close {
            Close::Well => Ok(()),
            Close::Fails => Err("told to fail\nsecond line".into()),
            Close::Panics => panic!("told to panic"),
            Close::Hangs => std::future::pending().await,
        }
    }
}

#[derive(Debug)]
struct Other;

impl Resource for Other {}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn shared(&self, name: &'static str, close: Close) -> Arc<Shared> {
        Arc::new(Shared { name, close, log: Arc::clone(&self.0) })
    }

    fn closed(&self) -> Vec<&'static str> {
        self.0.lock().clone()
    }
}

async fn put(store: &RuntimeStore, made: &Arc<Shared>) -> Arc<Shared> {
    let made = Arc::clone(made);
    store.get_or_create(made.name, || async move { Ok(made) }).await.unwrap()
}

async fn never() -> Result<Arc<Other>, BoxError> {
    std::future::pending().await
}

// --- making ---------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reg_r35_64_racing_callers_share_what_was_made_once() {
    let application = bench::open().await;
    let (start, made) = (Gate::new(), Count::new());
    let callers = [(); 64].map(|()| {
        let (start, made) = (start.clone(), made.clone());
        let store = application.current().runtime_store();
        tokio::spawn(async move {
            start.passed().await;
            let make = || async {
                tokio::task::yield_now().await;
                made.add();
                Ok(Arc::new(Other))
            };
            store.get_or_create("other", make).await.unwrap()
        })
    });
    start.open();
    let mut got = Vec::new();
    for caller in callers {
        got.push(caller.await.unwrap());
    }
    assert_eq!(made.get(), 1);
    assert!(got.iter().all(|other| Arc::ptr_eq(other, &got[0])));
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r35_one_registry_and_one_store_for_all_who_ask() {
    let application = bench::open().await;
    let (one, two) = (application.current(), application.current());
    one.registry().start("x", bench::waiting()).await.unwrap();
    assert!(two.registry().lookup("x").is_some());

    let log = Log::default();
    let made = put(&one.runtime_store(), &log.shared("a", Close::Well)).await;
    let found = two.runtime_store().get::<Shared>("a").unwrap().unwrap();
    assert!(Arc::ptr_eq(&made, &found));
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r35_what_exists_is_not_made_again() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let log = Log::default();
    let first = put(&store, &log.shared("a", Close::Well)).await;
    let second = put(&store, &log.shared("a", Close::Well)).await;
    assert!(Arc::ptr_eq(&first, &second));
    bench::close(&application).await;
    assert_eq!(log.closed(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn reg_r35_another_type_under_the_same_name_is_refused() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    put(&store, &Log::default().shared("a", Close::Well)).await;

    let refused = store.get_or_create("a", never).await.unwrap_err();
    let ResourceError::OtherType { name, is, wanted } = refused else { panic!("{refused}") };
    assert_eq!(&*name, "a");
    assert!(is.ends_with("Shared") && wanted.ends_with("Other"), "{is} {wanted}");
    assert!(store.get::<Other>("a").unwrap().is_none());
    assert!(store.get::<Shared>("a").unwrap().is_some());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r35_a_name_that_is_none_is_refused_by_name() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let long = "x".repeat(513);
    let refused = async |name: &str| match store.get_or_create(name, never).await {
        Err(ResourceError::Invalid(invalid)) => invalid.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused("").await, "resource name \"\" is empty, expected 1 to 512 bytes");
    assert!(refused(&long).await.ends_with("has 513 bytes, expected at most 512"));
    let broken = "resource name \"a\\nb\" has a control character at byte 1, expected printable text";
    assert_eq!(refused("a\nb").await, broken);
    assert!(store.get::<Other>("").unwrap().is_none());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r35_a_name_that_was_parsed_is_taken_as_it_is() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let name = ResourceName::new("a").unwrap();
    let made = store.get_or_create(&name, || async { Ok(Arc::new(Other)) }).await.unwrap();
    for again in [store.get_or_create(name, never).await, store.get_or_create("a".to_owned(), never).await] {
        assert!(Arc::ptr_eq(&made, &again.unwrap()));
    }
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r35_after_a_failed_make_the_next_caller_tries_again() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let failed = store.get_or_create("a", || async { Err::<Arc<Other>, _>("no".into()) }).await;
    assert!(matches!(&failed, Err(ResourceError::Failed { source, .. }) if source.to_string() == "no"));
    assert!(store.get::<Other>("a").unwrap().is_none());

    assert!(store.get_or_create("a", || async { Ok(Arc::new(Other)) }).await.is_ok());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r35_a_panic_in_make_is_an_error_and_the_next_caller_tries_again() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let in_future = store.get_or_create::<Other, _, _>("a", || async { panic!("told to panic") }).await;
    let failure = in_future.unwrap_err().to_string();
    assert_eq!(failure, "resource \"a\" could not be made: panicked: told to panic");
    let in_call = store.get_or_create::<Other, _, std::future::Pending<_>>("a", || panic!("at once")).await;
    assert!(matches!(in_call, Err(ResourceError::Failed { .. })));

    assert!(store.get_or_create("a", || async { Ok(Arc::new(Other)) }).await.is_ok());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r35_a_hanging_make_ends_at_the_start_bound_and_the_next_caller_tries_again() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let begun = tokio::time::Instant::now();
    let hanging = store.get_or_create("a", never);
    let waiting = store.get_or_create("a", || async { Ok(Arc::new(Other)) });
    let (hanging, waiting) = tokio::join!(hanging, waiting);

    let limit = Limits::default().start_bound;
    assert!(matches!(hanging, Err(ResourceError::TimedOut { limit: told, .. }) if told == limit));
    assert_eq!(begun.elapsed(), limit);
    assert!(waiting.is_ok());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r35_a_caller_that_goes_away_leaves_the_making_to_the_next() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    {
        let mut leaving = std::pin::pin!(store.get_or_create("a", never));
        assert!(futures_util::poll!(&mut leaving).is_pending());
    }
    assert!(store.get_or_create("a", || async { Ok(Arc::new(Other)) }).await.is_ok());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r35_a_slow_make_delays_no_other_name() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let begun = tokio::time::Instant::now();
    let mut slow = std::pin::pin!(store.get_or_create("slow", never));
    assert!(futures_util::poll!(&mut slow).is_pending());
    assert!(store.get_or_create("quick", || async { Ok(Arc::new(Other)) }).await.is_ok());
    assert_eq!(begun.elapsed(), std::time::Duration::ZERO);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r35_make_may_ask_for_another_name() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let log = Log::default();
    let (inner, outer) = (log.shared("inner", Close::Well), log.shared("outer", Close::Well));
    let made = store.get_or_create("outer", || async {
        put(&store, &inner).await;
        Ok(outer)
    });
    assert_eq!(made.await.unwrap().name, "outer");
    assert!(store.get::<Shared>("inner").unwrap().is_some());
    bench::close(&application).await;
    assert_eq!(log.closed(), ["outer", "inner"], "who was made of another is closed before it");
}

#[tokio::test(start_paused = true)]
async fn reg_r35_make_that_asks_for_its_own_name_ends_at_the_start_bound() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let begun = tokio::time::Instant::now();
    let made = store.get_or_create("a", || async {
        Ok(store.get_or_create("a", || async { Ok(Arc::new(Other)) }).await?)
    });
    assert!(matches!(made.await, Err(ResourceError::TimedOut { .. })));
    assert_eq!(begun.elapsed(), Limits::default().start_bound);
    assert!(store.get_or_create("a", || async { Ok(Arc::new(Other)) }).await.is_ok());
    bench::close(&application).await;
}

// --- closing --------------------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn reg_r36_after_close_every_call_answers_closed_and_make_is_not_called() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    put(&store, &Log::default().shared("a", Close::Well)).await;
    bench::close(&application).await;

    let made = Count::new();
    for name in ["a", "b"] {
        let make = || async {
            made.add();
            Ok(Arc::new(Other))
        };
        let refused = store.get_or_create(name, make).await;
        assert!(matches!(refused, Err(ResourceError::Closed(RuntimeStoreClosed))), "{refused:?}");
        assert!(matches!(store.get::<Shared>(name), Err(RuntimeStoreClosed)));
    }
    assert_eq!(made.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn reg_r36_the_store_of_the_next_generation_is_empty() {
    let application = bench::open().await;
    put(&application.current().runtime_store(), &Log::default().shared("a", Close::Well)).await;
    bench::assert_balanced(&application.replace().await.unwrap());
    assert!(application.current().runtime_store().get::<Shared>("a").unwrap().is_none());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r36_resources_are_closed_in_reverse_order_of_creation() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let log = Log::default();
    for name in ["a", "b", "c"] {
        put(&store, &log.shared(name, Close::Well)).await;
    }
    let report = bench::close(&application).await;
    assert_eq!(log.closed(), ["c", "b", "a"]);
    assert!(report.resources_failed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn reg_r36_resources_outlive_the_processes_and_close_once() {
    let application = bench::open().await;
    let log = Log::default();
    let shared = put(&application.current().runtime_store(), &log.shared("a", Close::Well)).await;
    let still_there = Gate::new();
    let seen = still_there.clone();
    let user = tenure_actors::ProcessSpec::function("user", |context| async move {
        context.cancelled().await;
        if shared.log.lock().is_empty() {
            seen.open();
        }
        Ok(())
    });
    application.current().registry().start("user", user).await.unwrap();
    bench::close(&application).await;
    bench::close(&application).await;
    assert!(still_there.is_open());
    assert_eq!(log.closed(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn reg_r36_one_close_that_goes_wrong_stops_no_other_and_is_reported() {
    for (close, told) in [
        (Close::Fails, "close failed: told to fail"),
        (Close::Panics, "close panicked: told to panic"),
        (Close::Hangs, "close did not answer within 5s"),
    ] {
        let application = bench::open().await;
        let store = application.current().runtime_store();
        let log = Log::default();
        put(&store, &log.shared("a", Close::Well)).await;
        put(&store, &log.shared("b", close)).await;
        put(&store, &log.shared("c", Close::Well)).await;
        let report = bench::close(&application).await;
        assert_eq!(log.closed(), ["c", "b", "a"], "{told}");
        assert_eq!(report.resources_failed, [("b".to_owned(), told.to_owned())]);
    }
}

#[tokio::test(start_paused = true)]
async fn reg_r36_many_hanging_closes_do_not_outlast_the_deadline_by_more_than_their_clean_up() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let log = Log::default();
    let names = ["0", "1", "2", "3", "4", "5", "6", "7"];
    for name in names {
        put(&store, &log.shared(name, Close::Hangs)).await;
    }
    let report = bench::close(&application).await;
    assert_eq!(report.resources_failed.len(), names.len());
    // Six spend their patience of 5 s within the deadline of 30 s, two their clean-up bound of 1 s beyond.
    assert_eq!(report.took.as_secs(), 32);
}

#[tokio::test(start_paused = true)]
async fn reg_r36_what_is_made_while_the_store_closes_is_closed_and_refused() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let (log, gate) = (Log::default(), Gate::new());
    let (late, held) = (log.shared("late", Close::Well), gate.clone());
    let mut making = std::pin::pin!(store.get_or_create("late", || async move {
        held.passed().await;
        Ok(late)
    }));
    assert!(futures_util::poll!(&mut making).is_pending());
    bench::close(&application).await;

    gate.open();
    let refused = making.await;
    assert!(matches!(refused, Err(ResourceError::Closed(_))));
    assert_eq!(log.closed(), ["late"]);
}

#[tokio::test(start_paused = true)]
async fn reg_r36_who_waited_for_a_make_that_failed_does_not_make_it_after_the_close() {
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let (gate, made) = (Gate::new(), Count::new());
    let (held, late) = (gate.clone(), made.clone());
    let mut failing = std::pin::pin!(store.get_or_create("a", || async move {
        held.passed().await;
        Err::<Arc<Other>, _>("no".into())
    }));
    let mut waiting = std::pin::pin!(store.get_or_create("a", || async move {
        late.add();
        Ok(Arc::new(Other))
    }));
    assert!(futures_util::poll!(&mut failing).is_pending());
    assert!(futures_util::poll!(&mut waiting).is_pending());
    bench::close(&application).await;

    gate.open();
    assert!(matches!(failing.await, Err(ResourceError::Failed { .. })));
    let refused = waiting.await;
    assert!(matches!(refused, Err(ResourceError::Closed(_))), "{refused:?}");
    assert_eq!(made.get(), 0, "no code of a plugin begins after the close");
}

#[tokio::test(start_paused = true)]
async fn reg_r36_from_the_seal_on_nothing_new_is_made() {
    let application = bench::open().await;
    let generation = application.current();
    generation.registry().start("deaf", bench::deaf()).await.unwrap();
    let mut closing = std::pin::pin!(generation.close());
    assert!(futures_util::poll!(&mut closing).is_pending());
    let refused = generation.runtime_store().get_or_create("a", never).await;
    assert!(matches!(refused, Err(ResourceError::Closed(_))));
    assert!(generation.report().is_none(), "the close is still under way");
    bench::assert_balanced(&closing.await.unwrap());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_r36_a_resource_that_panics_in_its_drop_harms_nobody() {
    struct Rude;
    impl Resource for Rude {}
    impl Drop for Rude {
        fn drop(&mut self) {
            panic!("told to panic in drop");
        }
    }
    let application = bench::open().await;
    let store = application.current().runtime_store();
    let log = Log::default();
    put(&store, &log.shared("a", Close::Well)).await;
    drop(store.get_or_create("rude", || async { Ok(Arc::new(Rude)) }).await.unwrap());
    let report = bench::close(&application).await;
    let told = "close panicked: told to panic in drop".to_owned();
    assert_eq!(report.resources_failed, [("rude".to_owned(), told)]);
    assert_eq!(log.closed(), ["a"]);
}
