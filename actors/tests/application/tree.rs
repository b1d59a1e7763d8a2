//! The tree: a snapshot and the events after it give the tree as it is.

use tenure_actors::{
    Application, ApplicationSpec, EventKind, GenerationSpec, Heard, ProcessSpec, Subscription, Tree, testkit,
};

use crate::bench::{self, Gate, Order, Plain, Worker, request, waiting};
use crate::opening::service;

/// Follows an application from a snapshot.
struct Follower {
    tree: Tree,
    events: Subscription,
}

impl Follower {
    fn new(application: &Application) -> Self {
        // On one thread nothing happens between the two.
        Self { tree: application.tree(), events: application.events() }
    }

    fn catch_up(&mut self) {
        while let Some(heard) = self.events.try_next() {
            match heard {
                Heard::Event(event) => self.tree.apply(&event),
                Heard::Missed(missed) => panic!("missed {missed}"),
            }
        }
    }

    #[track_caller]
    fn assert_agrees(&mut self, snapshot: Tree) {
        self.catch_up();
        let (followed, snapshot) = (without_patience(self.tree.clone()), without_patience(snapshot));
        assert_eq!(followed, snapshot, "\nfollowed\n{followed}\nsnapshot\n{snapshot}");
    }
}

/// Patience is known from snapshots only.
fn without_patience(mut tree: Tree) -> Tree {
    for generation in &mut tree.generations {
        generation.children.iter_mut().for_each(|child| child.patience = None);
    }
    tree
}

#[tokio::test(start_paused = true)]
async fn app_tree_follows_the_life_of_processes_of_every_kind() {
    let application = bench::open().await;
    let (generation, mut follower) = (application.current(), Follower::new(&application));
    let registry = generation.registry();
    let object = Plain::new();
    registry.start("f", waiting()).await.unwrap();
    follower.assert_agrees(application.tree());
    registry.start("o", object.spec()).await.unwrap();
    let actor = registry.start("a", Worker::spec()).await.unwrap();
    follower.assert_agrees(application.tree());

    actor.actor::<Order>().unwrap().cast(Order::Remove).unwrap();
    let mut events = application.events();
    bench::hear(&mut events, |kind| matches!(kind, EventKind::Unbound { .. })).await;
    follower.assert_agrees(application.tree());
    registry.start("a", Worker::spec()).await.unwrap();
    follower.assert_agrees(application.tree());
    actor.actor::<Order>().unwrap().cast(Order::Panic).unwrap();
    actor.ended().await;
    object.context().remove_self();
    object.context().handle().ended().await;
    follower.assert_agrees(application.tree());
    bench::close(&application).await;
    follower.assert_agrees(application.tree());
    assert!(follower.tree.generations.is_empty());
}

#[tokio::test(start_paused = true)]
async fn app_tree_follows_a_process_that_starts_slowly_and_one_that_does_not_start() {
    let application = bench::open().await;
    let mut follower = Follower::new(&application);
    let gate = Gate::new();
    let held = gate.clone();
    struct Held(Gate);
    impl tenure_actors::ManagedProcess for Held {
        async fn start(
            self: std::sync::Arc<Self>,
            _: tenure_actors::ProcessContext,
        ) -> tenure_actors::ProcessResult {
            self.0.passed().await;
            Err("told to fail".into())
        }
    }
    let registry = application.current().registry();
    let spec = ProcessSpec::object("held", std::sync::Arc::new(Held(held)));
    let mut starting = std::pin::pin!(registry.start("x", spec));
    while registry.lookup("x").is_none() {
        assert!(futures_util::poll!(&mut starting).is_pending());
        tokio::task::yield_now().await;
    }
    follower.assert_agrees(application.tree());
    gate.open();
    assert!(starting.await.is_err());
    follower.assert_agrees(application.tree());
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_tree_follows_operations() {
    let application = bench::open().await;
    let operations = application.current().operations();
    let _before = operations.reserve(request("before", &["k0"])).await.unwrap();
    let mut follower = Follower::new(&application);
    let a = operations.reserve(request("a", &["k1"])).await.unwrap();
    let _b = operations.reserve(request("b", &["k2"])).await.unwrap();
    drop(operations.reserve(request("c", &["k1"])).await.unwrap_err());
    follower.assert_agrees(application.tree());
    assert_eq!(follower.tree.generations[0].active_operations, 3);
    a.release();
    follower.assert_agrees(application.tree());
    operations.close().await;
    follower.assert_agrees(application.tree());
    assert_eq!(follower.tree.generations[0].active_operations, 0);
    bench::close(&application).await;
}

#[tokio::test(start_paused = true)]
async fn app_tree_follows_services_and_their_restarts() {
    let crash = Gate::new();
    let fragile = {
        let crash = crash.clone();
        move || {
            let crash = crash.clone();
            ProcessSpec::function("fragile", |context| async move {
                if crash.is_open() {
                    context.cancelled().await;
                    return Ok(());
                }
                crash.passed().await;
                Err("told to fail".into())
            })
        }
    };
    let spec = GenerationSpec::default()
        .service(service("steady"))
        .service(tenure_actors::ServiceSpec::new("fragile", fragile));
    let application = Application::open(spec).await.unwrap();
    let mut follower = Follower::new(&application);
    let mut events = application.events();
    crash.open();
    bench::hear(
        &mut events,
        |kind| matches!(kind, EventKind::Started { child } if child.to_string() == "fragile#2"),
    )
    .await;
    follower.assert_agrees(application.tree());
    application.current().services().terminate("steady").await.unwrap();
    follower.assert_agrees(application.tree());
    bench::close(&application).await;
    follower.assert_agrees(application.tree());
}

#[tokio::test(start_paused = true)]
async fn app_tree_follows_a_replacement_and_shows_what_still_drains() {
    let application = bench::open().await;
    let old = application.current();
    let gate = Gate::new();
    let held = gate.clone();
    let lingering = ProcessSpec::function("lingering", |_| async move {
        held.passed().await;
        Ok(())
    });
    old.registry().start("x", lingering).await.unwrap();
    let mut follower = Follower::new(&application);
    let mut events = application.events();
    let mut replacing = std::pin::pin!(application.replace());
    assert!(futures_util::poll!(&mut replacing).is_pending());
    bench::hear(&mut events, |kind| matches!(kind, EventKind::Opened { .. })).await;
    let process = application.current().registry().start("x", waiting()).await.unwrap();

    let both = [old.tree().generations, application.current().tree().generations].concat();
    follower.assert_agrees(Tree { generations: both });
    assert_eq!(follower.tree.generations.len(), 2);
    gate.open();
    bench::assert_balanced(&replacing.await.unwrap());
    follower.assert_agrees(application.tree());
    assert!(process.exit().is_none());
    bench::close(&application).await;
    follower.assert_agrees(application.tree());
}

#[tokio::test(start_paused = true)]
async fn app_tree_follows_a_failure_and_what_replaces_it() {
    let application = Application::open(ApplicationSpec::default()).await.unwrap();
    let mut follower = Follower::new(&application);
    application.current().registry().start("x", waiting()).await.unwrap();
    let old = application.current();
    let mut events = application.events();
    testkit::fail_operations(&old, "boom");
    old.closed().await.unwrap();
    follower.assert_agrees(application.tree());
    bench::hear(&mut events, |kind| matches!(kind, EventKind::Opened { .. })).await;
    application.current().registry().start("x", waiting()).await.unwrap();
    follower.assert_agrees(application.tree());
    bench::close(&application).await;
    follower.assert_agrees(application.tree());
}

#[tokio::test(start_paused = true)]
async fn app_tree_snapshot_and_events_are_the_same_text() {
    let application = bench::open().await;
    let mut follower = Follower::new(&application);
    application.current().registry().start("feed/42", waiting()).await.unwrap();
    follower.catch_up();
    let text = [
        "app",
        "`- g1  epoch 1, open",
        "   |- registry#1     processes 1",
        "   |- operations#1   active 0",
        "   `- waiting#1      id feed/42",
    ];
    let text = text.join("\n") + "\n";
    assert_eq!(follower.tree.to_string(), text);
    assert_eq!(without_patience(application.tree()).to_string(), text);
    bench::close(&application).await;
    assert_eq!(application.tree().to_string(), "app\n`- no open generation\n");
}

#[tokio::test(start_paused = true)]
async fn app_tree_shows_a_child_once_that_the_snapshot_and_the_events_both_tell_of() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    application.current().registry().start("x", waiting()).await.unwrap();
    bench::assert_balanced(&application.replace().await.unwrap());
    application.current().registry().start("x", waiting()).await.unwrap();
    let snapshot = application.tree();
    let mut again = snapshot.clone();
    recorder.events().iter().for_each(|event| again.apply(event));
    assert_eq!(again, snapshot, "\n{again}\n{snapshot}");
    bench::close(&application).await;
}
