//! Pages of listings. A record that cannot be read is named on its page, and the others are served.

use std::borrow::Cow;

use serde::Deserialize;
use tokio_postgres::Row;

use super::conn::{Conn, Param, with};
use super::fault::{Fault, Step};
use super::load::task_id as read_task_id;
use super::read::{self, TASK};
use super::row::{COLUMNS, Loaded, REST, STORED, WHOLE, get, parsed, resting, status_number, trigger_flag};
use crate::model::{AgentId, Occurrence, Run, RunStatus, ScheduleState, Task, TaskId};
use crate::store::{Page, PageRequest, RunFilter};

/// Of runs in so few wanted states all are looked at and sorted; of more the listing is read from its end.
const FEW: u64 = 20_000;

/// How many rows are read at once at most.
const CHUNK: usize = 1000;

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

    /// How many rows to read now.
    fn chunk(&self) -> i64 {
        let taken = self.page.items.len() + self.page.corrupt.len();
        let chunk = self.limit.saturating_sub(taken).saturating_add(1).min(CHUNK);
        i64::try_from(chunk).unwrap_or(i64::MAX)
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
pub(super) async fn tasks(conn: &Conn, request: &PageRequest) -> Step<Page<(Task, ScheduleState)>> {
    let mut pager = Pager::new(request)?;
    let mut after = match &request.cursor {
        Some(cursor) => {
            let name = cursor.strip_prefix('t').filter(|name| read_task_id(name).is_ok());
            name.ok_or_else(|| foreign(cursor))?.to_owned()
        }
        None => String::new(),
    };
    loop {
        let chunk = pager.chunk();
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
    let mut pager = Pager::new(request)?;
    let mut before = number(request, 'o', i64::MAX)?;
    loop {
        let chunk = pager.chunk();
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
    let mut pager = Pager::new(request)?;
    let mut before = number(request, 'r', i64::MAX)?;
    let Some(few) = few(conn, filter).await? else { return Ok(pager.page) };
    loop {
        let chunk = pager.chunk();
        let (sql, with) = query(filter, few, before, chunk);
        let rows = conn.ask(sql, with).await?;
        for row in &rows {
            before = get(row, 0)?;
            if !matches(row, filter)? {
                continue;
            }
            let run = Loaded::read(row).map(|loaded| loaded.run);
            if !pager.take(get(row, 20)?, format!("r{before}"), run)? {
                return Ok(pager.page);
            }
        }
        if (rows.len() as i64) < chunk {
            return Ok(pager.page);
        }
    }
}

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

/// The statement of a filter.
pub(super) fn query(filter: &RunFilter, few: bool, before: i64, chunk: i64) -> (String, Vec<Param>) {
    let mut with: Vec<Param> = with![before, chunk];
    let mut conditions = String::from("s.rid < $1");
    let mut and = |condition: &str, value: Param| {
        with.push(value);
        conditions += &format!(" AND {}", condition.replace("$?", &format!("${}", with.len())));
    };
    if let Some(task_id) = &filter.task_id {
        and("s.tid = (SELECT tid FROM task_names WHERE name = $?)", Box::new(task_id.to_string()));
    }
    if let Some(agent_id) = &filter.agent_id {
        and("s.aid = (SELECT aid FROM agent_names WHERE name = $?)", Box::new(agent_id.to_string()));
    }
    match filter.owned {
        Some(true) => {
            and(
                "s.aid = (SELECT aid FROM agent_names WHERE name = $?)",
                Box::new(AgentId::host().to_string()),
            );
        }
        Some(false) => {
            let other = "s.aid IS DISTINCT FROM (SELECT aid FROM agent_names WHERE name = $?)";
            and(other, Box::new(AgentId::host().to_string()));
        }
        None => {}
    }
    if !filter.statuses.is_empty() {
        let numbers: Vec<i16> = filter.statuses.iter().copied().map(status_number).collect();
        and("r.status = ANY($?)", Box::new(numbers));
    }
    if let Some(session) = &filter.session_id {
        and("s.session = $?", Box::new(session.as_bytes().to_vec()));
    }
    if let Some(trigger) = filter.trigger {
        and("r.flags & 3 = $?", Box::new(trigger_flag(trigger)));
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
    let sql = if few {
        format!(
            "WITH few AS MATERIALIZED ({}) SELECT {STORED}, {REST} FROM few JOIN runs r ON r.rid = few.rid {WHOLE}
             WHERE {conditions} ORDER BY r.rid DESC LIMIT $2",
            those(filter)
        )
    } else {
        format!("SELECT {STORED}, {REST} FROM runs r {WHOLE} WHERE {conditions} ORDER BY s.rid DESC LIMIT $2")
    };
    (sql, with)
}

/// The runs in the wanted states, each from the index that holds it.
fn those(filter: &RunFilter) -> String {
    let part = |of: &dyn Fn(RunStatus) -> bool, index: &str| -> Option<String> {
        let numbers: Vec<String> =
            filter.statuses.iter().filter(|status| of(**status)).map(|s| s.number().to_string()).collect();
        (!numbers.is_empty())
            .then(|| format!("SELECT rid FROM runs WHERE {}", index.replace('?', &numbers.join(", "))))
    };
    let parts = [
        part(&|status| resting(status).is_some(), "resting IS NOT NULL AND resting IN (?)"),
        part(&|status| status.is_held(), "wake_at IS NOT NULL AND status IN (?)"),
        part(&|status| status.is_waiting(), "place <> 0 AND status IN (?)"),
    ];
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

fn matches(row: &Row, filter: &RunFilter) -> Step<bool> {
    debug_assert!(row.len() >= COLUMNS, "a whole run");
    let Some(text) = &filter.text else { return Ok(true) };
    // Nothing is known of what cannot be read: it is shown as such.
    let Ok(shown) = serde_json::from_str::<Shown<'_>>(get(row, 29)?) else { return Ok(true) };
    Ok(contains(&shown.query, text))
}

/// Whether a text contains another, ignoring case of ASCII letters.
fn contains(text: &str, part: &str) -> bool {
    let (text, part) = (text.as_bytes(), part.as_bytes());
    part.is_empty() || text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}
