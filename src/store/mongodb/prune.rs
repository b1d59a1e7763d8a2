//! Removes what nobody needs any more, in bounded steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use mongodb::bson::{Document, doc};
use serde::Deserialize;

use super::doc::{Fields as _, status, unreadable};
use super::fault::Step;
use super::flush;
use super::link::{ALL, Ask, Tx, Word, Write, name};
use crate::model::{RunStatus, TaskId};
use crate::store::{PruneRequest, Pruned};

/// The part of a specification that says where the files of a run are.
#[derive(Deserialize)]
struct Shown {
    workspace_path: Arc<str>,
}

/// Removes the runs that ended longest ago, and occurrences and events of tasks that are as old.
pub(super) async fn prune(tx: &mut Tx, request: PruneRequest) -> Step<Pruned> {
    let mut pruned = Pruned::default();
    let surplus = finished(tx).await?.saturating_sub(request.keep);
    let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
    let before = request.before.ms();
    let ended = if surplus == 0 {
        doc! { "$lt": before }
    } else {
        doc! { "$gte": i64::MIN }
    };
    let ask = Ask::sort(doc! { "e.at": 1, "e.n": 1 }).limit(request.limit.saturating_add(1));
    let ask = ask.only(doc! { "t": 1, "s": 1, "e": 1, "spec": 1 });
    let oldest = tx.find(name::RUNS, doc! { "e.at": ended }, ask).await?;
    let (mut gone, mut counts) = (Vec::new(), BTreeMap::new());
    for (n, run) in oldest.iter().enumerate() {
        let ended_at = run.get_document("e").map_or(Ok(i64::MAX), |ended| ended.number("at"))?;
        if ended_at >= before && n >= surplus {
            break;
        }
        if n == request.limit {
            pruned.more = true;
            break;
        }
        let task_id = TaskId::new(run.word("t")?).map_err(|invalid| unreadable(invalid.to_string()))?;
        let of_task = counts.entry(task_id).or_insert([0_i64; RunStatus::ALL.len()]);
        of_task[usize::from(status(run.number("s")?)?.number())] -= 1;
        // That of a record that cannot be read is not known.
        let shown = run.word("spec").ok().and_then(|spec| serde_json::from_str::<Shown>(spec).ok());
        pruned.workspaces.extend(shown.map(|shown| shown.workspace_path));
        let id = run.word("_id")?;
        gone.push((id.to_owned(), doc! { "_id": id, "e.at": ended_at }));
    }
    pruned.runs = gone.len() as u64;
    flush::remove(tx, gone).await?;
    tx.write(flush::counters(&counts)).await?;
    let (removed, more) = old(tx, name::OCCURRENCES, "at", &request).await?;
    pruned.occurrences = removed;
    let (_, more_events) = old(tx, name::EVENTS, "ta", &request).await?;
    pruned.more |= more || more_events;
    Ok(pruned)
}

/// Removes what was recorded before an instant; answers how much, and whether there is more.
async fn old(tx: &mut Tx, name: &'static str, field: &str, request: &PruneRequest) -> Step<(u64, bool)> {
    let ask = Ask::sort(doc! { field: 1 }).limit(request.limit.saturating_add(1)).only(doc! { "_id": 1 });
    let mut found = tx.find(name, doc! { field: { "$lt": request.before.ms() } }, ask).await?;
    let more = found.len() > request.limit;
    found.truncate(request.limit);
    let removed = found.len() as u64;
    let gone = found.into_iter().map(|filter| doc! { "q": filter, "limit": 1 }).collect();
    tx.write(Write::exact(Word::Delete, name, gone)).await?;
    Ok((removed, more))
}

/// How many runs have ended.
async fn finished(tx: &mut Tx) -> Step<u64> {
    let found = tx.find(name::COUNTERS, doc! { "_id": ALL }, Ask::all()).await?;
    let counts = found.first().map(counts).transpose()?.unwrap_or_default();
    let ended = counts.into_iter().filter(|(status, _)| status.is_terminal());
    Ok(ended.map(|(_, count)| count).sum())
}

/// How many runs of each status a counter says; states without any are left out.
pub(super) fn counts(counter: &Document) -> Step<Vec<(RunStatus, u64)>> {
    let Ok(by_status) = counter.get_document("c") else { return Ok(Vec::new()) };
    let mut counts = Vec::new();
    for status in RunStatus::ALL {
        let count = by_status.maybe_number(&status.number().to_string())?.unwrap_or(0);
        counts.extend((count != 0).then(|| (status, count.max(0).unsigned_abs())));
    }
    Ok(counts)
}
