//! Compares what is derived from runs with them: counters, lanes, places, and what queries look for. Reads every run,
//! and keeps those in memory that have not ended: for who asks, never on the way of a claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mongodb::bson::{Bson, Document, doc};

use super::doc::{Fields as _, of_run, queue, status, to_run};
use super::fault::{Fault, Step};
use super::flush;
use super::link::{ALL, Ask, Tx, Word, Write, name};
use super::load::lane;
use crate::model::{Run, RunStatus, Timestamp};
use crate::store::Hint;
use crate::store::memory::part::{LaneRow, Numbers, Part, Waiters};

/// How many runs are read at once.
const CHUNK: usize = 1000;

type Counts = BTreeMap<String, [i64; RunStatus::ALL.len()]>;

/// What was found.
struct Survey {
    part: Part,
    found: Vec<String>,
    /// What is written anew beside what the part says.
    writes: Vec<Write>,
    /// Whether all runs that have not ended could be read.
    whole: bool,
}

/// What is wrong, in words.
pub(super) async fn find(tx: &mut Tx, now: Timestamp) -> Step<Vec<String>> {
    let numbers = Numbers { run: 0, cursor: 0, lane: 0 };
    Ok(survey(tx, numbers, now).await?.found)
}

/// Makes good what is wrong.
pub(super) async fn repair(
    tx: &mut Tx,
    numbers: Numbers,
    now: Timestamp,
) -> Step<(Vec<String>, Numbers, Option<Hint>)> {
    let mut survey = survey(tx, numbers, now).await?;
    if survey.found.is_empty() {
        return Ok((survey.found, numbers, None));
    }
    for write in survey.writes {
        tx.write(write).await?;
    }
    if survey.whole {
        survey.part.repair();
    }
    let after = survey.part.numbers();
    if survey.whole {
        flush::flush(tx, &survey.part.changes()).await?;
    }
    let hint = Hint { ready: true, agenda: true, cursor: after.cursor, ..Hint::default() };
    Ok((survey.found, after, Some(hint)))
}

async fn survey(tx: &mut Tx, numbers: Numbers, now: Timestamp) -> Step<Survey> {
    let mut survey =
        Survey { part: Part::new(numbers, now), found: Vec::new(), writes: Vec::new(), whole: true };
    let mut counts = Counts::new();
    counts.insert(ALL.to_owned(), [0; RunStatus::ALL.len()]);
    let (runs, fixes) = runs(tx, &mut counts, &mut survey).await?;
    survey.writes.push(Write::exact(Word::Update, name::RUNS, fixes));
    lanes(tx, &runs, &mut survey).await?;
    for (number, run) in runs {
        survey.part.put_run(number, run);
    }
    if survey.whole {
        let found = survey.part.check();
        survey.found.extend(found);
    }
    counters(tx, counts, &mut survey).await?;
    Ok(survey)
}

/// Every run: how many there are of each kind, and those that have not ended.
async fn runs(
    tx: &mut Tx,
    counts: &mut Counts,
    survey: &mut Survey,
) -> Step<(Vec<(u64, Run)>, Vec<Document>)> {
    let (mut live, mut fixes, mut last) = (Vec::new(), Vec::new(), i64::MIN);
    loop {
        let ask = Ask::sort(doc! { "n": 1 }).limit(CHUNK);
        let found = tx.find(name::RUNS, doc! { "n": { "$gt": last } }, ask).await?;
        for document in &found {
            last = document.number("n")?;
            let status = status(document.number("s")?)?;
            for name in [document.word("t")?, ALL] {
                let of = counts.entry(name.to_owned()).or_insert([0; RunStatus::ALL.len()]);
                of[usize::from(status.number())] += 1;
            }
            match to_run(document) {
                Ok((number, run)) => {
                    fixes.extend(fix(document, number, &run, &mut survey.found)?);
                    if !run.status.is_terminal() {
                        live.push((number, run));
                    }
                }
                Err(Fault::Unreadable(why)) => {
                    survey.whole &= status.is_terminal();
                    survey.found.push(format!("run \"{}\" cannot be read: {why}", document.word("_id")?));
                }
                Err(fault) => return Err(fault),
            }
        }
        if found.len() < CHUNK {
            return Ok((live, fixes));
        }
    }
}

/// The fields that follow from the others.
const DERIVED: [&str; 7] = ["w", "k", "e", "l", "o", "key", "g"];

/// What has to be written so that a run is found by what it is.
fn fix(document: &Document, number: u64, run: &Run, found: &mut Vec<String>) -> Step<Option<Document>> {
    let wanted = of_run(number, run)?;
    let (mut set, mut unset) = (Document::new(), Document::new());
    for name in DERIVED {
        match (document.get(name), wanted.get(name)) {
            // It is out of the way, and has no place to be compared.
            (Some(Bson::Document(waits)), None) if waits.word("q").is_ok_and(|q| q == queue::UNREADABLE) => {}
            (is, should) if is == should => {}
            (_, Some(should)) => drop(set.insert(name, should.clone())),
            (_, None) => drop(unset.insert(name, "")),
        }
    }
    if set.is_empty() && unset.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = set.keys().chain(unset.keys()).map(String::as_str).collect();
    found.push(format!("run \"{}\" is not found by what it is: {}", run.run_id, names.join(", ")));
    let parts = [("$set", set), ("$unset", unset)].into_iter().filter(|(_, part)| !part.is_empty());
    let update: Document = parts.map(|(word, part)| (word.to_owned(), Bson::Document(part))).collect();
    Ok(Some(doc! { "q": { "_id": run.run_id.as_str() }, "u": update }))
}

/// Lanes, with how many runs are in them.
async fn lanes(tx: &mut Tx, runs: &[(u64, Run)], survey: &mut Survey) -> Step<()> {
    let mut members: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, run) in runs.iter().filter(|(_, run)| run.status.is_active()) {
        let names: BTreeSet<&str> = run.spec.lanes.iter().map(|lane| &*lane.name).collect();
        names.into_iter().for_each(|name| *members.entry(name).or_default() += 1);
    }
    let mut after = None;
    loop {
        let filter = after.map_or_else(Document::new, |after: String| doc! { "_id": { "$gt": after } });
        let found = tx.find(name::LANES, filter, Ask::sort(doc! { "_id": 1 }).limit(CHUNK).by_id()).await?;
        for document in &found {
            let (name, row) = (document.word("_id")?, lane(document)?);
            let total = members.get(name).copied().unwrap_or(0);
            if row.total != total && survey.whole {
                survey.found.push(format!("lane \"{name}\" has {total} runs, {} are counted", row.total));
            }
            let row = LaneRow { total, ..row };
            survey.part.put_lane(&Arc::from(name), row, Some(&Waiters::default()));
        }
        match found.last() {
            Some(last) if found.len() == CHUNK => after = Some(last.word("_id")?.to_owned()),
            _ => return Ok(()),
        }
    }
}

async fn counters(tx: &mut Tx, counts: Counts, survey: &mut Survey) -> Step<()> {
    let mut kept: BTreeMap<String, [i64; RunStatus::ALL.len()]> = BTreeMap::new();
    for document in &tx.find(name::COUNTERS, Document::new(), Ask::all()).await? {
        let mut of = [0; RunStatus::ALL.len()];
        if let Ok(by_status) = document.get_document("c") {
            for status in RunStatus::ALL {
                let number = status.number();
                of[usize::from(number)] = by_status.maybe_number(&number.to_string())?.unwrap_or(0);
            }
        }
        kept.insert(document.word("_id")?.to_owned(), of);
    }
    let names: BTreeSet<&String> = kept.keys().chain(counts.keys()).collect();
    let mut updates = Vec::new();
    for name in names {
        let of = |counts: &Counts| counts.get(name).copied().unwrap_or_default();
        let (is, should) = (of(&kept), of(&counts));
        if is == should {
            continue;
        }
        let whose = if name == ALL { "all tasks".to_owned() } else { format!("task \"{name}\"") };
        survey.found.push(format!("the counters of {whose} are {is:?}, its runs are {should:?}"));
        let should = should.iter().enumerate().map(|(status, n)| (status.to_string(), Bson::Int64(*n)));
        let should: Document = should.collect();
        updates.push(doc! { "q": { "_id": name }, "u": { "$set": { "c": should } }, "upsert": true });
    }
    survey.writes.push(Write::exact(Word::Update, name::COUNTERS, updates));
    Ok(())
}
