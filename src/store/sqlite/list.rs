//! Pages of listings. A record that cannot be read is named on its page, and the others are served.

use std::borrow::Cow;
use std::collections::hash_map::Entry;

use foldhash::HashMap;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use serde::Deserialize;

use super::fault::Step;
use super::hot::columns;
use super::parts::is_filled;
use super::read::{self, TASK};
use super::row::{Loaded, RUN_ID, SPECS, parsed, spec_text, trigger_flag};
use super::session;
use super::tx::{MARK, agent_number, task_number};
use crate::model::{AgentId, Occurrence, Run, RunStatus, ScheduleState, Task, TaskId, Timestamp};
use crate::store::pager::{Pager, below, cursor};
use crate::store::{Counted, Page, PageRequest, RunFilter};

/// Of runs in so few wanted states all are looked at and sorted; of more the listing is read from its end.
const FEW: u64 = 20_000;

/// Of how many runs a page looks at columns, and of how many at the texts of their specifications.
const LOOKED_AT: i64 = 20_000;
const READ: i64 = 8_000;

/// Tasks by name.
pub(super) fn tasks(conn: &Connection, request: &PageRequest) -> Step<Page<(Task, ScheduleState)>> {
    let after = cursor(request, 't', |name| TaskId::new(name).ok())?;
    let after = after.as_ref().map_or("", TaskId::as_str);
    let sql = format!("SELECT {TASK} {TASKS}");
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query([after])?;
    let mut pager = Pager::new(request.limit)?;
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
    let mut pager = Pager::new(request.limit)?;
    let before = below(request, 'o')?;
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
    let mut pager = Pager::new(request.limit)?;
    let before = below(request, 'r')?;
    let Some(query) = Query::of(conn, filter, before, false)? else { return Ok(pager.page) };
    let mut seen = Seen::of(filter);
    let mut select = conn.prepare_cached(&query.page())?;
    let mut rows = select.query(params_from_iter(query.params))?;
    while let Some(row) = rows.next()? {
        if !seen.passes(row.get(PART)?, text(row, RUN_ID)?, || spec_text(row))? {
            continue;
        }
        let cursor = format!("r{}", row.get::<_, i64>(0)?);
        let run = Loaded::read(row).and_then(|loaded| loaded.with_result(conn)).map(|loaded| loaded.run);
        if !pager.take(row.get(RUN_ID)?, cursor, run)? {
            return Ok(pager.page);
        }
    }
    // Enough was looked at: who asks for more goes on from here.
    pager.page.next = query.floor.map(|floor| format!("r{floor}"));
    Ok(pager.page)
}

/// How many runs there are, up to a number.
pub(super) fn count(conn: &Connection, filter: &RunFilter, most: u64) -> Step<Counted> {
    let counted = |count: u64, all: bool| Counted { count: count.min(most), exact: all && count <= most };
    let kept = RunFilter {
        task_id: filter.task_id.clone(),
        statuses: filter.statuses.clone(),
        ..RunFilter::default()
    };
    if *filter == kept {
        let counts = read::counts(conn, filter.task_id.as_ref())?;
        let wanted = counts.iter().filter(|(s, _)| filter.statuses.is_empty() || filter.statuses.contains(s));
        return Ok(counted(wanted.map(|(_, n)| n).sum(), true));
    }
    let Some(query) = Query::of(conn, filter, i64::MAX, true)? else { return Ok(counted(0, true)) };
    let mut seen = Seen::of(filter);
    let mut found = 0;
    let mut select = conn.prepare_cached(&query.looking(seen.looks()))?;
    let mut rows = select.query(params_from_iter(query.params))?;
    while let Some(row) = rows.next()? {
        let spec = || Ok(text(row, 2)?.or(text(row, 3)?));
        found += u64::from(!seen.looks() || seen.passes(row.get(0)?, text(row, 1)?, spec)?);
        if found > most {
            break;
        }
    }
    Ok(counted(found, query.floor.is_none()))
}

/// The column of the common part in those of a run.
const PART: usize = 13;

fn text<'r>(row: &'r Row<'_>, column: usize) -> Step<Option<&'r str>> {
    row.get_ref(column)?.as_str_or_null().map_err(super::row::odd)
}

/// The index that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Session(i64),
    /// Only few runs are in the wanted states: all have ended, or all are held.
    Ended,
    Held,
    Task(i64),
    Agent(i64),
    Number,
}

impl By {
    fn index(self) -> &'static str {
        match self {
            Self::Session(_) => "INDEXED BY runs_of_session",
            Self::Ended => "INDEXED BY runs_ended",
            Self::Held => "INDEXED BY runs_wake",
            Self::Task(_) => "INDEXED BY runs_of_task",
            Self::Agent(_) => "INDEXED BY runs_of_agent",
            Self::Number => "",
        }
    }

    /// What it finds, or what a partial index needs to see to be used.
    fn condition(self) -> Option<(&'static str, Option<i64>)> {
        match self {
            Self::Session(digest) => Some(("r.session =", Some(digest))),
            Self::Ended => Some(("r.finished_at IS NOT NULL", None)),
            Self::Held => Some(("r.wake_at IS NOT NULL", None)),
            Self::Task(tid) => Some(("r.tid =", Some(tid))),
            Self::Agent(aid) => Some(("r.aid =", Some(aid))),
            Self::Number => None,
        }
    }
}

/// The statement of a filter.
pub(super) struct Query {
    from: String,
    conditions: String,
    params: Vec<Value>,
    /// The last run that is looked at; none if all are.
    floor: Option<i64>,
}

impl Query {
    /// None if nothing can be found. What counts is bounded also where a page ends when it is full.
    pub(super) fn of(conn: &Connection, filter: &RunFilter, before: i64, counts: bool) -> Step<Option<Self>> {
        let Some(numbers) = Numbers::of(conn, filter)? else { return Ok(None) };
        let Some((from, below)) = span(conn, filter, before)? else { return Ok(None) };
        let Some(by) = by(conn, filter, &numbers)? else { return Ok(None) };
        let mut query = Self {
            from: format!("runs r {}", by.index()),
            conditions: "r.rid < ?1".to_owned(),
            params: vec![below.into()],
            floor: None,
        };
        if !matches!(by, By::Ended | By::Held) && (counts || is_selective(filter, &numbers, by)) {
            query.floor = floor(conn, filter, by, below, from)?;
        }
        if let Some(from) = query.floor.or((from > 0).then_some(from)) {
            query.and("r.rid >=", from);
        }
        if let Some((condition, value)) = by.condition() {
            query.is(condition, value);
        }
        if let (By::Session(_), Some(own)) = (by, numbers.own) {
            query.with_own(own);
        }
        query.narrow(filter, &numbers, by);
        Ok(Some(query))
    }

    /// The conditions that the index does not meet by itself.
    fn narrow(&mut self, filter: &RunFilter, numbers: &Numbers, by: By) {
        if let Some(tid) = numbers.tid.filter(|_| !matches!(by, By::Task(_))) {
            self.and("r.tid =", tid);
        }
        if let Some(aid) = numbers.aid.filter(|aid| by != By::Agent(*aid)) {
            self.and("r.aid =", aid);
        }
        match (filter.owned, numbers.host) {
            (Some(true), Some(host)) => self.and("r.aid =", host),
            (Some(false), Some(host)) => self.and("r.aid <>", host),
            _ => {}
        }
        if !filter.statuses.is_empty() {
            let numbers: Vec<String> = filter.statuses.iter().map(|s| s.number().to_string()).collect();
            self.conditions += &format!(" AND r.status IN ({})", numbers.join(", "));
        }
        if let Some(trigger) = filter.trigger {
            self.and("r.flags & 3 =", trigger_flag(trigger));
        }
        if let Some(from) = filter.created_after {
            self.and("r.queued_at >=", from.ms());
        }
        if let Some(until) = filter.created_before {
            self.and("r.queued_at <", until.ms());
        }
    }

    /// The run that has the session for itself is among those of its name.
    fn with_own(&mut self, own: i64) {
        self.params.push(own.into());
        self.from = format!(
            "(SELECT r.rid FROM {} WHERE {} UNION ALL SELECT rid FROM runs WHERE rid = ?{}) c
             CROSS JOIN runs r ON r.rid = c.rid",
            self.from,
            self.conditions,
            self.params.len()
        );
        self.conditions = "r.rid < ?1".to_owned();
        if let Some(floor) = self.floor {
            self.and("r.rid >=", floor);
        }
    }

    fn and(&mut self, condition: &str, value: i64) {
        self.is(condition, Some(value));
    }

    fn is(&mut self, condition: &str, value: Option<i64>) {
        self.conditions += &format!(" AND {condition}");
        if let Some(value) = value {
            self.params.push(value.into());
            self.conditions += &format!(" ?{}", self.params.len());
        }
    }

    /// The statement that reads runs.
    pub(super) fn page(&self) -> String {
        let Self { from, conditions, .. } = self;
        format!("SELECT {} FROM {from} {SPECS} WHERE {conditions} ORDER BY r.rid DESC", columns())
    }

    /// The statement that only looks at them.
    fn looking(&self, at_texts: bool) -> String {
        let Self { from, conditions, .. } = self;
        if at_texts {
            return format!(
                "SELECT r.part, r.run_id, s.spec, p.spec FROM {from} {SPECS} WHERE {conditions} ORDER BY r.rid DESC"
            );
        }
        format!("SELECT 1 FROM {from} WHERE {conditions} ORDER BY r.rid DESC")
    }
}

/// The numbers of what a filter names.
struct Numbers {
    tid: Option<i64>,
    aid: Option<i64>,
    /// The agent of what hosts execute themselves.
    host: Option<i64>,
    /// The run that has the session for itself.
    own: Option<i64>,
}

impl Numbers {
    /// None if something is named of which there is nothing.
    fn of(conn: &Connection, filter: &RunFilter) -> Step<Option<Self>> {
        let tid = filter.task_id.as_ref().map(|task_id| task_number(conn, task_id)).transpose()?;
        let aid = filter.agent_id.as_ref().map(|agent_id| agent_number(conn, agent_id)).transpose()?;
        let host = if filter.owned.is_some() { agent_number(conn, &AgentId::host())? } else { None };
        if tid == Some(None) || aid == Some(None) || (filter.owned == Some(true) && host.is_none()) {
            return Ok(None);
        }
        let own = match filter.session_id.as_deref().and_then(session::run_of) {
            Some(run_id) => conn.prepare_cached(OWN)?.query_row([run_id], |row| row.get(0)).optional()?,
            None => None,
        };
        Ok(Some(Self { tid: tid.flatten(), aid: aid.flatten(), host, own }))
    }
}

pub(super) const OWN: &str = "SELECT rid FROM runs WHERE run_id = ?1 AND session IS NULL";

/// Which index is read; none if nothing can be found.
fn by(conn: &Connection, filter: &RunFilter, numbers: &Numbers) -> Step<Option<By>> {
    let few = match few(conn, filter, numbers.tid)? {
        Wanted::None => return Ok(None),
        Wanted::Few(by) => Some(by),
        Wanted::Many => None,
    };
    let owned = numbers.host.filter(|_| filter.owned == Some(true));
    Ok(Some(match (filter.session_id.as_deref(), few, numbers.tid, numbers.aid.or(owned)) {
        (Some(session), ..) => By::Session(session::fnv(session)),
        (None, Some(few), ..) => few,
        (None, None, Some(tid), _) => By::Task(tid),
        (None, None, None, Some(aid)) => By::Agent(aid),
        (None, None, None, None) => By::Number,
    }))
}

/// Between which numbers the runs are that were queued when the filter says; none if there are none.
fn span(conn: &Connection, filter: &RunFilter, before: i64) -> Step<Option<(i64, i64)>> {
    if filter.created_after.is_none() && filter.created_before.is_none() {
        return Ok(Some((0, before)));
    }
    let from = filter.created_after.map_or(i64::MIN, Timestamp::ms);
    let until = filter.created_before.map_or(i64::MAX, Timestamp::ms);
    let mut select = conn.prepare_cached(MARKS)?;
    let read = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?));
    let (Some(first), Some(last)) = select.query_row([before / MARK, from, until], read)? else {
        return Ok(None);
    };
    Ok(Some((first * MARK, before.min((last + 1).saturating_mul(MARK)))))
}

pub(super) const MARKS: &str = "SELECT min(mark), max(mark) FROM marks
    WHERE mark <= ?1 AND last_at >= ?2 AND first_at < ?3";

/// Whether some of what an index has may be passed over.
fn is_selective(filter: &RunFilter, numbers: &Numbers, by: By) -> bool {
    let RunFilter {
        task_id,
        agent_id,
        session_id,
        statuses,
        trigger,
        created_after,
        created_before,
        text,
        owned,
    } = filter;
    session_id.is_some()
        || text.is_some()
        || trigger.is_some()
        || created_after.is_some()
        || created_before.is_some()
        || !statuses.is_empty()
        || (task_id.is_some() && !matches!(by, By::Task(_)))
        || (agent_id.is_some() && !matches!(by, By::Agent(_)))
        || owned.is_some_and(|owned| numbers.host.is_some() && !(owned && matches!(by, By::Agent(_))))
}

/// How far down the index is read.
fn floor(conn: &Connection, filter: &RunFilter, by: By, below: i64, from: i64) -> Step<Option<i64>> {
    let many = if filter.text.is_some() || filter.session_id.is_some() { READ } else { LOOKED_AT };
    let mut params = vec![below, from, many - 1];
    let condition = by.condition();
    params.extend(condition.and_then(|(_, value)| value));
    let sql = floor_sql(by.index(), condition.map(|(condition, _)| condition));
    Ok(conn.prepare_cached(&sql)?.query_row(params_from_iter(params), |row| row.get(0)).optional()?)
}

fn floor_sql(index: &str, condition: Option<&str>) -> String {
    let condition = condition.map_or(String::new(), |condition| format!(" AND {condition} ?4"));
    format!(
        "SELECT r.rid FROM runs r {index} WHERE r.rid < ?1 AND r.rid >= ?2{condition}
         ORDER BY r.rid DESC LIMIT 1 OFFSET ?3"
    )
}

/// The statements that find how far an index is read, each with the index.
#[cfg(test)]
pub(super) fn floors() -> [(String, &'static str); 4] {
    [
        (By::Number, "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        (By::Task(0), "runs_of_task (tid=? AND rowid>? AND rowid<?)"),
        (By::Agent(0), "runs_of_agent (aid=? AND rowid>? AND rowid<?)"),
        (By::Session(0), "runs_of_session (session=? AND rowid>? AND rowid<?)"),
    ]
    .map(|(by, plan)| (floor_sql(by.index(), by.condition().map(|(condition, _)| condition)), plan))
}

/// How many runs are in the wanted states.
enum Wanted {
    None,
    Few(By),
    Many,
}

fn few(conn: &Connection, filter: &RunFilter, tid: Option<i64>) -> Step<Wanted> {
    if filter.statuses.is_empty() {
        return Ok(Wanted::Many);
    }
    let wanted = |counts: Vec<(RunStatus, u64)>| -> u64 {
        counts.iter().filter(|(status, _)| filter.statuses.contains(status)).map(|(_, n)| n).sum()
    };
    let all = wanted(read::counts(conn, None)?);
    let own = match (&filter.task_id, tid) {
        (Some(task_id), Some(_)) => wanted(read::counts(conn, Some(task_id))?),
        _ => all,
    };
    Ok(if own == 0 {
        Wanted::None
    } else if all > FEW {
        Wanted::Many
    } else if filter.statuses.iter().all(|status| status.is_terminal()) {
        Wanted::Few(By::Ended)
    } else if filter.statuses.iter().all(|status| status.is_held()) {
        Wanted::Few(By::Held)
    } else {
        Wanted::Many
    })
}

/// The parts of a specification that a filter looks at.
#[derive(Deserialize)]
struct Shown<'a> {
    #[serde(borrow)]
    session_id: Cow<'a, str>,
    #[serde(borrow)]
    query: Cow<'a, str>,
}

/// What was seen of specifications: what many runs have in common is looked at once.
struct Seen<'f> {
    filter: &'f RunFilter,
    /// The session, and whether the text is in it; none if it cannot be read.
    parts: HashMap<i64, Option<(Box<str>, bool)>>,
}

impl<'f> Seen<'f> {
    fn of(filter: &'f RunFilter) -> Self {
        Self { filter, parts: HashMap::default() }
    }

    /// Whether specifications are looked at.
    fn looks(&self) -> bool {
        self.filter.session_id.is_some() || self.filter.text.is_some()
    }

    fn passes<'r>(
        &mut self,
        part: Option<i64>,
        run_id: Option<&str>,
        spec: impl FnOnce() -> Step<Option<&'r str>>,
    ) -> Step<bool> {
        if !self.looks() {
            return Ok(true);
        }
        let filter = self.filter;
        let look = |spec: Option<&str>| {
            let shown = serde_json::from_str::<Shown<'_>>(spec?).ok()?;
            let has_text = filter.text.as_ref().is_none_or(|text| contains(&shown.query, text));
            Some((Box::from(&*shown.session_id), has_text))
        };
        let alone;
        let shown = match part {
            None => {
                alone = look(spec().unwrap_or(None));
                &alone
            }
            Some(part) => match self.parts.entry(part) {
                Entry::Occupied(known) => &*known.into_mut(),
                Entry::Vacant(new) => &*new.insert(look(spec().unwrap_or(None))),
            },
        };
        // Nothing is known of what cannot be read: it is shown as such.
        let Some((session, has_text)) = shown else { return Ok(true) };
        let run_id = run_id.unwrap_or_default();
        Ok(*has_text && filter.session_id.as_ref().is_none_or(|wanted| is_filled(session, wanted, run_id)))
    }
}

/// Whether a text contains another, ignoring case of ASCII letters.
fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    part.is_empty() || text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}
