//! Writes what was decided: one statement for each table, however many rows.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::conn::{Say, with};
use super::fault::{Fault, Step};
use super::lanes::LaneEntry;
use super::row::{Stored, json, owner, resting, signed, status_number};
use super::rows::Rows;
use super::tx::{Known, Meta, NewSpec, Out, Rest, TaskEntry, Told, Tx, notify};
use crate::model::{Attempt, Payload, RunResult, RunStatus, TaskId, Timestamp};

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
        self.wrote |= !says.is_empty();
        for answer in self.say(says, None).await? {
            answer?;
        }
        Ok(())
    }

    /// Sends what was decided so far, if that is much, and waits for nothing: the server writes it while the rest is
    /// decided on. Each part is twice the one before, as it takes longer to write than to decide.
    pub(super) async fn send_ahead(&mut self) -> Step<()> {
        if self.out.events.len() < self.enough {
            return Ok(());
        }
        self.enough *= 2;
        let mut says = Vec::new();
        self.put_runs(&mut says);
        put_specs(&std::mem::take(&mut self.out.specs), &mut says)?;
        put_events(&std::mem::take(&mut self.out.events), &mut says);
        self.wrote = true;
        self.send(says, None).await?;
        // It goes out when the connection has its turn.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Says everything behind what was sent ahead. Answers what is said of both.
    pub(super) async fn say(
        &mut self,
        says: Vec<Say>,
        last: Option<&'static str>,
    ) -> Step<Vec<Step<Vec<Row>>>> {
        self.send(says, last).await?;
        Ok(self.conn.land(&mut self.ahead).await)
    }

    /// Sends behind what was sent ahead. If nothing can be sent, what was sent before may have failed first, and says
    /// why.
    async fn send(&mut self, says: Vec<Say>, last: Option<&'static str>) -> Step<()> {
        let Err(fault) = self.conn.send(&mut self.ahead, None, says, last).await else { return Ok(()) };
        for answer in self.conn.land(&mut self.ahead).await {
            answer?;
        }
        Err(fault)
    }

    /// Writes the rest and commits, in one round trip.
    pub(super) async fn finish(mut self, told: Option<(String, String)>) -> Result<(), Failed> {
        let mut says = self.rows().map_err(Failed::Before)?;
        if !says.is_empty() || self.wrote || self.meta.cursor != self.before {
            self.meta.version += 1;
            self.meta.harmless += i64::from(!self.disturbs);
            let Meta { rid, cursor, tid, aid, lid, lane_version, version, harmless } = self.meta;
            let numbers = with![rid, cursor, tid, aid, lid, lane_version, version, harmless];
            says.push(Say::new(META, numbers));
        }
        says.extend(told.map(|(channel, payload)| notify(channel, payload)));
        let answers = self.say(says, Some("COMMIT")).await.map_err(Failed::Before)?;
        // The commit went out with the rest. If the server refused a statement before it, the commit undid all of it.
        for answer in answers {
            if let Err(fault) = answer {
                let certain = fault.is_word_of_the_server();
                return Err(if certain { Failed::Before(fault) } else { Failed::AtCommit(fault) });
            }
        }
        self.memory.keep(std::mem::take(&mut self.runs).into_values(), self.meta.disturbed());
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
        put_attempts(&out.attempts, &mut says);
        put_events(&out.events, &mut says);
        let counts = std::mem::take(&mut self.counts);
        put_counts(&counts, &mut says);
        Ok(says)
    }

    fn put_runs(&mut self, says: &mut Vec<Say>) {
        let (mut new, mut whole) = (Rows::default(), Rows::default());
        let mut places = std::mem::take(&mut self.moves);
        let mut leases = Vec::new();
        let mut rids: Vec<i64> = self.runs.keys().copied().collect();
        rids.sort_unstable();
        for rid in rids {
            let Some(entry) = self.runs.get_mut(&rid) else { continue };
            let stored = &entry.stored;
            if entry.rest.is_some() || entry.placed || entry.renewed {
                entry.written = true;
                self.disturbs |= entry.known == Known::Elsewhere;
            }
            match entry.rest.take() {
                Some(rest) => put_run(stored, &rest, if entry.new { &mut new } else { &mut whole }),
                None => {
                    if entry.placed {
                        places.insert(rid, (stored.place, stored.lane));
                    }
                    if entry.renewed {
                        leases.push((rid, stored.expires_at, stored.heartbeat_at, stored.wake_at));
                    }
                }
            }
            // What is written now is not written again.
            (entry.new, entry.placed, entry.renewed) = (false, false, false);
        }
        for (rows, sql) in [(new, INSERT_RUNS), (whole, UPDATE_RUNS)] {
            if !rows.is_empty() {
                says.push(Say::new(sql, with![rows]));
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

/// A whole row of "runs", in the order of its columns.
fn put_run(stored: &Stored, rest: &Rest, rows: &mut Rows) {
    rows.push(&[
        &stored.rid,
        &stored.tid,
        &stored.aid,
        &stored.lane,
        &stored.due_at,
        &stored.wake_at,
        &signed(stored.version),
        &signed(stored.stamp),
        &signed(stored.fence),
        &signed(stored.last_event),
        &stored.nonce.map(signed),
        &stored.expires_at,
        &stored.heartbeat_at,
        &rest.claimed_at,
        &rest.started_at,
        &rest.attempt_started_at,
        &rest.finished_at,
        &rest.ended_at,
        &stored.priority,
        &stored.lanes,
        &stored.flags,
        &rest.attempt,
        &rest.failures,
        &rest.interruptions,
        &status_number(stored.status),
        &stored.place,
        &resting(stored.status),
        &rest.owner,
        &stored.extra.as_deref(),
        &stored.tried.as_deref(),
        &rest.small.as_deref(),
    ]);
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

fn put_specs(specs: &[NewSpec], says: &mut Vec<Say>) -> Step<()> {
    if specs.is_empty() {
        return Ok(());
    }
    let mut rows = Rows::default();
    for (rid, tid, aid, spec, run_id) in specs {
        rows.push(&[
            rid,
            tid,
            aid,
            &spec.queued_at.ms(),
            &spec.limits.deadline_at.map(Timestamp::ms),
            &spec.occurrence.map(Timestamp::ms),
            &run_id.as_str(),
            &spec.session_id.as_bytes(),
            &json(&**spec)?.as_str(),
        ]);
    }
    says.push(Say::new(PUT_SPECS, with![rows]));
    Ok(())
}

/// What is kept beside a run, and occurrences.
fn put_records(out: &Out, says: &mut Vec<Say>) -> Step<()> {
    put_specs(&out.specs, says)?;
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

fn put_attempts(attempts: &BTreeMap<(i64, u32), Attempt>, says: &mut Vec<Say>) {
    if attempts.is_empty() {
        return;
    }
    let mut rows = Rows::default();
    for ((rid, _), attempt) in attempts {
        let error = attempt.error.as_ref().and_then(|error| json(error).ok());
        rows.push(&[
            rid,
            &signed(attempt.fence),
            &attempt.started_at.ms(),
            &attempt.finished_at.map(Timestamp::ms),
            &attempt.number.cast_signed(),
            &i16::from(attempt.status.number()),
            &owner(attempt.instance),
            &error.as_deref(),
        ]);
    }
    says.push(Say::new(PUT_ATTEMPTS, with![rows]));
}

fn put_events(events: &[Told], says: &mut Vec<Say>) {
    if events.is_empty() {
        return;
    }
    let mut rows = Rows::default();
    for Told { cursor, subject, seq, aid, event } in events {
        rows.push(&[
            cursor,
            subject,
            seq,
            &event.at.ms(),
            &signed(event.fence),
            aid,
            &event.attempt.cast_signed(),
            &i16::from(event.kind.number()),
            &event.status.map(status_number),
            &event.instance.map(owner),
            &event.data.as_deref(),
        ]);
    }
    says.push(Say::new(PUT_EVENTS, with![rows]));
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
    lane_version = $6, version = $7, harmless = $8 WHERE id = 0";

const INSERT_RUNS: &str = "INSERT INTO runs
    (rid, tid, aid, lane, due_at, wake_at, version, stamp, fence, last_event, nonce, expires_at, heartbeat_at,
     claimed_at, started_at, attempt_started_at, finished_at, ended_at, priority, lanes, flags, attempt,
     failures, interruptions, status, place, resting, owner, extra, tried, small)
    SELECT * FROM unnest($1::run_row[])";

/// By the primary key alone: a condition on the status would be met by the index of another place.
pub(super) const UPDATE_RUNS: &str =
    "UPDATE runs r SET lane = x.lane, due_at = x.due_at, wake_at = x.wake_at, version = x.version, stamp = x.stamp,
     fence = x.fence, last_event = x.last_event, nonce = x.nonce, expires_at = x.expires_at,
     heartbeat_at = x.heartbeat_at, claimed_at = x.claimed_at, started_at = x.started_at,
     attempt_started_at = x.attempt_started_at, finished_at = x.finished_at, ended_at = x.ended_at, flags = x.flags,
     attempt = x.attempt, failures = x.failures, interruptions = x.interruptions, status = x.status, place = x.place,
     resting = x.resting, owner = x.owner, extra = x.extra, tried = x.tried, small = x.small
     FROM unnest($1::run_row[]) AS x WHERE r.rid = x.rid";

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
    SELECT * FROM unnest($1::spec_row[])";

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
    SELECT * FROM unnest($1::attempt_row[])
    ON CONFLICT (rid, number) DO UPDATE SET status = excluded.status, instance = excluded.instance,
    fence = excluded.fence, started_at = excluded.started_at, finished_at = excluded.finished_at,
    error = excluded.error";

const PUT_EVENTS: &str = "INSERT INTO events
    (cursor, subject, seq, at, fence, aid, attempt, kind, status, instance, data)
    SELECT * FROM unnest($1::event_row[])";

const COUNT: &str = "INSERT INTO counters (tid, status, n)
    SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::bigint[])
    ON CONFLICT (tid, status) DO UPDATE SET n = counters.n + excluded.n";
