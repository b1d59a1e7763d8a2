//! Plays a script against an application, and has it judged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure_actors::{
    Application, CloseError, ExitReason, Generation, GenerationSpec, OperationLease, OperationRequest,
    ProcessContext, ProcessHandle, ProcessState, ReplaceError, ReserveError, StartError, StartFailure,
    testkit,
};

use crate::script::{Crash, Part, Plan, Script, Step, Then, Timing, Whose, Wish};
use crate::workers::{self, Call, Subject};
use crate::world::{Answer, Held, Record, World};
use crate::{chronicle, verdict};

/// Plays the script; answers what was wrong.
pub(crate) async fn play(script: &Script) -> Vec<String> {
    let world = World::new(script.timing);
    let spec = GenerationSpec::default().limits(script.limits.clone());
    let opened = match script.shuffle {
        Some(seed) => testkit::open_shuffled(spec, seed).await,
        None => Application::open(spec).await,
    };
    let application = opened.expect("it has no services");
    // From the start: the first event that is missed is the opening of the first generation.
    let recorder = script.recorded.then(|| application.journal().record());
    for step in &script.steps {
        let generation = meet(&world, &application);
        take(&world, &application, &generation, step).await;
    }
    close_application(&world, &application).await;
    meet(&world, &application);
    world.joined().await;
    verdict::reach(&world, &application).await;
    if let Some(recorder) = recorder {
        chronicle::read(&world, &recorder.events());
    }
    std::mem::take(&mut *world.faults.lock())
}

/// The current generation; epochs only rise.
fn meet(world: &World, application: &Application) -> Generation {
    // Read under the lock, or whoever meets a later one in between makes this look like a step back.
    let mut generations = world.generations.lock();
    let generation = application.current();
    let last = generations.last_key_value().map_or(0, |(epoch, _)| *epoch);
    let epoch = generation.epoch().get();
    world.check(epoch >= last, || format!("epoch {epoch} after epoch {last}"));
    generations.insert(epoch, generation.clone());
    generation
}

async fn take(world: &Arc<World>, application: &Application, generation: &Generation, step: &Step) {
    match step {
        Step::Start { id, plan, operation, then } => {
            let (own, generation) = (Arc::clone(world), generation.clone());
            let (id, plan, operation) = (name(*id), plan.clone(), operation.clone());
            let task = async move {
                let lease = match operation {
                    Some(wish) => reserve(&own, &generation, &wish).await,
                    None => None,
                };
                start(&own, &generation, &id, plan, lease).await;
            };
            run(world, task, *then).await;
        }
        Step::Remove { id, whose } => {
            if let Some(handle) = find(world, generation, *id, *whose) {
                remove(world, generation, &handle);
            }
        }
        Step::Crash { id, how } => {
            if let Some(handle) = generation.registry().lookup(&name(*id)) {
                crash(world, &handle, *how);
            }
        }
        Step::CloseProcess { id, whose, then } => {
            if let Some(handle) = find(world, generation, *id, *whose) {
                let own = Arc::clone(world);
                run(world, async move { close_process(&own, handle).await }, *then).await;
            }
        }
        Step::CloseRegistry { then } => {
            let (own, generation) = (Arc::clone(world), generation.clone());
            run(world, async move { close_registry(&own, &generation).await }, *then).await;
        }
        Step::CloseGeneration { then } => {
            let (own, generation) = (Arc::clone(world), generation.clone());
            run(world, async move { close_generation(&own, &generation).await }, *then).await;
        }
        Step::Replace { then } => {
            let (own, application) = (Arc::clone(world), application.clone());
            run(world, async move { replace(&own, &application).await }, *then).await;
        }
        Step::CloseApplication { then } => {
            let (own, application) = (Arc::clone(world), application.clone());
            run(world, async move { close_application(&own, &application).await }, *then).await;
        }
        Step::Fail(part) => fail(world, generation, *part),
        Step::Reserve(wish) => {
            if let Some(lease) = reserve(world, generation, wish).await {
                keep(world, generation, lease);
            }
        }
        Step::Release { which } => release(world, generation, *which),
        Step::DropLease { which } => drop_lease(world, generation, *which),
        Step::CloseOperations => {
            generation.operations().close().await;
            let left = generation.operations().count();
            world.check(left == 0, || format!("{left} operations are left by their close"));
        }
        Step::Pause(length) => world.pause(*length).await,
        Step::Look => look(world, generation),
    }
}

fn name(id: usize) -> String {
    format!("p{id}")
}

async fn run(world: &World, task: impl Future<Output = ()> + Send + 'static, then: Then) {
    let mut task = Box::pin(task);
    match then {
        Then::Wait => task.await,
        Then::GoOn => world.beside(task),
        // Its first turn has sent the message, whose answer nobody waits for any more.
        Then::Leave => drop(futures_util::poll!(&mut task)),
    }
}

fn find(world: &World, generation: &Generation, id: usize, whose: Whose) -> Option<ProcessHandle> {
    match whose {
        Whose::Current => generation.registry().lookup(&name(id)),
        Whose::Old => {
            let records = world.records.lock();
            records.iter().filter(|record| record.id == name(id)).find_map(|record| world.handle(record))
        }
    }
}

// --- starting ---------------------------------------------------------------------------------------------

/// Starts a process. Whatever the answer is, it is the only one, and the promises that go with it hold.
pub(crate) async fn start(
    world: &Arc<World>,
    generation: &Generation,
    id: &str,
    plan: Plan,
    lease: Option<OperationLease>,
) {
    let record = world.record(generation, id, plan);
    let owner = lease.as_ref().map(|lease| lease.registration().clone());
    let spec = workers::spec(world, &record);
    let spec = lease.into_iter().fold(spec, tenure_actors::ProcessSpec::holding);
    let left = LeaveMark(Arc::clone(&record));
    let answer = generation.registry().start(id, spec).await;
    drop(left);
    let answer = match answer {
        Ok(handle) => {
            registered(world, generation, &record, &handle);
            let (watching, generation, watched) = (Arc::clone(world), generation.clone(), handle.clone());
            let of = Arc::clone(&record);
            world.beside(async move { watch(&watching, &generation, &of, &watched, owner).await });
            world.handles.lock().insert(record.number, handle);
            Answer::Started
        }
        Err(error) => {
            let found = generation.registry().get::<Subject>(id);
            let is_it = found.is_some_and(|subject| subject.number() == record.number);
            world.check(!is_it, || format!("{record} is found after its start was refused"));
            if let Some(owner) = owner {
                let active = generation.operations().get(owner.operation.as_str());
                world
                    .check(active.as_ref() != Some(&owner), || format!("{record} holds its operation still"));
            }
            refused(&error)
        }
    };
    if record.answer.set(answer).is_err() {
        world.fault(format!("{record} was answered twice"));
    }
}

/// Notes that the caller went away if it is dropped before the answer.
struct LeaveMark(Arc<Record>);

impl Drop for LeaveMark {
    fn drop(&mut self) {
        self.0.caller_left.store(true, Ordering::SeqCst);
    }
}

fn refused(error: &StartError) -> Answer {
    let text = error.to_string();
    match error {
        StartError::StartFailed { kind: StartFailure::Killed, .. } => Answer::Killed,
        StartError::StartFailed { .. } | StartError::StartTimedOut { .. } => Answer::Failed(text),
        StartError::Invalid(_)
        | StartError::AlreadyExists { .. }
        | StartError::RegistryClosed { .. }
        | StartError::TooManyProcesses { .. } => Answer::Refused(text),
    }
}

fn same(one: &ProcessHandle, other: &ProcessHandle) -> bool {
    one.epoch() == other.epoch() && one.name() == other.name()
}

fn registered(world: &World, generation: &Generation, record: &Record, handle: &ProcessHandle) {
    world.check(handle.epoch() == generation.epoch() && handle.id().as_str() == record.id, || {
        format!("{record} was started as {handle:?}")
    });
    let found = generation.registry().lookup(&record.id);
    // Looked at afterwards: what is bound now was bound when it was looked up.
    if handle.state() == Some(ProcessState::Running) {
        world.check(found.is_some_and(|found| same(&found, handle)), || format!("{record} is not found"));
    }
}

/// The end was seen: the id is free, the operation is gone, and the old handle reaches nobody.
async fn watch(
    world: &World,
    generation: &Generation,
    record: &Record,
    handle: &ProcessHandle,
    owner: Option<tenure_actors::OperationRegistration>,
) {
    let exit = handle.ended().await;
    let found = generation.registry().lookup(&record.id);
    world.check(found.is_none_or(|found| !same(&found, handle)), || {
        format!("{record} is found after its end")
    });
    if let Some(owner) = owner {
        let active = generation.operations().get(owner.operation.as_str());
        world
            .check(active.as_ref() != Some(&owner), || format!("{record} has ended and holds its operation"));
    }
    world.check(!handle.remove() && handle.state().is_none(), || format!("{record} is bound after its end"));
    note_revocation(world, record, !matches!(exit, ExitReason::Killed(_) | ExitReason::Abandoned));
    let again = handle.close().await;
    world.check(again.to_string() == exit.to_string(), || format!("{record} ended {exit}, then {again}"));
}

// --- ending -----------------------------------------------------------------------------------------------

/// A process removes itself.
pub(crate) fn remove_itself(world: &World, record: &Record, context: &ProcessContext) -> bool {
    let ran = context.handle().state() == Some(ProcessState::Running);
    let removed = context.remove_self();
    note_removal(world, record, ran, removed);
    removed
}

/// No effect of the process begins any more. One that began before may still be at work on another thread,
/// unless the kernel has waited for it: removals and kills do not.
fn note_revocation(world: &World, record: &Record, waited: bool) {
    if waited || world.timing == Timing::Virtual {
        record.revoked.store(true, Ordering::SeqCst);
    }
}

fn note_removal(world: &World, record: &Record, ran: bool, removed: bool) {
    if removed && ran {
        note_revocation(world, record, false);
        // Marks are set before a close is asked for: without one the removal came first.
        if !world.is_closing(record) {
            record.removed_first.store(true, Ordering::SeqCst);
        }
    }
}

fn remove(world: &World, generation: &Generation, handle: &ProcessHandle) {
    let record = world.record_of(handle);
    let (ran, had_ended) = (handle.state() == Some(ProcessState::Running), handle.exit().is_some());
    let before = generation.registry().lookup(&record.id);
    let removed = generation.registry().remove(&record.id, &handle.identity());
    note_removal(world, &record, ran, removed);
    world.check(!(removed && had_ended), || format!("{record} was removed after its end"));
    if let Some(before) = before.filter(|before| !same(before, handle) && before.exit().is_none()) {
        world.check(!removed, || format!("{record} was removed in the stead of {before:?}"));
    }
}

fn crash(world: &World, handle: &ProcessHandle, how: Crash) {
    world.record_of(handle).crash.send_replace(Some(how));
    if let Some(actor) = handle.actor::<Call>() {
        let _ = actor.cast(Call::Crash(how));
    }
}

pub(crate) async fn close_process(world: &World, handle: ProcessHandle) {
    let record = world.record_of(&handle);
    record.closing.store(true, Ordering::SeqCst);
    let exit = handle.close().await;
    note_revocation(world, &record, !matches!(exit, ExitReason::Killed(_) | ExitReason::Abandoned));
    world.check(handle.exit().is_some() && handle.state().is_none(), || {
        format!("{record}: closed, {handle:?}")
    });
    world.check(!matches!(exit, ExitReason::Abandoned), || format!("{record} was abandoned"));
}

async fn close_registry(world: &World, generation: &Generation) {
    world.asks_to_close(generation.epoch().get());
    match generation.registry().close().await {
        Ok(report) => {
            world.registry_closed(&report);
            let left = generation.registry().count();
            world.check(left == 0, || format!("{left} processes are left by the close of the registry"));
        }
        Err(error) => world.fault(format!("the registry: {error}")),
    }
}

async fn close_generation(world: &World, generation: &Generation) {
    world.asks_to_close(generation.epoch().get());
    match generation.close().await {
        Ok(report) => world.closed(&report),
        Err(error) => world.fault(format!("the generation: {error}")),
    }
}

async fn replace(world: &World, application: &Application) {
    let before = meet(world, application);
    world.asks_to_close(before.epoch().get());
    match application.replace().await {
        Ok(report) => {
            world.closed(&report);
            let after = meet(world, application).epoch();
            world.check(after > report.epoch, || format!("epoch {} replaced by {after}", report.epoch));
        }
        Err(ReplaceError::ApplicationClosed) => {}
        Err(error) => world.fault(format!("the replacement: {error}")),
    }
}

async fn close_application(world: &World, application: &Application) {
    let before = meet(world, application);
    world.asks_to_close(before.epoch().get());
    match application.close().await {
        Ok(report) => world.closed(&report),
        Err(error @ (CloseError::Inside { .. } | CloseError::RuntimeEnded { .. })) => {
            world.fault(format!("the application: {error}"));
        }
    }
}

fn fail(world: &World, generation: &Generation, part: Part) {
    world.asks_to_close(generation.epoch().get());
    // False if it is gone already.
    let _ = match part {
        Part::Registry => testkit::fail_registry(generation, "as the script says"),
        Part::Operations => testkit::fail_operations(generation, "as the script says"),
        Part::Supervisor => testkit::fail_supervisor(generation, "as the script says"),
    };
}

// --- operations -------------------------------------------------------------------------------------------

async fn reserve(world: &World, generation: &Generation, wish: &Wish) -> Option<OperationLease> {
    let owner = format!("w{}", world.number());
    let keys: Vec<_> = wish.keys.iter().map(|key| format!("k{key}")).collect();
    let request = OperationRequest::new(format!("op{}", wish.operation).as_str(), owner.as_str());
    let request = keys.iter().try_fold(request.ok()?, |request, key| request.key(key.as_str()).ok())?;
    world.keys.lock().insert(owner.clone(), keys.clone());
    match generation.operations().reserve(request).await {
        Ok(lease) => {
            claim(world, generation.epoch().get(), &keys);
            Some(lease)
        }
        Err(ReserveError::Busy(holder) | ReserveError::DuplicateOperation(holder)) => {
            world.check(holder.owner.as_str() != owner, || format!("{owner} is refused for itself"));
            None
        }
        Err(ReserveError::Closed | ReserveError::TooManyOperations { .. }) => None,
        Err(error @ ReserveError::Invalid { .. }) => {
            world.fault(error.to_string());
            None
        }
    }
}

/// No key may be claimed while the script itself still holds it.
fn claim(world: &World, epoch: u64, keys: &[String]) {
    let accounts = world.accounts.lock();
    let held: Vec<_> = keys.iter().filter_map(|key| accounts.holders.get(&(epoch, key.clone()))).collect();
    world.check(held.is_empty(), || format!("keys {keys:?} of epoch {epoch} are held twice: {held:?}"));
}

fn keep(world: &World, generation: &Generation, lease: OperationLease) {
    let owner = lease.registration().owner.as_str().to_owned();
    let epoch = generation.epoch().get();
    let keys = world.keys.lock().get(&owner).cloned().unwrap_or_default();
    if lease.is_held() {
        let mut accounts = world.accounts.lock();
        accounts.holders.extend(keys.into_iter().map(|key| ((epoch, key), owner.clone())));
    }
    world.leases.lock().push(Held { lease, epoch, owner });
}

fn unclaim(world: &World, held: &Held) {
    world.accounts.lock().holders.retain(|_, owner| *owner != held.owner);
}

/// Releases a lease and keeps it: the next release of it is stale.
fn release(world: &World, generation: &Generation, which: usize) {
    let leases = world.leases.lock();
    let Some(held) = leases.get(which) else {
        return;
    };
    unclaim(world, held);
    let (stood, before) = (held.lease.is_held(), generation.operations().count());
    let released = held.lease.release();
    let operation = held.lease.registration();
    world.check(stood || !released, || format!("{operation} was released twice"));
    world.check(!held.lease.is_held() && !held.lease.release(), || {
        format!("{operation} stands after its release")
    });
    if generation.epoch().get() == held.epoch {
        let active = generation.operations().get(operation.operation.as_str());
        world
            .check(active.as_ref() != Some(operation), || format!("{operation} is active after its release"));
    }
    if world.timing == crate::script::Timing::Virtual {
        let ours = usize::from(released && generation.epoch().get() == held.epoch);
        let after = generation.operations().count();
        world.check(before == after + ours, || format!("{operation}: {before} active, then {after}"));
    }
}

fn drop_lease(world: &World, generation: &Generation, which: usize) {
    let mut leases = world.leases.lock();
    if which >= leases.len() {
        return;
    }
    let held = leases.swap_remove(which);
    drop(leases);
    unclaim(world, &held);
    let operation = held.lease.registration().clone();
    drop(held);
    let active = generation.operations().get(operation.operation.as_str());
    world.check(active.as_ref() != Some(&operation), || format!("{operation} is active after its drop"));
}

/// The views of one moment agree. In real time the moment passes while they are taken.
fn look(world: &World, generation: &Generation) {
    if world.timing == crate::script::Timing::Real {
        return;
    }
    let (list, count) = (generation.registry().list(), generation.registry().count());
    world.check(list.len() == count, || format!("{count} processes, but the list is {list:?}"));
    for line in &list {
        let found = generation.registry().lookup(line.id.as_str()).map(|found| found.name());
        world.check(found.as_ref() == Some(&line.name), || format!("{line:?} is found as {found:?}"));
    }
    let operations = generation.operations();
    let (active, count) = (operations.list(&tenure_actors::OperationFilter::default()), operations.count());
    world.check(active.len() == count, || format!("{count} operations, but the list is {active:?}"));
    let tree = generation.tree();
    let bound = tree.generations.iter().flat_map(|node| &node.children).filter(|child| child.bound).count();
    let open = generation.report().is_none();
    world.check(!open || bound == list.len(), || format!("{list:?}, but the tree is\n{tree}"));
}
