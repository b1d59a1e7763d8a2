//! Pages of listings. A record that cannot be read is named on its page, and the others are served.

use std::sync::Arc;

use mongodb::bson::{Bson, Document, doc};

use super::doc::{self, Fields as _};
use super::fault::Step;
use super::link::{Ask, Db, Tx, name};
use super::told;
use crate::model::{AgentId, Occurrence, Run, RunStatus, ScheduleState, Task, TaskId, Timestamp};
use crate::store::memory::page::matches;
use crate::store::pager::{Pager, below, cursor};
use crate::store::{Counted, Page, PageRequest, RunFilter};

/// How many runs a page looks at.
const LOOKED_AT: usize = 4000;
/// How many are read at once.
const CHUNK: usize = 500;

/// Tasks by name.
pub(super) async fn tasks(db: &Db, request: &PageRequest) -> Step<Page<(Task, ScheduleState)>> {
    let mut pager = Pager::new(request.limit)?;
    let after = cursor(request, 't', |name| TaskId::new(name).ok())?;
    let after = after.as_ref().map_or("", TaskId::as_str);
    let ask = Ask::sort(doc! { "_id": 1 }).limit(pager.more()).by_id();
    for task in &db.find(name::TASKS, doc! { "_id": { "$gt": after } }, ask).await? {
        let name = task.word("_id")?;
        if !pager.take(name.to_owned(), format!("t{name}"), told::to_task(task))? {
            break;
        }
    }
    Ok(pager.page)
}

/// Occurrences of a task, the newest first.
pub(super) async fn occurrences(db: &Db, task_id: &TaskId, request: &PageRequest) -> Step<Page<Occurrence>> {
    let mut pager = Pager::new(request.limit)?;
    let filter = doc! { "t": task_id.as_str(), "due": { "$lt": below(request, 'o')? } };
    let ask = Ask::sort(doc! { "due": -1 }).limit(pager.more());
    for occurrence in &db.find(name::OCCURRENCES, filter, ask).await? {
        let due = occurrence.number("due")?;
        let name = format!("{task_id} at {}", Timestamp::from_ms(due));
        if !pager.take(name, format!("o{due}"), told::to_occurrence(occurrence))? {
            break;
        }
    }
    Ok(pager.page)
}

/// Runs, the newest first, of one snapshot.
pub(super) async fn runs(db: Arc<Db>, filter: &RunFilter, request: &PageRequest) -> Step<Page<Run>> {
    let mut pager = Pager::new(request.limit)?;
    let before = below(request, 'r')?;
    let mut tx = Tx::begin(&db).await?;
    let looked = look(&mut tx, filter, before, &mut pager).await;
    tx.done(looked).await?;
    Ok(pager.page)
}

/// How many runs are read at once to be counted, and how often.
const COUNTED: usize = 1000;
const MOST_PAGES: usize = 10;

/// How many runs there are, up to a number.
pub(super) async fn count(db: Arc<Db>, filter: &RunFilter, most: u64) -> Step<Counted> {
    let (mut count, mut cursor) = (0_u64, None);
    for _ in 0..MOST_PAGES {
        // One more than is wanted, to know whether there are others.
        let limit = usize::try_from((most - count).saturating_add(1)).unwrap_or(COUNTED).min(COUNTED);
        let page = runs(Arc::clone(&db), filter, &PageRequest { limit, cursor }).await?;
        count += (page.items.len() + page.corrupt.len()) as u64;
        if count > most {
            return Ok(Counted { count: most, exact: false });
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(Counted { count, exact: true });
        }
    }
    Ok(Counted { count, exact: false })
}

async fn look(tx: &mut Tx, filter: &RunFilter, mut before: i64, pager: &mut Pager<Run>) -> Step<()> {
    let text = filter.text.as_ref().map(|text| text.to_ascii_lowercase());
    let conditions = conditions(filter);
    // What the queries ask for is all that the filter lets through, unless it looks at what only the record says.
    let exact = is_exact(filter);
    let mut looked_at = 0;
    while looked_at < LOOKED_AT {
        let chunk = if exact { pager.more().min(CHUNK) } else { CHUNK };
        let found = newest(tx, filter, &conditions, before, chunk).await?;
        for run in &found {
            before = run.number("n")?;
            looked_at += 1;
            let read = doc::to_run(run).map(|(_, run)| run);
            if read.as_ref().is_ok_and(|run| !matches(filter, text.as_deref(), run)) {
                continue;
            }
            if !pager.take(run.word("_id")?.to_owned(), format!("r{before}"), read)? {
                return Ok(());
            }
        }
        if found.len() < chunk {
            return Ok(());
        }
    }
    // Enough was looked at: who asks for more goes on from here.
    pager.page.next = Some(format!("r{before}"));
    Ok(())
}

/// The newest runs below a number. Of several states each is looked for by its index.
async fn newest(
    tx: &mut Tx,
    filter: &RunFilter,
    conditions: &Document,
    before: i64,
    most: usize,
) -> Step<Vec<Document>> {
    let ask = Ask::sort(doc! { "n": -1 }).limit(most);
    let query = || {
        let mut query = conditions.clone();
        query.insert("n", doc! { "$lt": before });
        query
    };
    let by_status = !filter.statuses.is_empty() && filter.task_id.is_none() && agent(filter).is_none();
    if !by_status {
        let mut query = query();
        if !filter.statuses.is_empty() {
            let numbers = filter.statuses.iter().map(|status| Bson::Int32(i32::from(status.number())));
            query.insert("s", doc! { "$in": numbers.collect::<Vec<_>>() });
        }
        return tx.find(name::RUNS, query, ask).await;
    }
    let mut found = Vec::new();
    for status in RunStatus::ALL.into_iter().filter(|status| filter.statuses.contains(status)) {
        let mut query = query();
        query.insert("s", i32::from(status.number()));
        found.extend(tx.find(name::RUNS, query, ask.clone()).await?);
    }
    found.sort_by_key(|run| std::cmp::Reverse(run.get_i64("n").unwrap_or(i64::MIN)));
    found.truncate(most);
    Ok(found)
}

/// What has an index. The rest is looked at in the record.
fn conditions(filter: &RunFilter) -> Document {
    let mut conditions = Document::new();
    if let Some(task_id) = &filter.task_id {
        conditions.insert("t", task_id.as_str());
    } else if let Some(agent_id) = agent(filter) {
        conditions.insert("a", agent_id.as_str());
    }
    conditions
}

/// The agent that a filter is about.
fn agent(filter: &RunFilter) -> Option<AgentId> {
    let host = || (filter.owned == Some(true)).then(AgentId::host);
    filter.agent_id.clone().or_else(host)
}

/// Whether nothing but what the queries ask for matters.
fn is_exact(filter: &RunFilter) -> bool {
    let RunFilter {
        task_id, agent_id, session_id, trigger, created_after, created_before, text, owned, ..
    } = filter;
    let one = u8::from(task_id.is_some()) + u8::from(agent_id.is_some()) + u8::from(owned.is_some());
    let rest = session_id.is_some() || trigger.is_some() || text.is_some();
    let times = created_after.is_some() || created_before.is_some();
    one <= 1 && *owned != Some(false) && !rest && !times
}
