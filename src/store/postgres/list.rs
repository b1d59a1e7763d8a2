//! Pages of listings. A record that cannot be read is named on its page, and the others are served.

use std::borrow::Cow;

use serde::Deserialize;

use super::conn::{Conn, Param, with};
use super::fault::Step;
use super::read::{self, TASK};
use super::row::{
    Loaded, REST, RUN_ID, SPEC, STORED, WHOLE, get, parsed, resting, status_number, trigger_flag, unsigned,
};
use crate::model::{AgentId, Occurrence, Run, RunStatus, ScheduleState, Task, TaskId, Timestamp};
use crate::store::pager::{Pager, below, cursor};
use crate::store::{Counted, Page, PageRequest, RunFilter};

/// Of runs in so few wanted states all are looked at and sorted; of more the listing is read from its end.
const FEW: u64 = 20_000;

/// How many entries of its index one page looks at, and at how many texts.
const LOOKED_AT: i64 = 10_000;
const READ: i64 = 2_000;

/// How many rows are read at once at most.
const CHUNK: usize = 1000;

/// How many rows to read now.
fn chunk<T>(pager: &Pager<T>) -> i64 {
    i64::try_from(pager.more().min(CHUNK)).unwrap_or(i64::MAX)
}

/// Tasks by name.
pub(super) async fn tasks(conn: &Conn, request: &PageRequest) -> Step<Page<(Task, ScheduleState)>> {
    let mut pager = Pager::new(request.limit)?;
    let after = cursor(request, 't', |name| TaskId::new(name).ok())?;
    let mut after = after.map_or_else(String::new, |name| name.to_string());
    loop {
        let chunk = chunk(&pager);
        let rows = conn.ask(tasks_sql(), with![after.clone(), chunk]).await?;
        for row in &rows {
            after = get(row, 0)?;
            if !pager.take(after.clone(), format!("t{after}"), read::read_task(row))? {
                return Ok(pager.page);
            }
        }
        if (rows.len() as i64) < chunk {
            return Ok(pager.page);
        }
    }
}

pub(super) fn tasks_sql() -> String {
    format!(
        "SELECT {TASK} FROM tasks t LEFT JOIN schedules c ON c.tid = t.tid
         WHERE t.task_id > $1 ORDER BY t.task_id LIMIT $2"
    )
}

/// Occurrences of a task, the newest first.
pub(super) async fn occurrences(
    conn: &Conn,
    task_id: &TaskId,
    request: &PageRequest,
) -> Step<Page<Occurrence>> {
    let mut pager = Pager::new(request.limit)?;
    let mut before = below(request, 'o')?;
    loop {
        let chunk = chunk(&pager);
        let rows = conn.ask(OCCURRENCES, with![task_id.to_string(), before, chunk]).await?;
        for row in &rows {
            before = get(row, 0)?;
            let name = format!("{task_id} at {}", super::row::at(before));
            let record = parsed("the occurrence", get(row, 1)?);
            if !pager.take(name, format!("o{before}"), record)? {
                return Ok(pager.page);
            }
        }
        if (rows.len() as i64) < chunk {
            return Ok(pager.page);
        }
    }
}

pub(super) const OCCURRENCES: &str =
    "SELECT o.due_at, o.record FROM task_names n JOIN occurrences o ON o.tid = n.tid
    WHERE n.name = $1 AND o.due_at < $2 ORDER BY o.due_at DESC LIMIT $3";

/// Runs, the newest first.
pub(super) async fn runs(conn: &Conn, filter: &RunFilter, request: &PageRequest) -> Step<Page<Run>> {
    let mut pager = Pager::new(request.limit)?;
    let before = below(request, 'r')?;
    let Some(mut look) = Look::of(conn, filter, before).await? else { return Ok(pager.page) };
    let end = if look.is_selective() { look.end(conn).await? } else { None };
    loop {
        let chunk = chunk(&pager);
        let (sql, with) = look.page(chunk);
        let rows = conn.ask(sql, with).await?;
        for row in &rows {
            look.below = get(row, 0)?;
            if !matches(get(row, SPEC)?, filter) {
                continue;
            }
            let run = Loaded::read(row).map(|loaded| loaded.run);
            if !pager.take(get(row, RUN_ID)?, format!("r{}", look.below), run)? {
                return Ok(pager.page);
            }
        }
        if (rows.len() as i64) < chunk {
            // Enough was looked at: who asks for more goes on from here.
            pager.page.next = end.map(|end| format!("r{end}"));
            return Ok(pager.page);
        }
    }
}

/// How many runs there are, up to a number.
pub(super) async fn count(conn: &Conn, filter: &RunFilter, most: u64) -> Step<Counted> {
    let up_to = |count: u64| Counted { count: count.min(most), exact: count <= most };
    let counted = RunFilter {
        task_id: filter.task_id.clone(),
        statuses: filter.statuses.clone(),
        ..RunFilter::default()
    };
    if *filter == counted {
        let counts = read::counts(conn, filter.task_id.as_ref()).await?;
        let wanted = counts.iter().filter(|(s, _)| filter.statuses.is_empty() || filter.statuses.contains(s));
        return Ok(up_to(wanted.map(|(_, n)| n).sum()));
    }
    let Some(mut look) = Look::of(conn, filter, i64::MAX).await? else { return Ok(up_to(0)) };
    let all = look.end(conn).await?.is_none();
    let wanted = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
    let (sql, with) = look.count(wanted);
    let rows = conn.ask(sql, with).await?;
    let mut found = 0;
    for row in &rows {
        found += if filter.text.is_none() {
            unsigned(get(row, 0)?)
        } else {
            u64::from(matches(get(row, 0)?, filter))
        };
    }
    let up_to = up_to(found);
    Ok(Counted { exact: up_to.exact && all, ..up_to })
}

/// Which entries are looked at: each kind lies in an index together, in the order of a listing.
#[derive(Debug, PartialEq, Eq)]
enum By {
    Session(Vec<u8>),
    Task(i64),
    Agent(i64),
    /// In these states, in which there are few.
    Few,
    All,
}

/// Where a listing looks.
struct Look<'f> {
    filter: &'f RunFilter,
    by: By,
    tid: Option<i64>,
    aid: Option<i64>,
    /// The number of the agent of what hosts execute themselves.
    host: Option<i64>,
    below: i64,
    from: i64,
}

impl<'f> Look<'f> {
    /// None if nothing can be found.
    async fn of(conn: &Conn, filter: &'f RunFilter, below: i64) -> Step<Option<Self>> {
        let (task, agent) = (filter.task_id.as_ref(), filter.agent_id.as_ref());
        let names =
            with![task.map(ToString::to_string), agent.map(ToString::to_string), AgentId::host().to_string()];
        let rows = conn.ask(NUMBERS, names).await?;
        let row = rows.first().ok_or_else(|| super::row::unreadable("names have no row"))?;
        let (tid, aid, host): (Option<i64>, Option<i64>, Option<i64>) =
            (get(row, 0)?, get(row, 1)?, get(row, 2)?);
        let missing = (task.is_some() && tid.is_none())
            || (agent.is_some() && aid.is_none())
            || (filter.owned == Some(true) && host.is_none());
        let Some((from, below)) = span(conn, filter, below).await?.filter(|_| !missing) else {
            return Ok(None);
        };
        let Some(few) = few(conn, filter).await? else { return Ok(None) };
        let by = match (&filter.session_id, tid, aid, host.filter(|_| filter.owned == Some(true))) {
            (Some(session), ..) => By::Session(session.as_bytes().to_vec()),
            _ if few => By::Few,
            (None, Some(tid), ..) => By::Task(tid),
            (None, None, Some(aid), _) | (None, None, None, Some(aid)) => By::Agent(aid),
            (None, None, None, None) => By::All,
        };
        Ok(Some(Self { filter, by, tid, aid, host, below, from }))
    }

    /// Whether some of what is looked at may be passed over.
    fn is_selective(&self) -> bool {
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
        } = self.filter;
        let by = &self.by;
        trigger.is_some()
            || created_after.is_some()
            || created_before.is_some()
            || text.is_some()
            || (!statuses.is_empty() && *by != By::Few)
            || (task_id.is_some() && !matches!(by, By::Task(_)))
            || (agent_id.is_some() && !matches!(by, By::Agent(_)))
            || session_id.as_ref().is_some_and(|session| session.len() >= PREFIX)
            || owned.is_some_and(|owned| self.host.is_some() && !(owned && matches!(by, By::Agent(_))))
    }

    /// Goes no further than one page may: answers how far that is, unless it is to the end.
    async fn end(&mut self, conn: &Conn) -> Step<Option<i64>> {
        if self.by == By::Few {
            return Ok(None);
        }
        let many = if self.filter.text.is_some() { READ } else { LOOKED_AT };
        let (mut with, by) = self.span();
        with.push(Box::new(many - 1));
        let sql =
            format!("SELECT s.rid FROM specs s WHERE {} LIMIT 1 OFFSET ${}", by.with_order(), with.len());
        let end = conn.ask(sql, with).await?.first().map(|row| get(row, 0)).transpose()?;
        self.from = end.unwrap_or(self.from);
        Ok(end)
    }

    /// The part of an index that is looked at.
    fn span(&self) -> (Vec<Param>, Span) {
        let mut with: Vec<Param> = with![self.below, self.from];
        let column = match &self.by {
            By::Session(session) => {
                with.push(Box::new(session[..session.len().min(PREFIX)].to_vec()));
                SESSION
            }
            By::Task(tid) => {
                with.push(Box::new(*tid));
                "s.tid"
            }
            By::Agent(aid) => {
                with.push(Box::new(*aid));
                "s.aid"
            }
            By::Few | By::All => {
                let conditions = "s.rid < $1 AND s.rid >= $2".to_owned();
                return (with, Span { conditions, order: "s.rid DESC".to_owned() });
            }
        };
        // As rows, so that both ends are found in the index, and no other index has this order.
        let conditions = format!("({column}, s.rid) < ($3, $1) AND ({column}, s.rid) >= ($3, $2)");
        (with, Span { conditions, order: format!("{column} DESC, s.rid DESC") })
    }

    /// The conditions of the filter, with their values; and whether they look at what changes of a run.
    fn conditions(&self) -> (Vec<Param>, Span, bool) {
        let (mut with, mut span) = self.span();
        let filter = self.filter;
        let mut and = |condition: &str, value: Param| {
            with.push(value);
            span.conditions += &format!(" AND {}", condition.replace("$?", &format!("${}", with.len())));
        };
        if let Some(tid) = self.tid.filter(|_| !matches!(self.by, By::Task(_))) {
            and("s.tid = $?", Box::new(tid));
        }
        if let Some(aid) = self.aid {
            and("s.aid = $?", Box::new(aid));
        }
        match (filter.owned, self.host) {
            (Some(true), Some(host)) => and("s.aid = $?", Box::new(host)),
            (Some(false), Some(host)) => and("s.aid <> $?", Box::new(host)),
            _ => {}
        }
        if let Some(session) = &filter.session_id {
            and("s.session = $?", Box::new(session.as_bytes().to_vec()));
        }
        if let Some(from) = filter.created_after {
            and("s.queued_at >= $?", Box::new(from.ms()));
        }
        if let Some(until) = filter.created_before {
            and("s.queued_at < $?", Box::new(until.ms()));
        }
        if let Some(part) = filter.text.as_deref().and_then(escaped) {
            // Finds it anywhere in the record; what is shown is looked at again.
            and("strpos(lower(s.spec COLLATE \"C\"), lower($?::text COLLATE \"C\")) > 0", Box::new(part));
        }
        if !filter.statuses.is_empty() {
            let numbers: Vec<i16> = filter.statuses.iter().copied().map(status_number).collect();
            and("r.status = ANY($?)", Box::new(numbers));
        }
        if let Some(trigger) = filter.trigger {
            and("r.flags & 3 = $?", Box::new(trigger_flag(trigger)));
        }
        let of_runs = !filter.statuses.is_empty() || filter.trigger.is_some();
        (with, span, of_runs)
    }

    /// The statement of a page.
    fn page(&self, chunk: i64) -> (String, Vec<Param>) {
        let (mut with, span, _) = self.conditions();
        with.push(Box::new(chunk));
        let (few, from) = match self.by {
            By::Few => {
                let few = format!("WITH few AS MATERIALIZED ({}) ", those(self.filter));
                (few, "few JOIN runs r ON r.rid = few.rid")
            }
            _ => (String::new(), "runs r"),
        };
        let sql = format!(
            "{few}SELECT {STORED}, {REST} FROM {from} {WHOLE} WHERE {} LIMIT ${}",
            span.with_order(),
            with.len()
        );
        (sql, with)
    }

    /// The statement that counts; where a text is looked for, the one that reads what may have it.
    fn count(&self, most: i64) -> (String, Vec<Param>) {
        let (mut with, span, of_runs) = self.conditions();
        let from = match self.by {
            By::Few => {
                let few = those(self.filter);
                format!("({few}) few JOIN runs r ON r.rid = few.rid JOIN specs s ON s.rid = few.rid")
            }
            _ if of_runs => "specs s JOIN runs r ON r.rid = s.rid".to_owned(),
            _ => "specs s".to_owned(),
        };
        let conditions = span.with_order();
        if self.filter.text.is_some() {
            // What is looked at is bounded, and not all of it may have the text where it is shown.
            return (format!("SELECT s.spec FROM {from} WHERE {conditions}"), with);
        }
        with.push(Box::new(most));
        let limit = with.len();
        (format!("SELECT count(*) FROM (SELECT 1 FROM {from} WHERE {conditions} LIMIT ${limit}) x"), with)
    }
}

/// Conditions, and the order in which their index has what meets them.
struct Span {
    conditions: String,
    order: String,
}

impl Span {
    fn with_order(&self) -> String {
        format!("{} ORDER BY {}", self.conditions, self.order)
    }
}

const NUMBERS: &str = "SELECT (SELECT tid FROM task_names WHERE name = $1::text),
    (SELECT aid FROM agent_names WHERE name = $2::text), (SELECT aid FROM agent_names WHERE name = $3::text)";

/// What of a session is in its index: an entry of one has a bounded size.
const PREFIX: usize = 128;
const SESSION: &str = "substring(s.session FROM 1 FOR 128)";

/// Between which numbers the runs are that were queued when the filter says; none if there are none.
async fn span(conn: &Conn, filter: &RunFilter, below: i64) -> Step<Option<(i64, i64)>> {
    if filter.created_after.is_none() && filter.created_before.is_none() {
        return Ok(Some((0, below)));
    }
    let from = filter.created_after.map_or(i64::MIN, Timestamp::ms);
    let until = filter.created_before.map_or(i64::MAX, Timestamp::ms);
    let rows = conn.ask(MARKS, with![below / MARK, from, until]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (Some(first), Some(last)) = (get::<Option<i64>>(row, 0)?, get::<Option<i64>>(row, 1)?) else {
        return Ok(None);
    };
    Ok(Some((first * MARK, below.min((last + 1).saturating_mul(MARK)))))
}

/// How many runs share a mark.
pub(super) const MARK: i64 = 4096;

const MARKS: &str = "SELECT min(mark), max(mark) FROM marks
    WHERE mark <= $1 AND last_at >= $2 AND first_at < $3";

/// Whether only few runs are in the wanted states; none if there are none at all.
async fn few(conn: &Conn, filter: &RunFilter) -> Step<Option<bool>> {
    if filter.statuses.is_empty() {
        return Ok(Some(false));
    }
    let wanted = |counts: Vec<(RunStatus, u64)>| -> u64 {
        counts.iter().filter(|(status, _)| filter.statuses.contains(status)).map(|(_, n)| n).sum()
    };
    let all = wanted(read::counts(conn, None).await?);
    let own = match &filter.task_id {
        Some(task_id) => wanted(read::counts(conn, Some(task_id)).await?),
        None => all,
    };
    Ok((own > 0).then_some(all <= FEW))
}

/// The runs in the wanted states, each from the index that holds it.
fn those(filter: &RunFilter) -> String {
    let part = |of: &dyn Fn(RunStatus) -> bool, index: &str| -> Option<String> {
        let numbers: Vec<String> =
            filter.statuses.iter().filter(|status| of(**status)).map(|s| s.number().to_string()).collect();
        (!numbers.is_empty())
            .then(|| format!("SELECT rid FROM runs WHERE {}", index.replace('?', &numbers.join(", "))))
    };
    let mut parts = vec![
        part(&|status| resting(status).is_some(), "resting IS NOT NULL AND resting IN (?)"),
        part(&|status| status.is_held(), "wake_at IS NOT NULL AND status IN (?)"),
    ];
    // Each place where runs wait has an index of its own.
    parts.extend(
        ["place = 1", "place = 2", "place = 3", "place >= 4"]
            .map(|place| part(&|status| status.is_waiting(), &format!("{place} AND status IN (?)"))),
    );
    parts.into_iter().flatten().collect::<Vec<_>>().join(" UNION ALL ")
}

/// A text as it stands within JSON.
fn escaped(text: &str) -> Option<String> {
    let quoted = serde_json::to_string(text).ok()?;
    Some(quoted.get(1..quoted.len().checked_sub(1)?)?.to_owned())
}

/// The part of a specification that a filter looks at.
#[derive(Deserialize)]
struct Shown<'a> {
    #[serde(borrow)]
    query: Cow<'a, str>,
}

/// Whether the text of a specification is one that the filter lets through, as far as a statement cannot tell.
fn matches(spec: &str, filter: &RunFilter) -> bool {
    let Some(text) = &filter.text else { return true };
    // Nothing is known of what cannot be read: it is shown as such.
    serde_json::from_str::<Shown<'_>>(spec).map_or(true, |shown| contains(&shown.query, text))
}

/// Whether a text contains another, ignoring case of ASCII letters.
fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    part.is_empty() || text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}
