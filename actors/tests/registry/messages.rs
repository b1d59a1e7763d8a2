//! The same promises through messages alone: a plugin actor that only knows `ActorRef<RegistryMessage>`.

use std::sync::Arc;

use ractor::ActorRef;
use tenure_actors::{
    CloseReport, ExitReason, ProcessHandle, ProcessId, ProcessIdentity, ProcessInfo, ProcessKind,
    ProcessSpec, ProcessState, Registry, RegistryMessage, StartError,
};

use super::support::{Ask, Broken, Play, balanced, close, end, open, soon};

/// What a plugin would write, with nothing but messages.
struct Messages(ActorRef<RegistryMessage>);

impl Messages {
    fn of(registry: &Registry) -> Self {
        Self(registry.actor_ref().expect("the generation is open"))
    }

    async fn start(&self, id: &str, process: ProcessSpec) -> Result<ProcessHandle, StartError> {
        let id = ProcessId::new(id).expect("valid");
        let start = |reply| RegistryMessage::Start { id, process, reply };
        soon(async { ractor::call!(self.0, start) }).await.expect("answered")
    }

    async fn get(&self, id: &str) -> Option<ProcessHandle> {
        let id = ProcessId::new(id).expect("valid");
        let get = |reply| RegistryMessage::Get { id, reply };
        soon(async { ractor::call!(self.0, get) }).await.expect("answered")
    }

    async fn remove(&self, id: &str, identity: ProcessIdentity) -> bool {
        let id = ProcessId::new(id).expect("valid");
        let remove = |reply| RegistryMessage::Remove { id, identity, reply };
        soon(async { ractor::call!(self.0, remove) }).await.expect("answered")
    }

    async fn list(&self) -> Vec<ProcessInfo> {
        let list = |reply| RegistryMessage::List { reply };
        soon(async { ractor::call!(self.0, list) }).await.expect("answered")
    }

    async fn count(&self) -> usize {
        let count = |reply| RegistryMessage::Count { reply };
        soon(async { ractor::call!(self.0, count) }).await.expect("answered")
    }

    async fn watch(&self, id: &str) -> Option<ExitReason> {
        let id = ProcessId::new(id).expect("valid");
        let watch = |reply| RegistryMessage::Watch { id, reply };
        soon(async { ractor::call!(self.0, watch) }).await.expect("answered")
    }

    async fn close(&self) -> Arc<CloseReport> {
        let close = |reply| RegistryMessage::Close { reply };
        balanced(soon(async { ractor::call!(self.0, close) }).await.expect("answered"))
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_messages_start_find_list_count_and_remove_as_the_handle_does(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let messages = Messages::of(&registry);
        let play = Play::quiet();
        let process = messages.start("x", play.spec(kind)).await.expect("started");
        play.context().await;
        assert_eq!(process.state(), Some(ProcessState::Running));
        let found = messages.get("x").await.expect("registered");
        assert_eq!(found.name(), registry.lookup("x").expect("registered").name());
        let object = found.object::<Play>();
        assert_eq!(object.is_some_and(|object| Arc::ptr_eq(&object, &play)), kind == ProcessKind::Object);
        assert_eq!(found.actor::<Ask>().is_some(), kind == ProcessKind::Actor);
        assert_eq!((messages.list().await, messages.count().await), (registry.list(), registry.count()));
        let second = Play::quiet();
        let refused = messages.start("x", second.spec(kind)).await;
        assert!(matches!(refused, Err(StartError::AlreadyExists { .. })), "{refused:?}");
        assert_eq!((second.starts(), second.closes()), (0, 0));
        let other = registry.start("y", second.spec(kind)).await.expect("started");
        assert!(!messages.remove("x", other.identity()).await);
        assert!(messages.remove("x", process.identity()).await);
        assert!(!messages.remove("x", process.identity()).await);
        assert!(messages.get("x").await.is_none() && registry.lookup("x").is_none());
        assert_eq!((messages.count().await, play.closes()), (1, 0));
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_messages_answer_a_failed_start_as_the_handle_does() {
    let application = open().await;
    let messages = Messages::of(&application.current().registry());
    let play = Play::broken(8);
    let failed = messages.start("x", play.object()).await;
    let Err(StartError::StartFailed { source, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!(source.downcast_ref::<Broken>(), Some(&Broken(8)));
    assert_eq!((play.closes(), messages.count().await), (1, 0));
    end(&application).await;
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_messages_watch_an_end_and_a_free_id_is_answered_at_once(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let messages = Messages::of(&registry);
        assert!(messages.watch("x").await.is_none());
        let play = Play::quiet();
        let process = messages.start("x", play.spec(kind)).await.expect("started");
        play.context().await;
        let watching = tokio::spawn({
            let messages = Messages::of(&registry);
            async move { messages.watch("x").await }
        });
        tokio::task::yield_now().await;
        assert!(!watching.is_finished());
        // A watcher stays with the process it found, also when its id was given up.
        soon(process.close()).await;
        assert!(matches!(soon(watching).await.expect("no panic"), Some(ExitReason::Stopped)));
        end(&application).await;
    }
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_messages_close_the_registry_and_share_the_report_of_the_handle(kind) {
        let application = open().await;
        let registry = application.current().registry();
        let messages = Messages::of(&registry);
        let play = Play::quiet();
        messages.start("x", play.spec(kind)).await.expect("started");
        play.context().await;
        let report = messages.close().await;
        assert_eq!((report.closed, play.closes()), (1, 1));
        assert!(Arc::ptr_eq(&messages.close().await, &report));
        assert!(Arc::ptr_eq(&close(&registry).await, &report));
        let refused = messages.start("y", Play::quiet().spec(kind)).await;
        assert!(matches!(refused, Err(StartError::RegistryClosed { .. })), "{refused:?}");
        assert!(messages.get("x").await.is_none() && messages.list().await.is_empty());
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_messages_to_a_registry_that_is_gone_get_an_error_and_never_hang() {
    let application = open().await;
    let messages = Messages::of(&application.current().registry());
    end(&application).await;
    let play = Play::quiet();
    let (id, process) = (ProcessId::new("x").expect("valid"), play.object());
    let start = |reply| RegistryMessage::Start { id, process, reply };
    assert!(soon(async { ractor::call!(messages.0, start) }).await.is_err());
    let close = |reply| RegistryMessage::Close { reply };
    assert!(soon(async { ractor::call!(messages.0, close) }).await.is_err());
    assert_eq!((play.starts(), play.closes()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn reg_messages_from_a_plugin_actor_start_another_process() {
    let application = open().await;
    let registry = application.current().registry();
    let plugin = registry.start("plugin", Play::quiet().spec(ProcessKind::Actor)).await.expect("started");
    let child = Play::quiet();
    let started = Arc::clone(&child);
    let run = Ask::Run(Box::new(move |context| {
        Box::pin(async move {
            let messages = Messages::of(&context.generation().registry());
            messages.start("child", started.object()).await.expect("started");
        })
    }));
    plugin.actor::<Ask>().expect("an actor").cast(run).expect("it runs");
    child.context().await;
    assert!(Arc::ptr_eq(&registry.get::<Play>("child").expect("found"), &child));
    end(&application).await;
}
