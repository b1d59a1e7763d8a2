//! Writes what came of a batch: statements of one kind for one collection go together, however many documents.

use std::collections::BTreeMap;

use mongodb::bson::{Bson, Document, doc};

use super::doc::{of_run, signed};
use super::fault::Step;
use super::link::{ALL, META_ID, Tx, Word, Write, name};
use super::told;
use crate::model::{Run, RunStatus, TaskId};
use crate::store::memory::part::{Changes, LaneRow, Numbers, counted};

/// Writes the changes. What others could have changed has to be as it was read; that it is follows from whose turn it
/// is, and is looked at all the same.
pub(super) async fn flush(tx: &mut Tx, changes: &Changes) -> Step<()> {
    // What is gone goes first: its name and its key may be used again.
    if !changes.gone.is_empty() {
        let gone = changes.gone.iter().map(|run| (run.run_id.to_string(), standing(run)));
        remove(tx, gone.collect()).await?;
    }
    let mut writes = runs(changes)?;
    writes.push(tasks(changes)?);
    let gone = changes.tasks.iter().filter(|(_, task)| task.is_none());
    writes.push(Write::exact(
        Word::Delete,
        name::TASKS,
        gone.map(|(task_id, _)| doc! { "q": { "_id": task_id.as_str() }, "limit": 1 }).collect(),
    ));
    writes.extend(lanes(changes));
    writes.push(counters(&counted(changes)));
    let occurrences = changes.occurrences.iter().map(told::of_occurrence).collect::<Step<_>>()?;
    writes.push(Write::exact(Word::Insert, name::OCCURRENCES, occurrences));
    let mut attempts = Vec::with_capacity(changes.attempts.len());
    for (run_id, attempt) in &changes.attempts {
        let (id, document) = (attempt.attempt_id.as_str(), told::of_attempt(run_id, attempt)?);
        attempts.push(doc! { "q": { "_id": id }, "u": document, "upsert": true });
    }
    writes.push(Write::exact(Word::Update, name::ATTEMPTS, attempts));
    // A task that is made anew numbers its events from 1: those of its former self are kept under another name.
    let former = changes.begun.iter().map(|task_id| {
        let (of, former) = (told::of_named(task_id.as_str()), told::of_former(task_id.as_str()));
        doc! { "q": { "of": of }, "u": { "$set": { "of": former } }, "multi": true }
    });
    writes.push(Write::any(Word::Update, name::EVENTS, former.collect()));
    let events = changes.events.iter().map(told::of_event).collect();
    writes.push(Write::exact(Word::Insert, name::EVENTS, events));
    for write in writes {
        tx.write(write).await?;
    }
    Ok(())
}

/// The numbers that were given last, and what others are told.
pub(super) async fn finish(tx: &mut Tx, numbers: Numbers, hint: Option<String>) -> Step<()> {
    let mut set = doc! {
        "run": signed(numbers.run), "cursor": signed(numbers.cursor), "lane": signed(numbers.lane)
    };
    set.extend(hint.map(|hint| ("hint".to_owned(), Bson::String(hint))));
    let update = doc! { "q": { "_id": META_ID }, "u": { "$set": set } };
    tx.write(Write::exact(Word::Update, name::META, vec![update])).await
}

fn runs(changes: &Changes) -> Step<Vec<Write>> {
    let mut moved = Vec::with_capacity(changes.moved.len());
    for (number, before, after) in &changes.moved {
        let update = difference(&of_run(*number, before)?, of_run(*number, after)?);
        moved.push(doc! { "q": standing(before), "u": update });
    }
    let made = changes.made.iter().map(|(number, run)| of_run(*number, run)).collect::<Step<_>>()?;
    Ok(vec![Write::exact(Word::Update, name::RUNS, moved), Write::exact(Word::Insert, name::RUNS, made)])
}

/// The run as it was decided on: its version, and its token.
fn standing(run: &Run) -> Document {
    let nonce = run.lease.map(|lease| signed(lease.nonce));
    doc! {
        "_id": run.run_id.as_str(),
        "v": signed(run.version),
        "f": signed(run.fence),
        // One without a token has no such field.
        "no": nonce.map_or(Bson::Null, Bson::Int64),
    }
}

/// What makes one document another. Fields that are known to neither stay.
fn difference(before: &Document, after: Document) -> Document {
    let (mut set, mut unset) = (Document::new(), Document::new());
    for name in before.keys().filter(|name| !after.contains_key(name.as_str())) {
        unset.insert(name.as_str(), "");
    }
    for (name, value) in after {
        if before.get(&name) != Some(&value) {
            set.insert(name, value);
        }
    }
    let parts = [("$set", set), ("$unset", unset)].into_iter().filter(|(_, part)| !part.is_empty());
    parts.map(|(word, part)| (word.to_owned(), Bson::Document(part))).collect()
}

/// Removes runs, found as they have to stand, with all that they have.
pub(super) async fn remove(tx: &mut Tx, gone: Vec<(String, Document)>) -> Step<()> {
    let any = |filter: Document| doc! { "q": filter, "limit": 0 };
    let events = gone.iter().map(|(id, _)| any(doc! { "of": told::of_run(id) })).collect();
    let attempts = gone.iter().map(|(id, _)| any(doc! { "of": id })).collect();
    let runs = gone.into_iter().map(|(_, standing)| doc! { "q": standing, "limit": 1 }).collect();
    tx.write(Write::any(Word::Delete, name::EVENTS, events)).await?;
    tx.write(Write::any(Word::Delete, name::ATTEMPTS, attempts)).await?;
    tx.write(Write::exact(Word::Delete, name::RUNS, runs)).await
}

fn tasks(changes: &Changes) -> Step<Write> {
    let mut updates = Vec::new();
    for (task_id, entry) in &changes.tasks {
        let Some((task, schedule)) = entry else { continue };
        let mut document = told::of_task(task, schedule)?;
        document.remove("_id");
        let optional = ["ld", "fire"].into_iter().filter(|name| !document.contains_key(name));
        let unset: Document = optional.map(|name| (name.to_owned(), Bson::String(String::new()))).collect();
        let mut update = doc! { "$set": document };
        if !unset.is_empty() {
            update.insert("$unset", unset);
        }
        updates.push(doc! { "q": { "_id": task_id.as_str() }, "u": update, "upsert": true });
    }
    Ok(Write::exact(Word::Update, name::TASKS, updates))
}

fn lanes(changes: &Changes) -> [Write; 2] {
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for (name, row) in &changes.lanes {
        let named = doc! { "_id": &**name };
        match row {
            Some(LaneRow { version, held, total }) => {
                let row = doc! { "v": signed(*version), "held": signed(*held), "total": signed(*total) };
                kept.push(doc! { "q": named, "u": { "$set": row }, "upsert": true });
            }
            None => gone.push(doc! { "q": named, "limit": 1 }),
        }
    }
    [Write::exact(Word::Update, name::LANES, kept), Write::exact(Word::Delete, name::LANES, gone)]
}

/// So many more of each status, of each task and of all.
pub(super) fn counters(by_task: &BTreeMap<TaskId, [i64; RunStatus::ALL.len()]>) -> Write {
    let mut all = [0_i64; RunStatus::ALL.len()];
    for counts in by_task.values() {
        all.iter_mut().zip(counts).for_each(|(all, by)| *all += by);
    }
    let own = by_task.iter().map(|(task_id, counts)| (task_id.as_str(), counts));
    let updates = own.chain([(ALL, &all)]).filter_map(|(id, counts)| {
        let by = counts.iter().enumerate().filter(|(_, by)| **by != 0);
        let by: Document = by.map(|(status, by)| (format!("c.{status}"), Bson::Int64(*by))).collect();
        (!by.is_empty()).then(|| doc! { "q": { "_id": id }, "u": { "$inc": by }, "upsert": true })
    });
    Write::exact(Word::Update, name::COUNTERS, updates.collect())
}
