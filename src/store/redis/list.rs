//! Pages of listings, and events read on. A page may take more than one call: none keeps the server for long.

use redis::{Cmd, Value};

use super::answer::{Commons, List};
use super::bytes::Put;
use super::fault::Step;
use super::read::{self, Entry, Looked, MOST, Told};
use super::{RedisStore, record, task};
use crate::model::{AgentId, Event, Occurrence, Run, RunId, ScheduleState, Subject, Task, TaskId, Timestamp};
use crate::store::pager::{Pager, cursor};
use crate::store::{Counted, Page, PageRequest, RunFilter, StoreError};

/// What a listing answers: closed stores refuse, what the server says is told with its name.
type Listed<T> = Result<Step<T>, StoreError>;

/// How many runs one call looks at, and how often one page asks.
const LOOKED_AT: usize = 4096;
const MOST_CALLS: usize = 5;
/// The most names of runs that are looked for in the name of a session.
const MOST_NAMED: usize = 64;
/// The most entries of a page: more are not read in one call.
const MOST_ENTRIES: usize = 2 * MOST;

macro_rules! step {
    ($step:expr) => {
        match $step {
            Ok(value) => value,
            Err(fault) => return Ok(Err(fault.into())),
        }
    };
}

/// What is due, after an instant and a run. What cannot be read is left out, and takes no place of what can.
pub(super) async fn due<T: Send + 'static>(
    store: &RedisStore,
    what: &str,
    after: Option<(Timestamp, RunId)>,
    limit: usize,
    take_apart: fn(Value, &mut Commons) -> Step<Vec<T>>,
) -> Result<Vec<T>, StoreError> {
    let mut from = match after {
        Some((at, run_id)) => (at.ms().to_string().into_bytes(), record::kept_name(run_id.as_str())),
        None => (b"-inf".to_vec(), Vec::new()),
    };
    let limit = limit.min(MOST);
    let mut found = Vec::new();
    loop {
        let mut call = store.shared.read(what);
        call.arg(&from.0).arg(&from.1).arg(limit - found.len());
        let part = store.read(call, move |value, commons| {
            let mut list = List::of(value)?;
            let found = take_apart(list.next()?, commons)?;
            let mut last = list.list()?;
            let more = if last.is_empty() { None } else { Some((last.bytes()?, last.bytes()?)) };
            Ok((found, more))
        });
        let (more, last) = part.await?;
        found.extend(more);
        match last {
            Some(last) if found.len() < limit => from = last,
            _ => return Ok(found),
        }
    }
}

/// Tasks by name.
pub(super) async fn tasks(store: &RedisStore, request: &PageRequest) -> Listed<Page<(Task, ScheduleState)>> {
    store.is_open()?;
    let mut pager = step!(Pager::new(request.limit.min(MOST_ENTRIES)));
    let after = step!(cursor(request, 't', |name| TaskId::new(name).ok()));
    let mut call = store.shared.read("tasks");
    call.arg(after.as_ref().map_or("", TaskId::as_str)).arg(pager.more());
    let entries = step!(store.ask(call, |value, _| read::tasks(value)).await?);
    for Entry { name, read } in entries {
        let cursor = format!("t{name}");
        if !step!(pager.take(name, cursor, read)) {
            break;
        }
    }
    Ok(Ok(pager.page))
}

/// Occurrences of a task, the newest first.
pub(super) async fn occurrences(
    store: &RedisStore,
    task_id: &TaskId,
    request: &PageRequest,
) -> Listed<Page<Occurrence>> {
    store.is_open()?;
    let mut pager = step!(Pager::new(request.limit.min(MOST_ENTRIES)));
    let below: Option<i64> = step!(cursor(request, 'o', |number| number.parse().ok()));
    let mut due = Put::default();
    if let Some(below) = below {
        due.i64(below);
    }
    let mut call = store.shared.read("occurrences");
    call.arg(task_id.as_str()).arg(&due.0[..]).arg(pager.more());
    let found = step!(store.ask(call, |value, _| of_occurrences(value)).await?);
    for (due_at, record) in found {
        let name = format!("{task_id} at {}", Timestamp::from_ms(due_at));
        if !step!(pager.take(name, format!("o{due_at}"), task::parsed("the occurrence", &record))) {
            break;
        }
    }
    Ok(Ok(pager.page))
}

fn of_occurrences(value: Value) -> Step<Vec<(i64, Vec<u8>)>> {
    let mut list = List::of(value)?;
    let mut found = Vec::with_capacity(list.len());
    while !list.is_empty() {
        let mut one = list.list()?;
        let due_at = super::bytes::Get(&one.bytes()?).i64()?;
        found.push((due_at, one.maybe()?.unwrap_or_default()));
    }
    Ok(found)
}

/// Runs, the newest first.
pub(super) async fn runs(store: &RedisStore, filter: &RunFilter, request: &PageRequest) -> Listed<Page<Run>> {
    store.is_open()?;
    let mut pager = step!(Pager::new(request.limit.min(MOST_ENTRIES)));
    let below: Option<u64> = step!(cursor(request, 'r', |number| number.parse().ok()));
    let mut below = below.unwrap_or(NEWEST).min(NEWEST);
    for _ in 0..MOST_CALLS {
        let want = pager.more();
        let call = look(store, filter, below, want, false);
        let Looked { found, at, done } = step!(store.ask(call, read::looked).await?);
        for (number, name, run) in found {
            if !step!(pager.take(name, format!("r{number}"), run)) {
                return Ok(Ok(pager.page));
            }
        }
        if done {
            return Ok(Ok(pager.page));
        }
        below = at;
    }
    // There may be more: who asks on goes on from here.
    pager.page.next = Some(format!("r{below}"));
    Ok(Ok(pager.page))
}

/// How many runs there are, up to a number.
pub(super) async fn count(store: &RedisStore, filter: &RunFilter, most: u64) -> Listed<Counted> {
    store.is_open()?;
    let (mut below, mut count) = (NEWEST, 0_u64);
    for _ in 0..MOST_CALLS {
        // One more than is wanted, to know whether there are others.
        let want = usize::try_from((most - count).saturating_add(1)).unwrap_or(usize::MAX).min(1 << 31);
        let call = look(store, filter, below, want, true);
        let (found, at, done) = step!(store.ask(call, read::counted).await?);
        count += found;
        if count > most {
            return Ok(Ok(Counted { count: most, exact: false }));
        }
        if done {
            return Ok(Ok(Counted { count, exact: true }));
        }
        below = at;
    }
    Ok(Ok(Counted { count, exact: false }))
}

/// Above every number of a run.
const NEWEST: u64 = 1 << 47;

fn look(store: &RedisStore, filter: &RunFilter, below: u64, want: usize, only_count: bool) -> Cmd {
    let mut call = store.shared.read("runs");
    call.arg(below).arg(want).arg(LOOKED_AT).arg(u8::from(only_count));
    call.arg(filter.task_id.as_ref().map_or("", TaskId::as_str));
    call.arg(filter.agent_id.as_ref().map_or("", |agent_id| agent_id.as_str()));
    call.arg(filter.owned.map_or("", |owned| if owned { "1" } else { "0" })).arg(AgentId::host().as_str());
    let statuses: Vec<u8> = filter.statuses.iter().map(|status| status.number()).collect();
    let trigger: Vec<u8> = filter.trigger.iter().map(|trigger| *trigger as u8).collect();
    call.arg(&statuses[..]).arg(&trigger[..]);
    call.arg(u8::from(filter.session_id.is_some())).arg(filter.session_id.as_deref().unwrap_or_default());
    for at in [filter.created_after, filter.created_before] {
        call.arg(at.map_or_else(String::new, |at| at.ms().to_string()));
    }
    call.arg(filter.text.as_deref().unwrap_or_default().to_ascii_lowercase());
    let named = named_in(filter.session_id.as_deref().unwrap_or_default());
    call.arg(named.len());
    for name in named {
        call.arg(name);
    }
    call
}

/// The runs after which a session may be called.
fn named_in(session: &str) -> Vec<Vec<u8>> {
    let is_name = |part: &&[u8]| part.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let parts = session.as_bytes().windows(32).filter(is_name).take(MOST_NAMED);
    parts.filter_map(|part| std::str::from_utf8(part).ok()).map(record::kept_name).collect()
}

/// Events after a number or a cursor.
pub(super) async fn events(
    store: &RedisStore,
    subject: Subject,
    after: u64,
    limit: usize,
) -> Listed<Vec<Event>> {
    store.is_open()?;
    // No number of ours is that high.
    let mut after = after.min(1 << 52);
    let mut found: Vec<Event> = Vec::new();
    while found.len() < limit {
        let most = (limit - found.len()).min(MOST);
        let call = of_subject(store, &subject, after, most);
        let Told { events, at, done } = step!(store.ask(call, read::events).await?);
        if let Subject::Task(_) = subject {
            found.extend(events.into_iter().filter(|event| event.sequence > after).take(limit));
            break;
        }
        found.extend(events);
        if done {
            break;
        }
        after = at;
    }
    Ok(Ok(found))
}

fn of_subject(store: &RedisStore, subject: &Subject, after: u64, limit: usize) -> Cmd {
    let operation = match subject {
        Subject::All => "events_of_all",
        Subject::Run(_) => "events_of_run",
        Subject::Task(_) => "events_of_task",
    };
    let mut call = store.shared.read(operation);
    match subject {
        Subject::All => call.arg(after).arg(limit),
        Subject::Run(run_id) => call.arg(record::kept_name(run_id.as_str())).arg(after).arg(limit),
        // Those of a task are few, and some may have been pruned in front: all are looked at.
        Subject::Task(task_id) => call.arg(task_id.as_str()).arg(100 * MOST),
    };
    call
}
