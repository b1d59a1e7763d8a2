//! Processes of the three kinds that live by a plan.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tenure_actors::rules::ProcessKind;
use tenure_actors::{CloseError, CommitError, ManagedProcess, ProcessContext, ProcessResult, ProcessSpec};

use crate::driver;
use crate::script::{Act, Crash, End, Leave, Start};
use crate::world::{Guard, Record, World};

/// A process to be started, by its plan.
pub(crate) fn spec(world: &Arc<World>, record: &Arc<Record>) -> ProcessSpec {
    let crew = Crew { world: Arc::clone(world), record: Arc::clone(record) };
    let role = format!("r{}", record.number);
    let guard = world.guard(format!("the code of {record}"));
    let spec = match record.plan.kind {
        ProcessKind::Function => ProcessSpec::function(role, move |context| async move {
            let _guard = guard;
            crew.record.starts.fetch_add(1, Ordering::SeqCst);
            crew.body(&context).await
        }),
        ProcessKind::Object => {
            ProcessSpec::object(role, Arc::new(Subject { crew, context: Arc::default(), _guard: guard }))
        }
        ProcessKind::Actor => {
            let state = world.guard(format!("the state of {record}"));
            ProcessSpec::actor(role, Player { crew, _guard: guard }, move |context| (context, state))
        }
    };
    match record.plan.patience {
        Some(patience) => spec.patience(patience),
        None => spec,
    }
}

/// Panics without the noise of the panic hook.
fn quiet_panic() -> ! {
    resume_unwind(Box::new("as the script says"))
}

#[derive(Clone)]
pub(crate) struct Crew {
    world: Arc<World>,
    record: Arc<Record>,
}

impl Crew {
    /// The body of a function, and the one message of an actor.
    async fn body(&self, context: &ProcessContext) -> ProcessResult {
        tokio::select! {
            biased;
            how = self.crashed() => self.crash(how),
            result = self.work(context) => result,
        }
    }

    async fn crashed(&self) -> Crash {
        let mut crash = self.record.crash.subscribe();
        let crashed = crash.wait_for(Option::is_some).await.expect("the record holds the sender");
        crashed.expect("it was waited for")
    }

    fn crash(&self, how: Crash) -> ProcessResult {
        match how {
            Crash::Error => Err("as the script says".into()),
            Crash::Panic => quiet_panic(),
        }
    }

    async fn work(&self, context: &ProcessContext) -> ProcessResult {
        self.acts(context).await;
        match self.record.plan.end {
            End::Completes => Ok(()),
            End::Fails => Err("as the script says".into()),
            End::Panics => quiet_panic(),
            End::IsDeaf => std::future::pending().await,
            End::Waits if self.record.plan.kind == ProcessKind::Actor => Ok(()),
            End::Waits => {
                context.cancelled().await;
                self.commit_late(context).await;
                self.leave().await
            }
        }
    }

    /// What an object set going, which nobody can cut off. It ends by itself, so that its guard does.
    async fn toil(self, context: ProcessContext, kept: Arc<Mutex<Option<ProcessContext>>>) {
        let acting = async {
            self.acts(&context).await;
            match self.record.plan.end {
                End::Completes => drop(driver::remove_itself(&self.world, &self.record, &context)),
                End::Fails | End::Panics => {}
                End::Waits => context.cancelled().await,
                End::IsDeaf => self.world.pause(300).await,
            }
        };
        tokio::select! {
            biased;
            _ = self.crashed() => {}
            () = acting => {}
        }
        context.cancelled().await;
        self.commit_late(&context).await;
        kept.lock().take();
    }

    async fn commit_late(&self, context: &ProcessContext) {
        for _ in 0..self.record.plan.late {
            self.commit(context);
            self.world.pause(1).await;
        }
    }

    async fn leave(&self) -> ProcessResult {
        match self.record.plan.leave {
            Leave::AtOnce => Ok(()),
            Leave::Slowly(length) => {
                self.world.pause(length).await;
                Ok(())
            }
            Leave::WithAnError => Err("as the script says".into()),
            Leave::WithAPanic => quiet_panic(),
            Leave::Never => std::future::pending().await,
        }
    }

    async fn start(&self, context: &ProcessContext) -> ProcessResult {
        match self.record.plan.start {
            Start::Works => Ok(()),
            Start::IsSlow(length) => {
                self.world.pause(length).await;
                Ok(())
            }
            Start::Fails => Err("as the script says".into()),
            Start::Panics => quiet_panic(),
            Start::Hangs => std::future::pending().await,
            Start::RemovesItself => {
                driver::remove_itself(&self.world, &self.record, context);
                Ok(())
            }
        }
    }

    async fn acts(&self, context: &ProcessContext) {
        for act in &self.record.plan.acts {
            self.act(*act, context).await;
        }
    }

    /// Boxed: a process may start others that live by the same code.
    fn act<'a>(&'a self, act: Act, context: &'a ProcessContext) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match act {
                Act::Commit => self.commit(context),
                Act::CommitThatPanics => self.commit_that_panics(context),
                Act::CommitAsync(length) => self.commit_async(context, Some(length)).await,
                Act::CommitForever => self.commit_async(context, None).await,
                Act::Progress => context.progress(50, "half"),
                Act::Pause(length) => self.world.pause(length).await,
                Act::RemoveItself => drop(driver::remove_itself(&self.world, &self.record, context)),
                Act::StartAnother(id) => self.start_another(context, id).await,
                Act::CloseGeneration => self.close_generation(context).await,
                Act::CloseRegistry => self.close_registry(context).await,
                Act::CloseItself => {
                    let (world, handle) = (Arc::clone(&self.world), context.handle());
                    self.world.beside(async move { driver::close_process(&world, handle).await });
                }
            }
        })
    }

    // --- effects ----------------------------------------------------------------------------------------

    fn commit(&self, context: &ProcessContext) {
        self.account(context.commit(|| self.world.effect(&self.record)));
    }

    fn commit_that_panics(&self, context: &ProcessContext) {
        let committed = catch_unwind(AssertUnwindSafe(|| {
            context.commit(|| {
                self.world.effect(&self.record);
                quiet_panic();
            })
        }));
        match committed {
            Ok(committed) => self.account(committed),
            // The worker of an object goes on: it has more to show after its close.
            Err(_) if self.record.plan.kind == ProcessKind::Object => {}
            Err(panic) => resume_unwind(panic),
        }
    }

    async fn commit_async(&self, context: &ProcessContext, length: Option<u64>) {
        let committed = context
            .commit_async(|_| async {
                self.world.effect(&self.record);
                match length {
                    Some(length) => self.world.pause(length).await,
                    None => std::future::pending().await,
                }
                self.world.effect_ends(&self.record);
            })
            .await;
        self.account(committed);
    }

    fn account(&self, committed: Result<(), CommitError>) {
        match committed {
            Ok(()) | Err(CommitError::CutOff { .. }) => {}
            Err(CommitError::AuthorityRevoked { .. }) => self.world.refusal(&self.record),
        }
    }

    // --- the kernel from inside -------------------------------------------------------------------------

    async fn start_another(&self, context: &ProcessContext, id: usize) {
        let mut plan = self.record.plan.clone();
        (plan.start, plan.end) = (Start::Works, End::Waits);
        plan.acts.retain(|act| matches!(act, Act::Commit | Act::CommitAsync(_) | Act::Pause(_)));
        let generation = context.generation();
        driver::start(&self.world, &generation, &format!("p{id}"), plan, None).await;
    }

    /// The worker of an object is a task of its own; all others run inside, and are told so.
    fn is_inside(&self) -> bool {
        self.record.plan.kind != ProcessKind::Object
    }

    async fn close_generation(&self, context: &ProcessContext) {
        let generation = context.generation();
        self.world.asks_to_close(self.record.epoch);
        match generation.close().await {
            Ok(report) if !self.is_inside() => self.world.closed(&report),
            Err(CloseError::Inside { .. }) if self.is_inside() => {}
            other => self.world.fault(format!("{} closed its generation: {other:?}", self.record)),
        }
    }

    async fn close_registry(&self, context: &ProcessContext) {
        let generation = context.generation();
        self.world.asks_to_close(self.record.epoch);
        match generation.registry().close().await {
            Ok(report) if !self.is_inside() => self.world.registry_closed(&report),
            Err(CloseError::Inside { .. }) if self.is_inside() => {}
            other => self.world.fault(format!("{} closed its registry: {other:?}", self.record)),
        }
    }
}

/// An object that keeps its context, as one that commits in its own methods does.
pub(crate) struct Subject {
    pub(crate) crew: Crew,
    context: Arc<Mutex<Option<ProcessContext>>>,
    _guard: Guard,
}

impl Subject {
    pub(crate) fn number(&self) -> usize {
        self.crew.record.number
    }
}

impl ManagedProcess for Subject {
    async fn start(self: Arc<Self>, context: ProcessContext) -> ProcessResult {
        self.crew.record.starts.fetch_add(1, Ordering::SeqCst);
        *self.context.lock() = Some(context.clone());
        let toil = self.crew.clone().toil(context.clone(), Arc::clone(&self.context));
        self.crew.world.beside(toil);
        self.crew.start(&context).await
    }

    async fn close(self: Arc<Self>) -> ProcessResult {
        self.crew.record.closes.fetch_add(1, Ordering::SeqCst);
        if let Some(context) = self.context.lock().clone() {
            let late = context.commit(|| self.crew.world.effect(&self.crew.record));
            self.crew.world.check(late.is_err(), || format!("{}: its close commits", self.crew.record));
            self.crew.account(late);
        }
        self.crew.leave().await
    }
}

/// What an actor is told.
pub(crate) enum Call {
    Run,
    Crash(Crash),
}

struct Player {
    crew: Crew,
    _guard: Guard,
}

impl Actor for Player {
    type Msg = Call;
    type State = (ProcessContext, Guard);
    type Arguments = (ProcessContext, Guard);

    async fn pre_start(
        &self,
        myself: ActorRef<Call>,
        (context, guard): Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        self.crew.record.starts.fetch_add(1, Ordering::SeqCst);
        self.crew.start(&context).await?;
        let _ = myself.cast(Call::Run);
        Ok((context, guard))
    }

    async fn handle(
        &self,
        myself: ActorRef<Call>,
        call: Call,
        (context, _): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match call {
            Call::Run => self.crew.body(context).await?,
            Call::Crash(how) => self.crew.crash(how)?,
        }
        if self.crew.record.plan.end == End::Completes {
            myself.stop(None);
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<Call>,
        (context, _): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        self.crew.record.closes.fetch_add(1, Ordering::SeqCst);
        self.crew.commit_late(context).await;
        self.crew.leave().await
    }
}
