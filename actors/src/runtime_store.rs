//! The runtime store: resources that the plugins of one generation share, made once and closed with it.

use std::any::{Any, type_name};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::contain::{self, Contained};
use crate::error::{CloseFailure, ResourceError, RuntimeStoreClosed};
use crate::event::{ActorName, EventKind};
use crate::exit::{PanicText, ProcessResult, first_line};
use crate::generation::close::Stop;
use crate::generation::core::{Core, patience_ends};
use crate::id::ResourceName;

/// Something that the plugins of a generation share: a client, a cache, a registry of their own.
pub trait Resource: Send + Sync + 'static {
    /// Called once when the generation closes, after its processes and services have ended, in reverse order
    /// of creation. Bounded by the patience of the generation. A panic is contained.
    ///
    /// # Errors
    /// An error is reported in the close report; it stops no other close.
    fn close(self: Arc<Self>) -> impl Future<Output = ProcessResult> + Send {
        async { Ok(()) }
    }
}

trait ErasedResource: Send + Sync {
    fn close(self: Arc<Self>) -> BoxFuture<'static, ProcessResult>;
}

impl<R: Resource> ErasedResource for R {
    fn close(self: Arc<Self>) -> BoxFuture<'static, ProcessResult> {
        Box::pin(Resource::close(self))
    }
}

/// One name: nothing, something being made, or the resource.
#[derive(Default)]
struct Slot {
    made: OnceCell<Made>,
}

#[derive(Clone)]
struct Made {
    value: Arc<dyn Any + Send + Sync>,
    erased: Arc<dyn ErasedResource>,
    kind: &'static str,
}

/// What a generation keeps of its store.
#[derive(Default)]
pub(crate) struct Store {
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    closed: bool,
    slots: HashMap<Arc<str>, Arc<Slot>>,
    /// In order of creation.
    order: Vec<(Arc<str>, Arc<dyn ErasedResource>)>,
}

impl Store {
    fn slot(&self, name: &Arc<str>) -> Result<Arc<Slot>, RuntimeStoreClosed> {
        let mut shelf = self.shelf.lock();
        if shelf.closed {
            return Err(RuntimeStoreClosed);
        }
        Ok(Arc::clone(shelf.slots.entry(Arc::clone(name)).or_default()))
    }

    /// Enters what was made, unless the store was closed meanwhile.
    fn enter(&self, name: &Arc<str>, made: &Made) -> Result<(), RuntimeStoreClosed> {
        let mut shelf = self.shelf.lock();
        if shelf.closed {
            return Err(RuntimeStoreClosed);
        }
        shelf.order.push((Arc::clone(name), Arc::clone(&made.erased)));
        Ok(())
    }

    /// Closes every member in reverse order of creation. Answers those that did not go through.
    pub(crate) async fn close(&self, core: &Arc<Core>, stop: Stop) -> Vec<(String, String)> {
        let members = {
            let mut shelf = self.shelf.lock();
            shelf.closed = true;
            shelf.slots.clear();
            std::mem::take(&mut shelf.order)
        };
        let mut failed = Vec::new();
        for (name, resource) in members.into_iter().rev() {
            if let Err(failure) = close_resource(core, resource, stop).await {
                let line = first_line(&failure.to_string());
                core.journal.announce(stop.cause, || {
                    let stage = "close resource";
                    (ActorName::Generation(core.epoch), EventKind::failed(stage, &format!("{name}: {line}")))
                });
                failed.push((name.to_string(), line));
            }
        }
        failed
    }
}

async fn close_resource(
    core: &Core,
    resource: Arc<dyn ErasedResource>,
    stop: Stop,
) -> Result<(), CloseFailure> {
    let now = Instant::now();
    let ends = patience_ends(core.limits.patience, now).unwrap_or(stop.deadline).min(stop.deadline);
    let bound = ends.saturating_duration_since(now).max(core.limits.cleanup_bound);
    let closing = async {
        match contain::call(|| resource.close()) {
            Ok(future) => Contained::new(future, None, |_: PanicText| {}).await,
            Err(panic) => Err(panic),
        }
    };
    match timeout(bound, closing).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => Err(CloseFailure::Failed(error.into())),
        Ok(Err(panic)) => Err(CloseFailure::Panicked(panic)),
        Err(_) => Err(CloseFailure::TimedOut(bound)),
    }
}

/// A handle to the runtime store of one generation. A cheap clone; after the generation was closed every call
/// answers [`RuntimeStoreClosed`].
#[derive(Clone)]
pub struct RuntimeStore {
    core: Arc<Core>,
}

impl RuntimeStore {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// The resource of this name, made by `make` if there is none. Callers that race share one: it is made
    /// once, under the start bound of the generation, and the others wait for it (contract, R35, R36).
    ///
    /// # Errors
    /// Any [`ResourceError`]; when making it failed the next caller tries again. A resource that was made
    /// while the store was being closed is closed, and the caller gets [`ResourceError::Closed`].
    ///
    /// Cancel safety: dropping the future drops `make` with it; the next caller tries again.
    pub async fn get_or_create<R, F, Fut>(
        &self,
        name: impl TryInto<ResourceName, Error: Into<ResourceError>>,
        make: F,
    ) -> Result<Arc<R>, ResourceError>
    where
        R: Resource,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Arc<R>, crate::exit::BoxError>>,
    {
        let name: ResourceName = name.try_into().map_err(Into::into)?;
        let name = name.into_shared();
        if self.core.is_sealed() {
            return Err(RuntimeStoreClosed.into());
        }
        let slot = self.core.store.slot(&name)?;
        let made = slot.made.get_or_try_init(|| self.make(&name, make)).await?;
        let value = Arc::clone(&made.value).downcast::<R>();
        value.map_err(|_| ResourceError::OtherType { name, is: made.kind, wanted: type_name::<R>() })
    }

    async fn make<R, F, Fut>(&self, name: &Arc<str>, make: F) -> Result<Made, ResourceError>
    where
        R: Resource,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<Arc<R>, crate::exit::BoxError>>,
    {
        // Asked again: who waited for another's make may get here after the close.
        if self.core.is_sealed() {
            return Err(RuntimeStoreClosed.into());
        }
        let limit = self.core.limits.start_bound;
        let failed = |source| ResourceError::Failed { name: Arc::clone(name), source };
        let future = contain::call(make).map_err(|panic| failed(panic.into()))?;
        let value = match timeout(limit, Contained::new(Box::pin(future), None, |_: PanicText| {})).await {
            Ok(Ok(Ok(value))) => value,
            Ok(Ok(Err(source))) => return Err(failed(source)),
            Ok(Err(panic)) => return Err(failed(panic.into())),
            Err(_) => return Err(ResourceError::TimedOut { name: Arc::clone(name), limit }),
        };
        let erased: Arc<dyn ErasedResource> = Arc::<R>::clone(&value);
        let made = Made { value, erased, kind: type_name::<R>() };
        if let Err(closed) = self.core.store.enter(name, &made) {
            let deadline = Instant::now() + self.core.limits.cleanup_bound;
            let stop = Stop { reason: crate::event::StopReason::Closed, cause: None, deadline };
            let _ = close_resource(&self.core, made.erased, stop).await;
            return Err(closed.into());
        }
        Ok(made)
    }

    /// The resource of this name, if it was made and is of this type.
    ///
    /// # Errors
    /// [`RuntimeStoreClosed`] after the generation was closed.
    pub fn get<R: Resource>(&self, name: &str) -> Result<Option<Arc<R>>, RuntimeStoreClosed> {
        if self.core.is_sealed() {
            return Err(RuntimeStoreClosed);
        }
        let shelf = self.core.store.shelf.lock();
        let made = shelf.slots.get(name).and_then(|slot| slot.made.get());
        Ok(made.and_then(|made| Arc::clone(&made.value).downcast().ok()))
    }
}

impl fmt::Debug for RuntimeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RuntimeStore(epoch {})", self.core.epoch)
    }
}
