//! Pages of listings. A record that cannot be read is named on its page, and the others are served.

use std::borrow::Cow;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use serde::Deserialize;

use super::fault::{Fault, Step};
use super::hot::columns;
use super::parts::is_filled;
use super::read::{self, TASK};
use super::row::{Loaded, RUN_ID, SPECS, parsed, spec_text, trigger_flag};
use super::tx::{agent_number, task_number};
use crate::model::{AgentId, Occurrence, Run, RunStatus, ScheduleState, Task, TaskId};
use crate::store::{Page, PageRequest, RunFilter};

/// Of runs in so few wanted states all are looked at and sorted; of more the listing is read from its end.
const FEW: u64 = 20_000;

/// Of how many runs a page looks at columns, and of how many at the texts of their specifications.
const LOOKED_AT: i64 = 20_000;
const READ: i64 = 4_000;

/// A page in the making: one entry more than it holds is looked for, to know whether it is the last.
struct Pager<T> {
    page: Page<T>,
    limit: usize,
    last: String,
}

impl<T> Pager<T> {
    fn new(request: &PageRequest) -> Step<Self> {
        if request.limit == 0 {
            return Err(Fault::Invalid("a page of 0 entries; ask for at least 1".to_owned()));
        }
        let page = Page { items: Vec::new(), next: None, corrupt: Vec::new() };
        Ok(Self { page, limit: request.limit, last: String::new() })
    }

    /// Takes an entry; answers whether there is room for more.
    fn take(&mut self, name: String, cursor: String, entry: Step<T>) -> Step<bool> {
        if self.page.items.len() + self.page.corrupt.len() == self.limit {
            self.page.next = Some(std::mem::take(&mut self.last));
            return Ok(false);
        }
        match entry {
            Ok(entry) => self.page.items.push(entry),
            Err(Fault::Unreadable(why)) => self.page.corrupt.push((name, why)),
            Err(fault) => return Err(fault),
        }
        self.last = cursor;
        Ok(true)
    }
}

/// The number in a cursor of this listing.
fn number(request: &PageRequest, letter: char, first: i64) -> Step<i64> {
    let Some(cursor) = &request.cursor else { return Ok(first) };
    let number = cursor.strip_prefix(letter).and_then(|number| number.parse().ok());
    number.ok_or_else(|| foreign(cursor))
}

fn foreign(cursor: &str) -> Fault {
    let shown: String = cursor.chars().take(40).collect();
    Fault::Invalid(format!("{shown:?} is no cursor of this listing; begin without one"))
}

/// Tasks by name.
pub(super) fn tasks(conn: &Connection, request: &PageRequest) -> Step<Page<(Task, ScheduleState)>> {
    let after = match &request.cursor {
        Some(cursor) => cursor.strip_prefix('t').ok_or_else(|| foreign(cursor))?,
        None => "",
    };
    let sql = format!("SELECT {TASK} {TASKS}");
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query([after])?;
    let mut pager = Pager::new(request)?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let cursor = format!("t{name}");
        if !pager.take(name, cursor, read::read_task(row))? {
            break;
        }
    }
    Ok(pager.page)
}

pub(super) const TASKS: &str = "FROM tasks t LEFT JOIN schedules c ON c.tid = t.tid
    WHERE t.task_id > ?1 ORDER BY t.task_id";

/// Occurrences of a task, the newest first.
pub(super) fn occurrences(
    conn: &Connection,
    task_id: &TaskId,
    request: &PageRequest,
) -> Step<Page<Occurrence>> {
    let mut pager = Pager::new(request)?;
    let before = number(request, 'o', i64::MAX)?;
    let Some(tid) = task_number(conn, task_id)? else { return Ok(pager.page) };
    let mut select = conn.prepare_cached(OCCURRENCES)?;
    let mut rows = select.query([tid, before])?;
    while let Some(row) = rows.next()? {
        let due_at: i64 = row.get(0)?;
        let record = || parsed("the occurrence", &row.get::<_, String>(1)?);
        let name = format!("{task_id} at {}", super::row::at(due_at));
        if !pager.take(name, format!("o{due_at}"), record())? {
            break;
        }
    }
    Ok(pager.page)
}

pub(super) const OCCURRENCES: &str =
    "SELECT due_at, record FROM occurrences WHERE tid = ?1 AND due_at < ?2 ORDER BY due_at DESC";

/// Runs, the newest first.
pub(super) fn runs(conn: &Connection, filter: &RunFilter, request: &PageRequest) -> Step<Page<Run>> {
    let mut pager = Pager::new(request)?;
    let before = number(request, 'r', i64::MAX)?;
    let Some(query) = Query::of(conn, filter, before)? else { return Ok(pager.page) };
    let floor = query.floor;
    let mut select = conn.prepare_cached(&query.sql)?;
    let mut rows = select.query(params_from_iter(query.params))?;
    while let Some(row) = rows.next()? {
        if !Shown::matches(row, filter)? {
            continue;
        }
        let cursor = format!("r{}", row.get::<_, i64>(0)?);
        let run = Loaded::read(row).and_then(|loaded| loaded.with_result(conn)).map(|loaded| loaded.run);
        if !pager.take(row.get(RUN_ID)?, cursor, run)? {
            return Ok(pager.page);
        }
    }
    // Enough was looked at: who asks for more goes on from here.
    pager.page.next = floor.map(|floor| format!("r{floor}"));
    Ok(pager.page)
}

/// The statement of a filter.
pub(super) struct Query {
    pub(super) sql: String,
    params: Vec<Value>,
    /// The last run that is looked at; none if all are.
    floor: Option<i64>,
}

impl Query {
    /// None if nothing can be found.
    pub(super) fn of(conn: &Connection, filter: &RunFilter, before: i64) -> Step<Option<Self>> {
        let mut query = Self { sql: String::new(), params: vec![before.into()], floor: None };
        let mut conditions = String::from("r.rid < ?1");
        let tid = match &filter.task_id {
            Some(task_id) => match task_number(conn, task_id)? {
                Some(tid) => Some(tid),
                None => return Ok(None),
            },
            None => None,
        };
        let (hint, wanted) = hint(conn, filter, tid)?;
        if wanted == Some(0) {
            return Ok(None);
        }
        if let Some(tid) = tid {
            // The plus keeps the listing of a task from being read when there are only a few to sort.
            let column = if hint.is_empty() { "r.tid" } else { "+r.tid" };
            query.and(&mut conditions, &format!("{column} ="), tid);
        }
        if hint.is_empty() {
            query.floor = floor(conn, filter, tid, before)?;
        }
        if let Some(floor) = query.floor {
            query.and(&mut conditions, "r.rid >=", floor);
        }
        if let Some(agent_id) = &filter.agent_id {
            let Some(aid) = agent_number(conn, agent_id)? else { return Ok(None) };
            query.and(&mut conditions, "r.aid =", aid);
        }
        match (filter.owned, agent_number(conn, &AgentId::host())?) {
            (Some(true), None) => return Ok(None),
            (Some(true), Some(host)) => query.and(&mut conditions, "r.aid =", host),
            (Some(false), Some(host)) => query.and(&mut conditions, "r.aid <>", host),
            (Some(false), None) | (None, _) => {}
        }
        if !filter.statuses.is_empty() {
            let numbers: Vec<String> = filter.statuses.iter().map(|s| s.number().to_string()).collect();
            conditions += &format!(" AND r.status IN ({})", numbers.join(", "));
        }
        if let Some(trigger) = filter.trigger {
            query.and(&mut conditions, "r.flags & 3 =", trigger_flag(trigger));
        }
        if let Some(from) = filter.created_after {
            query.and(&mut conditions, "r.queued_at >=", from.ms());
        }
        if let Some(until) = filter.created_before {
            query.and(&mut conditions, "r.queued_at <", until.ms());
        }
        query.sql = format!(
            "SELECT {} FROM runs r {hint} {SPECS} WHERE {conditions}{} ORDER BY r.rid DESC",
            columns(),
            narrowed(hint)
        );
        Ok(Some(query))
    }

    fn and(&mut self, conditions: &mut String, condition: &str, value: i64) {
        self.params.push(value.into());
        *conditions += &format!(" AND {condition} ?{}", self.params.len());
    }
}

/// How far down a page looks that may have to look at many runs in vain.
fn floor(conn: &Connection, filter: &RunFilter, tid: Option<i64>, before: i64) -> Step<Option<i64>> {
    let RunFilter {
        task_id: _,
        agent_id,
        session_id,
        statuses,
        trigger,
        created_after,
        created_before,
        text,
        owned,
    } = filter;
    let read = session_id.is_some() || text.is_some();
    let looked_at = agent_id.is_some()
        || !statuses.is_empty()
        || trigger.is_some()
        || created_after.is_some()
        || created_before.is_some()
        || (owned.is_some() && agent_number(conn, &AgentId::host())?.is_some());
    if !read && !looked_at {
        return Ok(None);
    }
    let many = if read { READ } else { LOOKED_AT };
    let found = match tid {
        Some(tid) => conn.prepare_cached(FLOOR_OF_TASK)?.query_row([before, many - 1, tid], |row| row.get(0)),
        None => conn.prepare_cached(FLOOR)?.query_row([before, many - 1], |row| row.get(0)),
    };
    Ok(found.optional()?)
}

pub(super) const FLOOR: &str = "SELECT rid FROM runs WHERE rid < ?1 ORDER BY rid DESC LIMIT 1 OFFSET ?2";
pub(super) const FLOOR_OF_TASK: &str = "SELECT rid FROM runs INDEXED BY runs_of_task
    WHERE rid < ?1 AND tid = ?3 ORDER BY rid DESC LIMIT 1 OFFSET ?2";

const ENDED: &str = "INDEXED BY runs_ended";
const HELD: &str = "INDEXED BY runs_wake";

/// What a partial index needs to see to be used.
fn narrowed(hint: &str) -> &'static str {
    match hint {
        ENDED => " AND r.finished_at IS NOT NULL",
        HELD => " AND r.wake_at IS NOT NULL",
        _ => "",
    }
}

/// The index to read when only few runs are in the wanted states, and how many of them the task has.
fn hint(conn: &Connection, filter: &RunFilter, tid: Option<i64>) -> Step<(&'static str, Option<u64>)> {
    if filter.statuses.is_empty() {
        return Ok(("", None));
    }
    let wanted = |counts: Vec<(RunStatus, u64)>| -> u64 {
        counts.iter().filter(|(status, _)| filter.statuses.contains(status)).map(|(_, n)| n).sum()
    };
    let all = wanted(read::counts(conn, None)?);
    let own = match (&filter.task_id, tid) {
        (Some(task_id), Some(_)) => wanted(read::counts(conn, Some(task_id))?),
        _ => all,
    };
    let hint = if all > FEW {
        ""
    } else if filter.statuses.iter().all(|status| status.is_terminal()) {
        ENDED
    } else if filter.statuses.iter().all(|status| status.is_held()) {
        HELD
    } else {
        ""
    };
    Ok((hint, Some(own)))
}

/// The parts of a specification that a filter looks at.
#[derive(Deserialize)]
struct Shown<'a> {
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    #[serde(borrow)]
    query: Cow<'a, str>,
}

impl Shown<'_> {
    fn matches(row: &Row<'_>, filter: &RunFilter) -> Step<bool> {
        if filter.session_id.is_none() && filter.text.is_none() {
            return Ok(true);
        }
        let spec = spec_text(row).unwrap_or(None);
        // Nothing is known of what cannot be read: it is shown as such.
        let Some(shown) = spec.and_then(|spec| serde_json::from_str::<Shown<'_>>(spec).ok()) else {
            return Ok(true);
        };
        let run_id = row.get_ref(RUN_ID)?.as_str_or_null().ok().flatten().unwrap_or_default();
        let session =
            filter.session_id.as_ref().is_none_or(|session| is_filled(&shown.session_id, session, run_id));
        Ok(session && filter.text.as_ref().is_none_or(|text| contains(&shown.query, text)))
    }
}

/// Whether a text contains another, ignoring case of ASCII letters.
fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    part.is_empty() || text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}
