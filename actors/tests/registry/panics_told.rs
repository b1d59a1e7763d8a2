//! Panics of a process are named in the journal, with their first line, wherever they happen.

use std::fmt::Write as _;
use std::future::ready;
use std::sync::Arc;

use tenure_actors::{Heard, ProcessHandle, ProcessSpec, Registry, Verb, rules::Patience};

use super::panics::{Armed, Grenade, Rash, State, armed};
use super::support::{Ask, Door, end, open, soon};

const CASES: &[&str] = &[
    "a function, before its future is made",
    "a function, in its future",
    "a function, in the drop of its future",
    "a function, in the drop of its future when it is killed",
    "an object, in start",
    "an object, in close",
    "an object, in its drop after its close",
    "an object, in close and in its drop",
    "an object, in its drop after a start that failed",
    "an object, in start and in its drop",
    "an object, in its drop when the close after its start is cut off",
    "an object, in its drop after its removal",
    "an object, in its drop when it is killed",
    "an object, in its drop when its start is cut off",
    "an object, in its drop when its close is cut off",
    "an actor, before its state is made",
    "an actor, in its own drop after a stop",
    "an actor, in its own drop when it is killed",
    "an actor, in the drop of its state after a stop",
    "an actor, in a handler and in the drop of its state",
    "an actor, in the drop of its state when it is killed",
    "an actor, in the drop of its state when its patience is over",
];

async fn started(registry: &Registry, spec: ProcessSpec) -> ProcessHandle {
    registry.start("x", spec).await.expect("started")
}

async fn refused(registry: &Registry, spec: ProcessSpec) {
    registry.start("x", spec).await.expect_err("not started");
}

/// A process panics as the case says, and is over.
async fn function(registry: &Registry, case: &str) {
    let (grenade, door) = (Grenade, Door::closed());
    let visited = Arc::clone(&door);
    let spec = match case {
        "before its future is made" => {
            std::mem::forget(grenade);
            ProcessSpec::function("rash", |_| {
                assert!(std::hint::black_box(false), "no future\nand more of it");
                ready(Ok(()))
            })
        }
        "in its future" => {
            std::mem::forget(grenade);
            ProcessSpec::function("rash", |_| async { panic!("no luck\nand more of it") })
        }
        "in the drop of its future" => ProcessSpec::function("rash", |_| async move {
            let _held = grenade;
            Ok(())
        }),
        _ => {
            let spec = ProcessSpec::function("rash", |_| async move {
                let _held = grenade;
                visited.pass().await;
                Ok(())
            });
            let process = started(registry, spec.patience(Patience::Kill)).await;
            door.reached().await;
            soon(process.close()).await;
            return;
        }
    };
    soon(started(registry, spec).await.ended()).await;
}

async fn object(registry: &Registry, case: &str) {
    let armed = || Rash { _grenade: Some(Grenade), ..Rash::default() };
    match case {
        "in start" => refused(registry, Rash { in_start: true, ..Rash::default() }.spec()).await,
        "in start and in its drop" => refused(registry, Rash { in_start: true, ..armed() }.spec()).await,
        "in its drop after a start that failed" => {
            refused(registry, Rash { fails_to_start: true, ..armed() }.spec()).await;
        }
        "in its drop when the close after its start is cut off" => {
            let rash = Rash { fails_to_start: true, stays_in_close: true, ..armed() };
            refused(registry, rash.spec()).await;
        }
        "in its drop when its start is cut off" => {
            let spec = Rash { stays_in_start: true, ..armed() }.spec();
            let supervisor = registry.actor_ref().expect("open").get_cell().try_get_supervisor();
            let starting = tokio::spawn({
                let registry = registry.clone();
                async move { registry.start("x", spec).await }
            });
            while registry.lookup("x").is_none() {
                tokio::task::yield_now().await;
            }
            supervisor.expect("linked").kill();
            soon(starting).await.expect("no panic").expect_err("not started");
        }
        "in its drop after its removal" => {
            let process = started(registry, armed().spec()).await;
            assert!(process.remove());
            soon(process.ended()).await;
        }
        _ => {
            let spec = match case {
                "in close" => Rash { in_close: true, ..Rash::default() }.spec(),
                "in close and in its drop" => Rash { in_close: true, ..armed() }.spec(),
                "in its drop when its close is cut off" => {
                    Rash { stays_in_close: true, ..armed() }.spec().patience(Patience::Time(10))
                }
                "in its drop when it is killed" => armed().spec().patience(Patience::Kill),
                _ => armed().spec(),
            };
            soon(started(registry, spec).await.close()).await;
        }
    }
}

async fn actor(registry: &Registry, case: &str) {
    if case == "before its state is made" {
        let spec = ProcessSpec::actor("rash", Armed::default(), |_| -> State { panic!("no state") });
        return refused(registry, spec).await;
    }
    if case.starts_with("in its own drop") {
        let itself = Armed { _itself: Some(Grenade) };
        let spec = ProcessSpec::actor("rash", itself, |_| State { grenade: None, door: None });
        let process = started(registry, spec).await;
        let actor = process.actor::<Ask>().expect("an actor");
        if case.ends_with("killed") {
            actor.kill()
        } else {
            actor.stop(None)
        }
        soon(process.ended()).await;
        return;
    }
    let by_patience = case.ends_with("its patience is over");
    let process = armed(registry, by_patience.then(Door::closed)).await;
    let actor = process.actor::<Ask>().expect("an actor");
    match case {
        "in a handler and in the drop of its state" => {
            actor.cast(Ask::Panic("no handler")).expect("it runs");
        }
        "in the drop of its state after a stop" => actor.stop(None),
        "in the drop of its state when it is killed" => actor.kill(),
        _ => drop(soon(process.close()).await),
    }
    soon(process.ended()).await;
}

#[tokio::test(start_paused = true)]
async fn reg_every_panic_of_a_process_is_named_in_the_journal_by_its_first_line() {
    let mut told = String::new();
    for case in CASES {
        let application = open().await;
        let mut journal = application.events();
        let registry = application.current().registry();
        match case.split_once(", ").expect("who, where") {
            ("a function", case) => function(&registry, case).await,
            ("an object", case) => object(&registry, case).await,
            (_, case) => actor(&registry, case).await,
        }
        // What is dropped late is dropped by then.
        end(&application).await;
        writeln!(told, "{case}").expect("a line");
        while let Some(Heard::Event(event)) = journal.try_next() {
            let text = event.kind.to_string();
            if event.kind.verb() == Verb::Fail || text.contains("panicked") {
                writeln!(told, "  {} {} {text}", event.actor, event.kind.verb()).expect("a line");
            }
        }
    }
    insta::assert_snapshot!(told);
}

#[test]
fn reg_a_panic_in_the_drop_of_a_function_that_never_began_is_named_in_the_journal() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut journal = runtime.block_on(async {
        let application = open().await;
        let grenade = Grenade;
        let spec = ProcessSpec::function("rash", |_| {
            let _held = grenade;
            ready(Ok(()))
        });
        // Nothing is waited for after this, so that the actor of the function has no turn.
        started(&application.current().registry(), spec).await;
        application.events()
    });
    drop(runtime);
    let mut told = Vec::new();
    while let Some(Heard::Event(event)) = journal.try_next() {
        if event.kind.verb() == Verb::Fail {
            told.push(format!("{} {}", event.actor, event.kind));
        }
    }
    assert_eq!(told, ["rash#1 drop: panicked: dropped"]);
}
