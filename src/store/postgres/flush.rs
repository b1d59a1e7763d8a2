//! Writes what was decided: one statement for each table, however many rows.

use std::collections::BTreeMap;

use super::conn::{Say, with};
use super::fault::{Fault, Step};
use super::lanes::LaneEntry;
use super::row::{json, owner, resting, signed, status_number};
use super::tx::{Entry, Out, TaskEntry, Tx, notify};
use crate::model::{Payload, RunResult, RunStatus, TaskId, Timestamp};

/// How a transaction ended that was not committed for certain.
#[derive(Debug)]
pub(super) enum Failed {
    /// It certainly left nothing behind.
    Before(Fault),
    /// It may have been committed.
    AtCommit(Fault),
}

impl Tx<'_> {
    /// Writes what was decided so far, for who has to look at all of it.
    pub(super) async fn flush(&mut self) -> Step<()> {
        let says = self.rows()?;
        if says.is_empty() {
            return Ok(());
        }
        self.wrote = true;
        for answer in self.conn.say(None, says, None).await? {
            answer?;
        }
        Ok(())
    }

    /// Writes the rest and commits, in one round trip.
    pub(super) async fn finish(mut self, told: Option<(String, String)>) -> Result<(), Failed> {
        let mut says = self.rows().map_err(Failed::Before)?;
        if !says.is_empty() || self.wrote || self.meta.cursor != self.before {
            self.meta.version += 1;
            let meta = &self.meta;
            let numbers =
                with![meta.rid, meta.cursor, meta.tid, meta.aid, meta.lid, meta.lane_version, meta.version];
            says.push(Say::new(META, numbers));
        }
        says.extend(told.map(|(channel, payload)| notify(channel, payload)));
        let answers = self.conn.say(None, says, Some("COMMIT")).await.map_err(Failed::Before)?;
        // The commit went out with the rest. If the server refused a statement before it, the commit undid all of it.
        for answer in answers {
            if let Err(fault) = answer {
                let certain = fault.is_word_of_the_server();
                return Err(if certain { Failed::Before(fault) } else { Failed::AtCommit(fault) });
            }
        }
        self.memory.keep(std::mem::take(&mut self.runs).into_values(), self.meta.version);
        Ok(())
    }

    /// The statements that write what was decided, which is then no longer to be written.
    pub(super) fn rows(&mut self) -> Step<Vec<Say>> {
        let mut says = Vec::new();
        let out = std::mem::take(&mut self.out);
        names(&out, &mut says);
        let tasks: Vec<(&TaskId, &mut TaskEntry)> = self.tasks.iter_mut().collect();
        put_tasks(tasks, &self.memory.names.tasks, &mut says)?;
        self.put_runs(&mut says);
        self.put_lanes(&out, &mut says);
        put_records(&out, &mut says)?;
        put_marks(&std::mem::take(&mut self.marks), &mut says);
        put_events(&out, &mut says);
        let counts = std::mem::take(&mut self.counts);
        put_counts(&counts, &mut says);
        Ok(says)
    }

    fn put_runs(&mut self, says: &mut Vec<Say>) {
        let (mut new, mut whole) = (Vec::new(), Vec::new());
        let mut places = std::mem::take(&mut self.moves);
        let mut leases = Vec::new();
        let mut rids: Vec<i64> = self.runs.keys().copied().collect();
        rids.sort_unstable();
        for rid in rids {
            let Some(entry) = self.runs.get_mut(&rid) else { continue };
            match (entry.new, entry.rest.is_some()) {
                (true, _) => new.push(entry.taken()),
                (false, true) => whole.push(entry.taken()),
                (false, false) => {
                    let stored = &entry.stored;
                    if entry.placed {
                        places.insert(rid, (stored.place, stored.lane));
                    }
                    if entry.renewed {
                        leases.push((rid, stored.expires_at, stored.heartbeat_at, stored.wake_at));
                    }
                    (entry.placed, entry.renewed) = (false, false);
                }
            }
        }
        for (rows, sql) in [(new, INSERT_RUNS), (whole, UPDATE_RUNS)] {
            if !rows.is_empty() {
                says.push(Say::new(sql, run_columns(&rows)));
            }
        }
        if !places.is_empty() {
            let rids: Vec<i64> = places.keys().copied().collect();
            let (to, lanes): (Vec<i16>, Vec<Option<i64>>) = places.into_values().unzip();
            says.push(Say::new(PLACES, with![rids, to, lanes]));
        }
        if !leases.is_empty() {
            let column = |of: fn(&Renewed) -> Option<i64>| leases.iter().map(of).collect::<Vec<_>>();
            let rids: Vec<i64> = leases.iter().map(|lease| lease.0).collect();
            says.push(Say::new(LEASES, with![rids, column(|l| l.1), column(|l| l.2), column(|l| l.3)]));
        }
    }

    fn put_lanes(&mut self, out: &Out, says: &mut Vec<Say>) {
        if !out.dead_lanes.is_empty() {
            says.push(Say::new("DELETE FROM lanes WHERE lid = ANY($1)", with![out.dead_lanes.clone()]));
        }
        let mut dirty: Vec<(i64, &mut LaneEntry)> =
            self.lanes.iter_mut().filter(|(_, lane)| lane.dirty).map(|(lid, lane)| (*lid, lane)).collect();
        if !dirty.is_empty() {
            dirty.sort_unstable_by_key(|(lid, _)| *lid);
            says.push(Say::new(
                PUT_LANES,
                with![
                    dirty.iter().map(|(lid, _)| *lid).collect::<Vec<_>>(),
                    dirty.iter().map(|(_, lane)| lane.version).collect::<Vec<_>>(),
                    dirty.iter().map(|(_, lane)| lane.held).collect::<Vec<_>>(),
                    dirty.iter().map(|(_, lane)| lane.total).collect::<Vec<_>>(),
                    dirty.iter().map(|(_, lane)| lane.name.as_bytes().to_vec()).collect::<Vec<_>>(),
                ],
            ));
        }
        for (_, lane) in dirty {
            (lane.stored, lane.dirty) = (true, false);
        }
        let gone: Vec<_> =
            out.members.iter().filter(|(_, member)| member.is_none()).map(|(key, _)| *key).collect();
        if !gone.is_empty() {
            let (lids, rids): (Vec<i64>, Vec<i64>) = gone.into_iter().unzip();
            says.push(Say::new(LEAVE_LANES, with![lids, rids]));
        }
        let there: Vec<_> = out.members.iter().filter_map(|(key, member)| Some((*key, (*member)?))).collect();
        if !there.is_empty() {
            says.push(Say::new(
                ENTER_LANES,
                with![
                    there.iter().map(|((lid, _), _)| *lid).collect::<Vec<_>>(),
                    there.iter().map(|((_, rid), _)| *rid).collect::<Vec<_>>(),
                    there.iter().map(|(_, member)| member.most).collect::<Vec<_>>(),
                    there.iter().map(|(_, member)| member.pos).collect::<Vec<_>>(),
                    there.iter().map(|(_, member)| member.takes).collect::<Vec<_>>(),
                    there.iter().map(|(_, member)| member.sched).collect::<Vec<_>>(),
                ],
            ));
        }
    }
}

type Renewed = (i64, Option<i64>, Option<i64>, Option<i64>);

impl Entry {
    /// What is written now is not written again.
    fn taken(&mut self) -> Self {
        let taken = Self {
            stored: self.stored.clone(),
            new: self.new,
            rest: self.rest.take(),
            placed: self.placed,
            renewed: self.renewed,
        };
        (self.new, self.placed, self.renewed) = (false, false, false);
        taken
    }
}

/// The columns of whole rows, in the order of [`INSERT_RUNS`] and [`UPDATE_RUNS`].
fn run_columns(rows: &[Entry]) -> Vec<super::conn::Param> {
    macro_rules! column {
        ($entry:ident, $value:expr) => {
            rows.iter().map(|$entry| $value).collect::<Vec<_>>()
        };
    }
    macro_rules! rest {
        ($entry:ident, $field:ident) => {
            column!($entry, $entry.rest.as_ref().and_then(|rest| rest.$field))
        };
    }
    macro_rules! number {
        ($entry:ident, $field:ident) => {
            column!($entry, $entry.rest.as_ref().map_or(0, |rest| rest.$field))
        };
    }
    with![
        column!(e, e.stored.rid),
        column!(e, e.stored.tid),
        column!(e, e.stored.aid),
        column!(e, e.stored.lane),
        column!(e, e.stored.due_at),
        column!(e, e.stored.wake_at),
        column!(e, signed(e.stored.version)),
        column!(e, signed(e.stored.stamp)),
        column!(e, signed(e.stored.fence)),
        column!(e, signed(e.stored.last_event)),
        column!(e, e.stored.nonce.map(signed)),
        column!(e, e.stored.expires_at),
        column!(e, e.stored.heartbeat_at),
        rest!(e, claimed_at),
        rest!(e, started_at),
        rest!(e, attempt_started_at),
        rest!(e, finished_at),
        rest!(e, ended_at),
        column!(e, e.stored.priority),
        column!(e, e.stored.lanes),
        column!(e, e.stored.flags),
        number!(e, attempt),
        number!(e, failures),
        number!(e, interruptions),
        column!(e, status_number(e.stored.status)),
        column!(e, e.stored.place),
        column!(e, resting(e.stored.status)),
        rest!(e, owner),
        column!(e, e.stored.extra.clone()),
        column!(e, e.stored.tried.clone()),
        column!(e, e.rest.as_ref().and_then(|rest| rest.small.clone())),
    ]
}

fn names(out: &Out, says: &mut Vec<Say>) {
    if !out.task_names.is_empty() {
        let (tids, names): (Vec<i64>, Vec<String>) =
            out.task_names.iter().map(|(tid, name)| (*tid, name.to_string())).unzip();
        says.push(Say::new(
            "INSERT INTO task_names (tid, name) SELECT * FROM unnest($1::bigint[], $2::text[])",
            with![tids, names],
        ));
    }
    if !out.agent_names.is_empty() {
        let (aids, names): (Vec<i64>, Vec<String>) =
            out.agent_names.iter().map(|(aid, name)| (*aid, name.to_string())).unzip();
        says.push(Say::new(
            "INSERT INTO agent_names (aid, name) SELECT * FROM unnest($1::bigint[], $2::text[])",
            with![aids, names],
        ));
    }
}

/// Tasks and schedules: a statement for each, as people write them.
fn put_tasks(
    tasks: Vec<(&TaskId, &mut TaskEntry)>,
    numbers: &foldhash::HashMap<TaskId, i64>,
    says: &mut Vec<Say>,
) -> Step<()> {
    let (mut told, mut states) = ((Vec::new(), Vec::new()), Vec::new());
    for (task_id, entry) in tasks {
        let Some(tid) = numbers.get(task_id).copied() else { continue };
        if std::mem::take(&mut entry.deleted) {
            says.push(Say::new("DELETE FROM tasks WHERE tid = $1", with![tid]));
            says.push(Say::new("DELETE FROM schedules WHERE tid = $1", with![tid]));
        }
        let row = entry.row;
        let told_now = std::mem::take(&mut entry.told);
        if let (Some(task), Some(row)) = (entry.put.take(), row) {
            let values = with![
                tid,
                task_id.to_string(),
                row.aid,
                row.enabled,
                signed(row.revision),
                task.created_at.ms(),
                task.updated_at.ms(),
                row.last_event,
                json(&task.spec)?
            ];
            says.push(Say::new(PUT_TASK, values));
            says.push(Say::new("UPDATE schedules SET enabled = $2 WHERE tid = $1", with![tid, row.enabled]));
        } else if let (true, Some(row)) = (told_now, row) {
            told.0.push(tid);
            told.1.push(row.last_event);
        }
        if let (Some(state), Some(row)) = (entry.schedule_put.take(), row) {
            states.push((tid, row.enabled, state));
        }
    }
    if !told.0.is_empty() {
        says.push(Say::new(TOLD_TASKS, with![told.0, told.1]));
    }
    if !states.is_empty() {
        let places: Vec<String> = states.iter().map(|(.., state)| json(&state.place)).collect::<Step<_>>()?;
        says.push(Say::new(
            PUT_SCHEDULES,
            with![
                states.iter().map(|(tid, ..)| *tid).collect::<Vec<_>>(),
                states.iter().map(|(_, enabled, _)| *enabled).collect::<Vec<_>>(),
                states.iter().map(|(.., state)| signed(state.version)).collect::<Vec<_>>(),
                states.iter().map(|(.., state)| state.last_due.map(Timestamp::ms)).collect::<Vec<_>>(),
                states.iter().map(|(.., state)| state.fire_at().map(Timestamp::ms)).collect::<Vec<_>>(),
                places,
            ],
        ));
    }
    Ok(())
}

/// What is kept beside a run, and occurrences.
fn put_records(out: &Out, says: &mut Vec<Say>) -> Step<()> {
    if !out.specs.is_empty() {
        let specs: Vec<String> =
            out.specs.iter().map(|(_, _, _, spec, _)| json(&**spec)).collect::<Step<_>>()?;
        macro_rules! column {
            (($rid:pat, $tid:pat, $aid:pat, $spec:pat, $id:pat) => $value:expr) => {
                out.specs.iter().map(|($rid, $tid, $aid, $spec, $id)| $value).collect::<Vec<_>>()
            };
        }
        says.push(Say::new(
            PUT_SPECS,
            with![
                column!((rid, _, _, _, _) => *rid),
                column!((_, tid, _, _, _) => *tid),
                column!((_, _, aid, _, _) => *aid),
                column!((_, _, _, spec, _) => spec.queued_at.ms()),
                column!((_, _, _, spec, _) => spec.limits.deadline_at.map(Timestamp::ms)),
                column!((_, _, _, spec, _) => spec.occurrence.map(Timestamp::ms)),
                column!((_, _, _, _, id) => id.to_string()),
                column!((_, _, _, spec, _) => spec.session_id.as_bytes().to_vec()),
                specs,
            ],
        ));
    }
    if !out.results.is_empty() {
        says.push(results(&out.results));
    }
    if !out.keys.is_empty() {
        says.push(Say::new(
            PUT_KEYS,
            with![
                out.keys.iter().map(|(tid, ..)| *tid).collect::<Vec<_>>(),
                out.keys.iter().map(|(_, rid, _)| *rid).collect::<Vec<_>>(),
                out.keys.iter().map(|(.., key)| signed(key.digest)).collect::<Vec<_>>(),
                out.keys.iter().map(|(.., key)| key.key.as_bytes().to_vec()).collect::<Vec<_>>(),
            ],
        ));
    }
    if !out.occurrences.is_empty() {
        let records: Vec<String> =
            out.occurrences.iter().map(|(_, record)| json(record)).collect::<Step<_>>()?;
        says.push(Say::new(
            PUT_OCCURRENCES,
            with![
                out.occurrences.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(),
                out.occurrences.iter().map(|(_, record)| record.due_at.ms()).collect::<Vec<_>>(),
                out.occurrences.iter().map(|(_, record)| record.recorded_at.ms()).collect::<Vec<_>>(),
                records,
            ],
        ));
    }
    Ok(())
}

fn put_marks(marks: &BTreeMap<i64, (i64, i64)>, says: &mut Vec<Say>) {
    if marks.is_empty() {
        return;
    }
    let numbers: Vec<i64> = marks.keys().copied().collect();
    let (first, last): (Vec<i64>, Vec<i64>) = marks.values().copied().unzip();
    says.push(Say::new(PUT_MARKS, with![numbers, first, last]));
}

fn results(results: &BTreeMap<i64, RunResult>) -> Say {
    let (mut sizes, mut media_types, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut paths, mut previews) = (Vec::new(), Vec::new());
    for result in results.values() {
        let (media, inline, file) = match result {
            RunResult::Inline(Payload { media_type, bytes }) => (media_type, Some(bytes.to_vec()), None),
            RunResult::File { media_type, size, path, preview } => {
                (media_type, None, Some((size, path, preview)))
            }
        };
        media_types.push(media.as_bytes().to_vec());
        bytes.push(inline);
        sizes.push(file.map(|(size, ..)| signed(*size)));
        paths.push(file.map(|(_, path, _)| path.as_bytes().to_vec()));
        previews.push(file.map(|(.., preview)| preview.as_bytes().to_vec()));
    }
    let rids: Vec<i64> = results.keys().copied().collect();
    Say::new(PUT_RESULTS, with![rids, sizes, media_types, bytes, paths, previews])
}

fn put_events(out: &Out, says: &mut Vec<Say>) {
    macro_rules! column {
        ($rows:expr, $row:pat => $value:expr) => {
            $rows.iter().map(|$row| $value).collect::<Vec<_>>()
        };
    }
    if !out.attempts.is_empty() {
        let errors: Vec<Option<String>> =
            column!(out.attempts, (_, a) => a.error.as_ref().and_then(|error| json(error).ok()));
        says.push(Say::new(
            PUT_ATTEMPTS,
            with![
                column!(out.attempts, ((rid, _), _) => *rid),
                column!(out.attempts, (_, a) => signed(a.fence)),
                column!(out.attempts, (_, a) => a.started_at.ms()),
                column!(out.attempts, (_, a) => a.finished_at.map(Timestamp::ms)),
                column!(out.attempts, (_, a) => a.number.cast_signed()),
                column!(out.attempts, (_, a) => i16::from(a.status.number())),
                column!(out.attempts, (_, a) => owner(a.instance)),
                errors,
            ],
        ));
    }
    if !out.events.is_empty() {
        says.push(Say::new(
            PUT_EVENTS,
            with![
                column!(out.events, told => told.cursor),
                column!(out.events, told => told.subject),
                column!(out.events, told => told.seq),
                column!(out.events, told => told.event.at.ms()),
                column!(out.events, told => signed(told.event.fence)),
                column!(out.events, told => told.aid),
                column!(out.events, told => told.event.attempt.cast_signed()),
                column!(out.events, told => i16::from(told.event.kind.number())),
                column!(out.events, told => told.event.status.map(status_number)),
                column!(out.events, told => told.event.instance.map(owner)),
                column!(out.events, told => told.event.data.as_deref().map(str::to_owned)),
            ],
        ));
    }
}

fn put_counts(counts: &BTreeMap<i64, [i64; RunStatus::ALL.len()]>, says: &mut Vec<Say>) {
    let (mut tids, mut statuses, mut by) = (Vec::new(), Vec::new(), Vec::new());
    for (tid, of_task) in counts {
        for (status, n) in RunStatus::ALL.into_iter().zip(of_task).filter(|(_, n)| **n != 0) {
            tids.push(*tid);
            statuses.push(status_number(status));
            by.push(*n);
        }
    }
    if !tids.is_empty() {
        says.push(Say::new(COUNT, with![tids, statuses, by]));
    }
}

const META: &str =
    "UPDATE meta SET next_rid = $1, next_cursor = $2, next_tid = $3, next_aid = $4, next_lid = $5,
    lane_version = $6, version = $7 WHERE id = 0";

macro_rules! unnest_runs {
    () => {
        "unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
        $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
        $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::int[], $20::int[], $21::int[], $22::int[],
        $23::int[], $24::int[], $25::smallint[], $26::smallint[], $27::smallint[], $28::uuid[], $29::text[],
        $30::bytea[], $31::bytea[])"
    };
}
macro_rules! run_names {
    () => {
        "rid, tid, aid, lane, due_at, wake_at, version, stamp, fence, last_event, nonce, expires_at, heartbeat_at,
        claimed_at, started_at, attempt_started_at, finished_at, ended_at, priority, lanes, flags, attempt, failures,
        interruptions, status, place, resting, owner, extra, tried, small"
    };
}

const INSERT_RUNS: &str = concat!("INSERT INTO runs (", run_names!(), ") SELECT * FROM ", unnest_runs!());

/// By the primary key alone: a condition on the status would be met by the index of another place.
pub(super) const UPDATE_RUNS: &str = concat!(
    "UPDATE runs r SET lane = x.lane, due_at = x.due_at, wake_at = x.wake_at, version = x.version, stamp = x.stamp,
     fence = x.fence, last_event = x.last_event, nonce = x.nonce, expires_at = x.expires_at,
     heartbeat_at = x.heartbeat_at, claimed_at = x.claimed_at, started_at = x.started_at,
     attempt_started_at = x.attempt_started_at, finished_at = x.finished_at, ended_at = x.ended_at, flags = x.flags,
     attempt = x.attempt, failures = x.failures, interruptions = x.interruptions, status = x.status, place = x.place,
     resting = x.resting, owner = x.owner, extra = x.extra, tried = x.tried, small = x.small
     FROM ",
    unnest_runs!(),
    " AS x (",
    run_names!(),
    ") WHERE r.rid = x.rid"
);

pub(super) const PLACES: &str = "UPDATE runs r SET place = x.place, lane = x.lane
    FROM unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS x (rid, place, lane) WHERE r.rid = x.rid";

pub(super) const LEASES: &str = "UPDATE runs r
    SET expires_at = x.expires_at, heartbeat_at = x.heartbeat_at, wake_at = x.wake_at
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS x (rid, expires_at, heartbeat_at, wake_at)
    WHERE r.rid = x.rid";

const PUT_LANES: &str = "INSERT INTO lanes (lid, version, held, total, name)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])
    ON CONFLICT (lid) DO UPDATE SET version = excluded.version, held = excluded.held, total = excluded.total";

pub(super) const LEAVE_LANES: &str =
    "DELETE FROM lane_runs m USING unnest($1::bigint[], $2::bigint[]) AS x (lid, rid)
    WHERE m.lid = x.lid AND m.rid = x.rid";

const ENTER_LANES: &str = "INSERT INTO lane_runs (lid, rid, most, pos, takes, sched)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[], $5::boolean[], $6::boolean[])
    ON CONFLICT (lid, rid) DO UPDATE SET takes = excluded.takes, sched = excluded.sched";

const PUT_TASK: &str = "INSERT INTO tasks
    (tid, task_id, aid, enabled, revision, created_at, updated_at, last_event, spec)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (tid) DO UPDATE SET aid = excluded.aid, enabled = excluded.enabled,
    revision = excluded.revision, created_at = excluded.created_at, updated_at = excluded.updated_at,
    last_event = excluded.last_event, spec = excluded.spec";

pub(super) const TOLD_TASKS: &str = "UPDATE tasks t SET last_event = x.last_event
    FROM unnest($1::bigint[], $2::bigint[]) AS x (tid, last_event) WHERE t.tid = x.tid";

const PUT_SCHEDULES: &str = "INSERT INTO schedules (tid, enabled, version, last_due, fire_at, place)
    SELECT * FROM unnest($1::bigint[], $2::boolean[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
    ON CONFLICT (tid) DO UPDATE SET enabled = excluded.enabled, version = excluded.version,
    last_due = excluded.last_due, fire_at = excluded.fire_at, place = excluded.place";

const PUT_SPECS: &str = "INSERT INTO specs
    (rid, tid, aid, queued_at, deadline_at, occurrence, run_id, session, spec)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
    $7::text[], $8::bytea[], $9::text[])";

const PUT_RESULTS: &str = "INSERT INTO results (rid, size, media_type, bytes, path, preview)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[])
    ON CONFLICT (rid) DO UPDATE SET size = excluded.size, media_type = excluded.media_type,
    bytes = excluded.bytes, path = excluded.path, preview = excluded.preview";

/// A mark that says enough is left alone.
pub(super) const PUT_MARKS: &str = "INSERT INTO marks (mark, first_at, last_at)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])
    ON CONFLICT (mark) DO UPDATE
    SET first_at = least(marks.first_at, excluded.first_at), last_at = greatest(marks.last_at, excluded.last_at)
    WHERE marks.first_at > excluded.first_at OR marks.last_at < excluded.last_at";

const PUT_KEYS: &str = "INSERT INTO idempotency (tid, rid, digest, key)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])";

const PUT_OCCURRENCES: &str = "INSERT INTO occurrences (tid, due_at, recorded_at, record)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[])";

const PUT_ATTEMPTS: &str = "INSERT INTO attempts
    (rid, fence, started_at, finished_at, number, status, instance, error)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[], $6::smallint[],
    $7::uuid[], $8::text[])
    ON CONFLICT (rid, number) DO UPDATE SET status = excluded.status, instance = excluded.instance,
    fence = excluded.fence, started_at = excluded.started_at, finished_at = excluded.finished_at,
    error = excluded.error";

const PUT_EVENTS: &str = "INSERT INTO events
    (cursor, subject, seq, at, fence, aid, attempt, kind, status, instance, data)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
    $7::int[], $8::smallint[], $9::smallint[], $10::uuid[], $11::text[])";

const COUNT: &str = "INSERT INTO counters (tid, status, n)
    SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::bigint[])
    ON CONFLICT (tid, status) DO UPDATE SET n = counters.n + excluded.n";
