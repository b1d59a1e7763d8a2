//! A plugin that is a plain ractor actor. It holds the references of the registry and of the operations and
//! sends them messages; the methods of the kernel's handles are conveniences over the same protocol. Run it
//! with `cargo run --example plugin_actor`.
//!
//! The plugin is a library. It runs as a service of its generation: started again when it fails, ended with
//! the generation. Its handlers may wait for the registry and the operations, because these never wait for a
//! plugin.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, Message, RpcReplyPort};
use tenure::actors::{
    Application, BoxError, ExitReason, GenerationSpec, ManagedProcess, OperationFilter, OperationId,
    OperationLease, OperationRequest, OperationsMessage, ProcessContext, ProcessHandle, ProcessId,
    ProcessResult, ProcessSpec, RegistryMessage, ReserveError, ServiceSpec, SessionId, StartError,
};
use tokio::sync::oneshot;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let library = ServiceSpec::new("library", || ProcessSpec::actor("library", Library, Desk::of));
    let application = Application::open(GenerationSpec::default().service(library)).await?;
    let library = application.current().services().get("library").and_then(|service| service.process);
    let library = library.and_then(|process| process.actor()).ok_or("the library is not open")?;
    for task in [Task::Start, Task::Find, Task::Watch, Task::Remove, Task::Reserve, Task::Close] {
        ask(&library, |done| LibraryMessage::Do(task, done)).await?;
    }
    println!();
    say("report", application.close().await?);
    Ok(())
}

// --- the plugin -------------------------------------------------------------------------------------------

struct Library;

/// The state of the actor: what it works with.
struct Desk {
    registry: ActorRef<RegistryMessage>,
    operations: ActorRef<OperationsMessage>,
    end_import: Option<oneshot::Sender<()>>,
}

enum LibraryMessage {
    Do(Task, RpcReplyPort<()>),
    ImportEnded(Option<ExitReason>, RpcReplyPort<()>),
}

#[derive(Clone, Copy)]
enum Task {
    Start,
    Find,
    Watch,
    Remove,
    Reserve,
    Close,
}

impl Actor for Library {
    type Msg = LibraryMessage;
    type State = Desk;
    type Arguments = Option<Desk>;

    async fn pre_start(
        &self,
        _: ActorRef<LibraryMessage>,
        desk: Option<Desk>,
    ) -> Result<Desk, ActorProcessingErr> {
        Ok(desk.ok_or("the generation has not opened yet")?)
    }

    async fn handle(
        &self,
        myself: ActorRef<LibraryMessage>,
        message: LibraryMessage,
        desk: &mut Desk,
    ) -> Result<(), ActorProcessingErr> {
        let done = match message {
            LibraryMessage::Do(Task::Watch, done) => return desk.watch(&myself, done).await,
            LibraryMessage::Do(task, done) => {
                desk.work(task).await?;
                done
            }
            LibraryMessage::ImportEnded(exit, done) => {
                say("ended", or_none(exit));
                done
            }
        };
        // Whoever asked may have gone away.
        let _ = done.send(());
        Ok(())
    }
}

impl Desk {
    /// What the actor is spawned with: its context knows the generation, and that the two actors.
    fn of(context: ProcessContext) -> Option<Self> {
        let generation = context.generation();
        let registry = generation.registry().actor_ref()?;
        Some(Self { registry, operations: generation.operations().actor_ref()?, end_import: None })
    }

    async fn work(&mut self, task: Task) -> Result<(), BoxError> {
        match task {
            Task::Start => self.start_one_of_each_kind().await,
            Task::Find => self.find_them_again().await,
            Task::Watch => Ok(()),
            Task::Remove => self.remove_the_shelf().await,
            Task::Reserve => self.reserve_the_hall().await,
            Task::Close => self.close().await,
        }
    }

    // --- the registry -------------------------------------------------------------------------------------

    async fn start_one_of_each_kind(&mut self) -> Result<(), BoxError> {
        title("start one process of each kind");
        let (end_import, ended) = oneshot::channel();
        self.end_import = Some(end_import);
        let import = ProcessSpec::function("import", |context: ProcessContext| async move {
            tokio::select! {
                _ = ended => context.commit(|| say("import", "adds a book"))?,
                () = context.cancelled() => {}
            }
            Ok(())
        });
        for (id, process) in [
            ("import:1", import),
            ("shelf:poetry", ProcessSpec::object("shelf", Arc::new(Shelf::default()))),
            ("clerk:anna", ProcessSpec::actor("clerk", Clerk, |_| ())),
        ] {
            let process = self.start(id, process).await??;
            let state = process.state().map(|state| state.to_string());
            say("start", format_args!("{id} as {} -> {}", process.name(), or_none(state)));
        }
        let again = self.start("clerk:anna", ProcessSpec::actor("clerk", Clerk, |_| ())).await?;
        say("start", again.err().map_or_else(String::new, |refused| refused.to_string()));
        Ok(())
    }

    async fn start(
        &self,
        id: &str,
        process: ProcessSpec,
    ) -> Result<Result<ProcessHandle, StartError>, BoxError> {
        let id = ProcessId::new(id)?;
        ask(&self.registry, |reply| RegistryMessage::Start { id, process, reply }).await
    }

    async fn get(&self, id: &str) -> Result<Option<ProcessHandle>, BoxError> {
        let id = ProcessId::new(id)?;
        ask(&self.registry, |reply| RegistryMessage::Get { id, reply }).await
    }

    async fn find_them_again(&self) -> Result<(), BoxError> {
        title("find them again, with their own types");
        let shelf = self.get("shelf:poetry").await?.and_then(|process| process.object::<Shelf>());
        say("get", format_args!("shelf:poetry -> books: {}", or_none(shelf.map(|shelf| shelf.books()))));
        let clerk = self.get("clerk:anna").await?.and_then(|process| process.actor::<ClerkMessage>());
        let clerk = clerk.ok_or("a clerk takes messages of this type")?;
        let answer = ask(&clerk, |reply| ClerkMessage::Ask("where is poetry?".to_owned(), reply)).await?;
        say("get", format_args!("clerk:anna -> {answer}"));
        say("get", format_args!("clerk:ben -> {}", or_none(self.get("clerk:ben").await?.map(|_| "a clerk"))));
        for process in ask(&self.registry, |reply| RegistryMessage::List { reply }).await? {
            say("list", format_args!("{} as {}, {}", process.id, process.name, process.state));
        }
        say("count", self.count().await?);
        Ok(())
    }

    async fn count(&self) -> Result<usize, BoxError> {
        ask(&self.registry, |reply| RegistryMessage::Count { reply }).await
    }

    /// Waits for an end without holding up the mailbox: the answer comes back as a message.
    async fn watch(
        &mut self,
        myself: &ActorRef<LibraryMessage>,
        done: RpcReplyPort<()>,
    ) -> Result<(), BoxError> {
        title("watch one end");
        let id = ProcessId::new("import:1")?;
        let watch = |reply| RegistryMessage::Watch { id, reply };
        let ended = |exit| LibraryMessage::ImportEnded(exit, done);
        self.registry.call_and_forward(watch, myself, ended, None).map_err(|_| "the registry is closed")?;
        // The registry takes one message after the other: when it has counted, it watches.
        say("count", self.count().await?);
        let end_import = self.end_import.take().ok_or("it was started before")?;
        end_import.send(()).map_err(|()| "it has not ended before".into())
    }

    async fn remove_the_shelf(&self) -> Result<(), BoxError> {
        title("remove one");
        let shelf = self.get("shelf:poetry").await?.ok_or("it was started before")?;
        for _ in 0..2 {
            let (id, identity) = (shelf.id().clone(), shelf.identity());
            let removed =
                ask(&self.registry, |reply| RegistryMessage::Remove { id, identity, reply }).await?;
            say("remove", format_args!("shelf:poetry -> {removed}"));
        }
        say("ended", shelf.ended().await);
        say("count", self.count().await?);
        Ok(())
    }

    // --- the operations -----------------------------------------------------------------------------------

    async fn reserve_the_hall(&self) -> Result<(), BoxError> {
        title("reserve a session, and release it by dropping the lease");
        let lease = self.reserve("reading:1").await??;
        say("reserve", lease.registration());
        let refused = self.reserve("reading:2").await?;
        say("reserve", refused.err().map_or_else(String::new, |refused| refused.to_string()));
        let operation = OperationId::new("reading:1")?;
        let found = ask(&self.operations, |reply| OperationsMessage::Get { operation, reply }).await?;
        say("get", or_none(found));
        say("list", format_args!("active in the hall: {}", self.active_in_the_hall().await?));
        drop(lease);
        say("list", format_args!("active in the hall: {}", self.active_in_the_hall().await?));
        Ok(())
    }

    async fn reserve(&self, id: &str) -> Result<Result<OperationLease, ReserveError>, BoxError> {
        let request = OperationRequest::new(id, "library")?.on_session("hall")?;
        ask(&self.operations, |reply| OperationsMessage::Reserve { request, reply }).await
    }

    async fn active_in_the_hall(&self) -> Result<usize, BoxError> {
        let filter = OperationFilter::session(SessionId::new("hall")?);
        Ok(ask(&self.operations, |reply| OperationsMessage::List { filter, reply }).await?.len())
    }

    // --- the end ------------------------------------------------------------------------------------------

    async fn close(&self) -> Result<(), BoxError> {
        title("close both; the library goes on, it is no process of the registry");
        ask(&self.operations, |reply| OperationsMessage::Close { reply }).await?;
        let refused = self.reserve("reading:3").await?;
        say("reserve", refused.err().map_or_else(String::new, |refused| refused.to_string()));
        let report = ask(&self.registry, |reply| RegistryMessage::Close { reply }).await?;
        say("close", format_args!("ended {}, closed {}", report.ended, report.closed));
        let refused = self.start("import:2", ProcessSpec::function("import", |_| async { Ok(()) })).await?;
        say("start", refused.err().map_or_else(String::new, |refused| refused.to_string()));
        Ok(())
    }
}

// --- its processes ----------------------------------------------------------------------------------------

/// An object: what it can do beside starting is its own affair.
#[derive(Default)]
struct Shelf {
    books: AtomicUsize,
}

impl Shelf {
    fn books(&self) -> usize {
        self.books.load(Ordering::Relaxed)
    }
}

impl ManagedProcess for Shelf {
    async fn start(self: Arc<Self>, _: ProcessContext) -> ProcessResult {
        self.books.store(42, Ordering::Relaxed);
        Ok(())
    }
}

/// An actor of its own, with messages of its own.
struct Clerk;

enum ClerkMessage {
    Ask(String, RpcReplyPort<String>),
}

impl Actor for Clerk {
    type Msg = ClerkMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<ClerkMessage>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<ClerkMessage>,
        ClerkMessage::Ask(question, reply): ClerkMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let _ = reply.send(format!("\"{question}\" is answered by shelf:poetry"));
        Ok(())
    }
}

// --- helpers ----------------------------------------------------------------------------------------------

/// Sends a message and waits for its answer; none in time, or never, is an error.
async fn ask<M: Message, T: Send + 'static>(
    actor: &ActorRef<M>,
    message: impl FnOnce(RpcReplyPort<T>) -> M,
) -> Result<T, BoxError> {
    match actor.call(message, Some(Duration::from_secs(30))).await {
        Ok(CallResult::Success(answer)) => Ok(answer),
        Ok(CallResult::Timeout) => Err("there was no answer in time".into()),
        Ok(CallResult::SenderError) | Err(_) => Err("there will be no answer, the actor is closed".into()),
    }
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

fn title(text: &str) {
    println!("\n{text}\n");
}

fn say(what: &str, text: impl Display) {
    println!("    {what:<8} {text}");
}
