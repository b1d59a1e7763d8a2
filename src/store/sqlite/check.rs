//! Compares what is derived from runs with them: counters, lanes, places. Reads every run, so it is for who
//! asks, never for the way of a claim.

use rusqlite::{Connection, params};

use super::fault::{Fault, Step};
use super::lanes::Stand;
use super::row::{Loaded, place, status, trigger};
use super::tx::{MARK, PUT_MARK, Tx};
use crate::model::{RunStatus, Trigger};

/// Something derived that is not as the runs say.
pub(super) struct Finding {
    message: String,
    repair: Repair,
}

enum Repair {
    Count { tid: i64, status: i64, n: i64 },
    Lane { lid: i64, held: i64, total: i64 },
    Leave { lid: i64, rid: i64 },
    Stand { lid: i64, rid: i64, takes: bool, sched: bool },
    Enter { rid: i64 },
    Place { rid: i64 },
    LetGo { lid: i64 },
    Mark { mark: i64, first_at: i64, last_at: i64 },
    TaskEvent { tid: i64, seq: i64, at: i64, cursor: i64 },
}

/// What is wrong, in words.
pub(super) fn messages(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| finding.message.clone()).collect()
}

/// Everything that is wrong.
pub(super) fn find(conn: &Connection) -> Step<Vec<Finding>> {
    let mut found = Vec::new();
    counters(conn, &mut found)?;
    members(conn, &mut found)?;
    lanes(conn, &mut found)?;
    places(conn, &mut found)?;
    idle_lanes(conn, &mut found)?;
    marks(conn, &mut found)?;
    task_events(conn, &mut found)?;
    Ok(found)
}

/// Runs that were queued at another time than listings are told.
fn marks(conn: &Connection, found: &mut Vec<Finding>) -> Step<()> {
    let mut select = conn.prepare(
        "SELECT r.rid / 4096, min(r.queued_at), max(r.queued_at) FROM runs r
         LEFT JOIN marks m ON m.mark = r.rid / 4096
         GROUP BY 1 HAVING coalesce(min(r.queued_at) < min(m.first_at) OR max(r.queued_at) > max(m.last_at), 1)",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (mark, first_at, last_at): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let message = format!("listings look for the runs from number {} on at other times", mark * MARK);
        found.push(Finding { message, repair: Repair::Mark { mark, first_at, last_at } });
    }
    Ok(())
}

/// Events of tasks that are not found by their task.
fn task_events(conn: &Connection, found: &mut Vec<Finding>) -> Step<()> {
    let mut select = conn.prepare(
        "SELECT -e.subject, e.seq, e.at, e.cursor FROM events e WHERE e.subject < 0
         AND NOT EXISTS
         (SELECT 1 FROM task_events t WHERE t.tid = -e.subject AND t.seq = e.seq AND t.cursor = e.cursor)",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (tid, seq, at, cursor): (i64, i64, i64, i64) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let message = format!("event {cursor} is not found by its task");
        found.push(Finding { message, repair: Repair::TaskEvent { tid, seq, at, cursor } });
    }
    Ok(())
}

fn counters(conn: &Connection, found: &mut Vec<Finding>) -> Step<()> {
    let mut select = conn.prepare(
        "WITH rows AS (SELECT tid, status, count(*) AS n FROM runs GROUP BY tid, status
                       UNION ALL SELECT 0, status, count(*) FROM runs GROUP BY status),
              keys AS (SELECT tid, status FROM rows UNION SELECT tid, status FROM counters)
         SELECT k.tid, k.status, coalesce(r.n, 0), coalesce(c.n, 0), t.name FROM keys k
         LEFT JOIN rows r ON r.tid = k.tid AND r.status = k.status
         LEFT JOIN counters c ON c.tid = k.tid AND c.status = k.status
         LEFT JOIN task_names t ON t.tid = k.tid
         WHERE coalesce(r.n, 0) <> coalesce(c.n, 0)",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (tid, number, n): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let counted: i64 = row.get(3)?;
        let whose =
            row.get::<_, Option<String>>(4)?.map_or("all tasks".to_owned(), |t| format!("task \"{t}\""));
        let word = status(number).map_or("unknown", RunStatus::as_str);
        found.push(Finding {
            message: format!("{whose}: {counted} runs are counted as {word}, there are {n}"),
            repair: Repair::Count { tid, status: number, n },
        });
    }
    Ok(())
}

/// Runs in lanes that should not be, or not so; runs that should be in lanes.
fn members(conn: &Connection, found: &mut Vec<Finding>) -> Step<()> {
    let mut select = conn.prepare(
        "SELECT m.lid, m.rid, m.takes, m.sched, r.status, r.flags, r.run_id FROM lane_runs m
         LEFT JOIN runs r ON r.rid = m.rid",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (lid, rid): (i64, i64) = (row.get(0)?, row.get(1)?);
        let run_id: Option<String> = row.get(6)?;
        let run_id = run_id.unwrap_or_else(|| format!("number {rid}, which is gone"));
        let number: Option<i64> = row.get(4)?;
        let stands = number.map(status).transpose().unwrap_or(None);
        let Some(stands) = stands.filter(|status| status.is_active()) else {
            let message = format!("run \"{run_id}\" is in a lane and not active");
            found.push(Finding { message, repair: Repair::Leave { lid, rid } });
            continue;
        };
        let scheduled = trigger(row.get(5)?).is_ok_and(|trigger| trigger == Trigger::Schedule);
        let (takes, sched) = (stands.takes_room(), scheduled && stands == RunStatus::Queued);
        if (takes, sched) != (row.get(2)?, row.get(3)?) {
            let message = format!("run \"{run_id}\" is {stands} and its lanes say otherwise");
            found.push(Finding { message, repair: Repair::Stand { lid, rid, takes, sched } });
        }
    }
    let mut select = conn.prepare(
        "SELECT rid, run_id FROM runs r WHERE lanes > 0 AND status IN (0, 1, 2, 3, 10)
         AND NOT EXISTS (SELECT 1 FROM lane_runs m WHERE m.rid = r.rid)",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let message = format!("run \"{}\" is active and not in its lanes", row.get::<_, String>(1)?);
        found.push(Finding { message, repair: Repair::Enter { rid: row.get(0)? } });
    }
    Ok(())
}

fn lanes(conn: &Connection, found: &mut Vec<Finding>) -> Step<()> {
    let mut select = conn.prepare(
        "SELECT l.lid, l.name, l.held, l.total, coalesce(sum(m.takes), 0), count(m.rid) FROM lanes l
         LEFT JOIN lane_runs m ON m.lid = l.lid GROUP BY l.lid
         HAVING l.held <> coalesce(sum(m.takes), 0) OR l.total <> count(m.rid) OR count(m.rid) = 0",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (held, total): (i64, i64) = (row.get(4)?, row.get(5)?);
        let message = format!(
            "lane \"{}\": {} of {} runs are counted to take room, {held} of {total} do",
            row.get::<_, String>(1)?,
            row.get::<_, i64>(2)?,
            row.get::<_, i64>(3)?
        );
        found.push(Finding { message, repair: Repair::Lane { lid: row.get(0)?, held, total } });
    }
    Ok(())
}

fn places(conn: &Connection, found: &mut Vec<Finding>) -> Step<()> {
    let mut select = conn.prepare(
        "SELECT r.rid, r.run_id, r.place FROM runs r
         WHERE (r.status IN (0, 3)) <> (r.place BETWEEN 1 AND 4) OR r.place = 5
         OR (r.place = 2 AND r.lane IS NOT r.due_at) OR (r.place = 4 AND r.lane IS NOT r.tid)
         OR (r.place = 3 AND NOT EXISTS (SELECT 1 FROM lane_runs m WHERE m.lid = r.lane AND m.rid = r.rid))",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let run_id: String = row.get(1)?;
        let message = if row.get::<_, i64>(2)? == place::UNREADABLE {
            format!("run \"{run_id}\" could not be read when it was to be claimed")
        } else {
            format!("run \"{run_id}\" does not wait where its status says")
        };
        found.push(Finding { message, repair: Repair::Place { rid: row.get(0)? } });
    }
    Ok(())
}

/// Lanes with room in which runs wait and none is ready to take it.
fn idle_lanes(conn: &Connection, found: &mut Vec<Finding>) -> Step<()> {
    let mut select = conn.prepare(
        "SELECT l.lid, l.name, count(*) FROM lanes l JOIN lane_runs m ON m.lid = l.lid
         JOIN runs r ON r.rid = m.rid AND r.place = 3 AND r.lane = l.lid
         WHERE l.held < m.most AND NOT EXISTS
         (SELECT 1 FROM lane_runs n JOIN runs o ON o.rid = n.rid WHERE n.lid = l.lid AND o.place = 1)
         GROUP BY l.lid",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (name, n): (String, i64) = (row.get(1)?, row.get(2)?);
        let message = format!("lane \"{name}\": {n} runs wait though there is room");
        found.push(Finding { message, repair: Repair::LetGo { lid: row.get(0)? } });
    }
    Ok(())
}

impl Tx<'_, '_> {
    /// Repairs what was found in this transaction. What was repaired may show more: until nothing is left, or
    /// what is left cannot be repaired.
    pub(super) fn repair(&mut self) -> Step<Vec<String>> {
        let mut told = Vec::new();
        self.lanes.write(self.conn)?;
        self.known.forget_all();
        for _ in 0..4 {
            let findings = find(self.conn)?;
            let fresh: Vec<&Finding> = findings.iter().filter(|f| !told.contains(&f.message)).collect();
            if fresh.is_empty() {
                break;
            }
            for finding in &fresh {
                self.make_good(&finding.repair)?;
                // What is looked for, and repaired by statements of its own, is in the tables.
                self.lanes.write(self.conn)?;
            }
            told.extend(fresh.iter().map(|finding| finding.message.clone()));
        }
        Ok(told)
    }

    fn make_good(&mut self, repair: &Repair) -> Step<()> {
        match *repair {
            Repair::Count { tid, status, n } => {
                let sql = "INSERT INTO counters (tid, status, n) VALUES (?1, ?2, ?3)
                    ON CONFLICT (tid, status) DO UPDATE SET n = excluded.n";
                self.conn.prepare_cached(sql)?.execute([tid, status, n])?;
            }
            Repair::Lane { lid, total: 0, .. } => {
                self.conn.execute("DELETE FROM lanes WHERE lid = ?1", [lid])?;
            }
            Repair::Lane { lid, held, total } => {
                let version = self.new_lane_version();
                let sql = "UPDATE lanes SET held = ?2, total = ?3, version = ?4 WHERE lid = ?1";
                self.conn.execute(sql, [lid, held, total, version])?;
                self.let_go(lid)?;
            }
            Repair::Leave { lid, rid } => {
                self.conn.execute("DELETE FROM lane_runs WHERE lid = ?1 AND rid = ?2", [lid, rid])?;
            }
            Repair::Stand { lid, rid, takes, sched } => {
                let sql = "UPDATE lane_runs SET takes = ?3, sched = ?4 WHERE lid = ?1 AND rid = ?2";
                self.conn.execute(sql, params![lid, rid, takes, sched])?;
            }
            Repair::Enter { rid } => self.enter_again(rid)?,
            Repair::Place { rid } => self.place_again(rid)?,
            Repair::LetGo { lid } => {
                self.let_go(lid)?;
            }
            Repair::Mark { mark, first_at, last_at } => {
                self.conn.execute(PUT_MARK, [mark, first_at, last_at])?;
            }
            Repair::TaskEvent { tid, seq, at, cursor } => {
                let sql = "INSERT OR REPLACE INTO task_events (tid, seq, at, cursor) VALUES (?1, ?2, ?3, ?4)";
                self.conn.execute(sql, [tid, seq, at, cursor])?;
            }
        }
        Ok(())
    }

    fn enter_again(&mut self, rid: i64) -> Step<()> {
        if let Some(Loaded { stored, run }) = self.readable(rid)? {
            let scheduled = run.spec.trigger == Trigger::Schedule;
            self.stand(rid, &run.spec.lanes, Stand::NONE, Stand::of(stored.status, scheduled))?;
        }
        Ok(())
    }

    /// Who cannot be read stays out of the way.
    fn place_again(&mut self, rid: i64) -> Step<()> {
        let Some(Loaded { stored, run }) = self.readable(rid)? else { return Ok(()) };
        if !run.status.is_waiting() {
            return self.move_to(rid, place::NOWHERE, None);
        }
        // Out of its place first, so that it is not in its own way.
        self.move_to(rid, place::NOWHERE, None)?;
        let members = self.members(rid)?;
        let (to, lane) = self.place_for(&members, stored.aid, stored.due_at)?;
        self.move_to(rid, to, lane)
    }

    fn readable(&mut self, rid: i64) -> Step<Option<Loaded>> {
        match self.load(rid) {
            Err(Fault::Unreadable(_)) => Ok(None),
            answer => answer,
        }
    }
}
