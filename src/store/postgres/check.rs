//! Compares what is derived from runs with them: counters, lanes, places. Reads every run, so it is for who
//! asks, never for the way of a claim.

use super::conn::{Conn, with};
use super::fault::Step;
use super::lanes::Stand;
use super::list::MARK;
use super::load::Needs;
use super::row::{Loaded, REST, STORED, WHOLE, get, place, status, text, trigger};
use super::tx::Tx;
use crate::model::{Run, RunStatus, Trigger};
use crate::store::{Decision, Expect, RunWrite};

/// Something derived that is not as the runs say.
pub(super) struct Finding {
    message: String,
    repair: Repair,
}

enum Repair {
    Count { tid: i64, status: i16, n: i64 },
    Lane { lid: i64, held: i64, total: i64 },
    Leave { lid: i64, rid: i64 },
    Stand { lid: i64, rid: i64, takes: bool, sched: bool },
    Enter { rid: i64 },
    Place { rid: i64 },
    LetGo { lid: i64 },
    Mark { mark: i64, first_at: i64, last_at: i64 },
}

/// What is wrong, in words.
pub(super) fn messages(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| finding.message.clone()).collect()
}

/// Everything that is wrong.
pub(super) async fn find(conn: &Conn) -> Step<Vec<Finding>> {
    let mut found = Vec::new();
    counters(conn, &mut found).await?;
    members(conn, &mut found).await?;
    lanes(conn, &mut found).await?;
    places(conn, &mut found).await?;
    idle_lanes(conn, &mut found).await?;
    marks(conn, &mut found).await?;
    Ok(found)
}

/// Runs that were queued at another time than listings are told.
async fn marks(conn: &Conn, found: &mut Vec<Finding>) -> Step<()> {
    let sql = format!(
        "SELECT s.rid / {MARK}, min(s.queued_at), max(s.queued_at) FROM specs s
         LEFT JOIN marks m ON m.mark = s.rid / {MARK}
         GROUP BY 1 HAVING coalesce(min(s.queued_at) < min(m.first_at) OR max(s.queued_at) > max(m.last_at), true)"
    );
    for row in &conn.ask(sql, Vec::new()).await? {
        let (mark, first_at, last_at): (i64, i64, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
        let message = format!("listings look for the runs from number {} on at other times", mark * MARK);
        found.push(Finding { message, repair: Repair::Mark { mark, first_at, last_at } });
    }
    Ok(())
}

async fn counters(conn: &Conn, found: &mut Vec<Finding>) -> Step<()> {
    let sql = "WITH rows AS (SELECT tid, status, count(*) AS n FROM runs GROUP BY tid, status
                   UNION ALL SELECT 0, status, count(*) FROM runs GROUP BY status),
              keys AS (SELECT tid, status FROM rows UNION SELECT tid, status FROM counters)
         SELECT k.tid, k.status, coalesce(r.n, 0), coalesce(c.n, 0), t.name FROM keys k
         LEFT JOIN rows r ON r.tid = k.tid AND r.status = k.status
         LEFT JOIN counters c ON c.tid = k.tid AND c.status = k.status
         LEFT JOIN task_names t ON t.tid = k.tid
         WHERE coalesce(r.n, 0) <> coalesce(c.n, 0)";
    for row in &conn.ask(sql, Vec::new()).await? {
        let (tid, number, n): (i64, i16, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
        let counted: i64 = get(row, 3)?;
        let whose = get::<Option<&str>>(row, 4)?.map_or("all tasks".to_owned(), |t| format!("task \"{t}\""));
        let word = status(number).map_or("unknown", RunStatus::as_str);
        found.push(Finding {
            message: format!("{whose}: {counted} runs are counted as {word}, there are {n}"),
            repair: Repair::Count { tid, status: number, n },
        });
    }
    Ok(())
}

/// Runs in lanes that should not be, or not so; runs that should be in lanes.
async fn members(conn: &Conn, found: &mut Vec<Finding>) -> Step<()> {
    let sql = "SELECT m.lid, m.rid, m.takes, m.sched, r.status, r.flags, s.run_id FROM lane_runs m
         LEFT JOIN runs r ON r.rid = m.rid LEFT JOIN specs s ON s.rid = m.rid";
    for row in &conn.ask(sql, Vec::new()).await? {
        let (lid, rid): (i64, i64) = (get(row, 0)?, get(row, 1)?);
        let run_id = get::<Option<&str>>(row, 6)?.map(str::to_owned);
        let run_id = run_id.unwrap_or_else(|| format!("number {rid}, which is gone"));
        let stands = get::<Option<i16>>(row, 4)?.map(status).transpose().unwrap_or(None);
        let Some(stands) = stands.filter(|status| status.is_active()) else {
            let message = format!("run \"{run_id}\" is in a lane and not active");
            found.push(Finding { message, repair: Repair::Leave { lid, rid } });
            continue;
        };
        let flags = get::<Option<i32>>(row, 5)?.unwrap_or(0);
        let scheduled = trigger(flags).is_ok_and(|trigger| trigger == Trigger::Schedule);
        let (takes, sched) = (stands.takes_room(), scheduled && stands == RunStatus::Queued);
        if (takes, sched) != (get(row, 2)?, get(row, 3)?) {
            let message = format!("run \"{run_id}\" is {stands} and its lanes say otherwise");
            found.push(Finding { message, repair: Repair::Stand { lid, rid, takes, sched } });
        }
    }
    let sql = "SELECT r.rid, s.run_id FROM runs r JOIN specs s ON s.rid = r.rid
         WHERE r.lanes > 0 AND r.status IN (0, 1, 2, 3, 10)
         AND NOT EXISTS (SELECT 1 FROM lane_runs m WHERE m.rid = r.rid)";
    for row in &conn.ask(sql, Vec::new()).await? {
        let message = format!("run \"{}\" is active and not in its lanes", get::<&str>(row, 1)?);
        found.push(Finding { message, repair: Repair::Enter { rid: get(row, 0)? } });
    }
    Ok(())
}

async fn lanes(conn: &Conn, found: &mut Vec<Finding>) -> Step<()> {
    let sql = "SELECT l.lid, l.name, l.held, l.total, count(m.rid) FILTER (WHERE m.takes), count(m.rid) FROM lanes l
         LEFT JOIN lane_runs m ON m.lid = l.lid GROUP BY l.lid
         HAVING l.held <> count(m.rid) FILTER (WHERE m.takes) OR l.total <> count(m.rid) OR count(m.rid) = 0";
    for row in &conn.ask(sql, Vec::new()).await? {
        let (held, total): (i64, i64) = (get(row, 4)?, get(row, 5)?);
        let message = format!(
            "lane \"{}\": {} of {} runs are counted to take room, {held} of {total} do",
            text(get(row, 1)?)?,
            get::<i64>(row, 2)?,
            get::<i64>(row, 3)?
        );
        found.push(Finding { message, repair: Repair::Lane { lid: get(row, 0)?, held, total } });
    }
    Ok(())
}

async fn places(conn: &Conn, found: &mut Vec<Finding>) -> Step<()> {
    let sql = "SELECT r.rid, s.run_id, r.place FROM runs r LEFT JOIN specs s ON s.rid = r.rid
         WHERE (r.status IN (0, 3)) <> (r.place BETWEEN 1 AND 4) OR r.place = 5
         OR (r.place = 3 AND NOT EXISTS (SELECT 1 FROM lane_runs m WHERE m.lid = r.lane AND m.rid = r.rid))";
    for row in &conn.ask(sql, Vec::new()).await? {
        let run_id = get::<Option<&str>>(row, 1)?.unwrap_or("?");
        let message = if get::<i16>(row, 2)? == place::UNREADABLE {
            format!("run \"{run_id}\" could not be read when it was to be claimed")
        } else {
            format!("run \"{run_id}\" does not wait where its status says")
        };
        found.push(Finding { message, repair: Repair::Place { rid: get(row, 0)? } });
    }
    Ok(())
}

/// Lanes with room in which runs wait and none is ready to take it.
async fn idle_lanes(conn: &Conn, found: &mut Vec<Finding>) -> Step<()> {
    let sql = "SELECT l.lid, l.name, count(*) FROM lanes l JOIN lane_runs m ON m.lid = l.lid
         JOIN runs r ON r.rid = m.rid AND r.place = 3 AND r.lane = l.lid
         WHERE l.held < m.most AND NOT EXISTS
         (SELECT 1 FROM lane_runs n JOIN runs o ON o.rid = n.rid WHERE n.lid = l.lid AND o.place = 1)
         GROUP BY l.lid";
    for row in &conn.ask(sql, Vec::new()).await? {
        let (name, n): (&str, i64) = (text(get(row, 1)?)?, get(row, 2)?);
        let message = format!("lane \"{name}\": {n} runs wait though there is room");
        found.push(Finding { message, repair: Repair::LetGo { lid: get(row, 0)? } });
    }
    Ok(())
}

impl Tx<'_> {
    /// Repairs what was found in this transaction. What was repaired may show more: until nothing is left, or
    /// what is left cannot be repaired.
    pub(super) async fn repair(&mut self) -> Step<Vec<String>> {
        let mut told: Vec<String> = Vec::new();
        self.memory.forget_runs();
        (self.wrote, self.disturbs) = (true, true);
        for _ in 0..4 {
            self.flush().await?;
            let findings = find(self.conn).await?;
            let fresh: Vec<&Finding> = findings.iter().filter(|f| !told.contains(&f.message)).collect();
            if fresh.is_empty() {
                break;
            }
            for finding in &fresh {
                self.make_good(&finding.repair).await?;
                // What was read may be what was wrong: the next one reads anew.
                self.flush().await?;
                self.runs.clear();
                self.by_id.clear();
                self.lanes.clear();
                self.lane_ids.clear();
            }
            told.extend(fresh.iter().map(|finding| finding.message.clone()));
        }
        Ok(told)
    }

    async fn make_good(&mut self, repair: &Repair) -> Step<()> {
        match *repair {
            Repair::Count { tid, status, n } => {
                let sql = "INSERT INTO counters (tid, status, n) VALUES ($1, $2, $3)
                    ON CONFLICT (tid, status) DO UPDATE SET n = excluded.n";
                self.ask(sql, with![tid, status, n]).await?;
            }
            Repair::Lane { lid, total: 0, .. } => {
                self.ask("DELETE FROM lanes WHERE lid = $1", with![lid]).await?;
            }
            Repair::Lane { lid, held, total } => {
                let version = self.new_lane_version();
                let sql = "UPDATE lanes SET held = $2, total = $3, version = $4 WHERE lid = $1";
                self.ask(sql, with![lid, held, total, version]).await?;
                self.open_lane(lid).await?;
            }
            Repair::Leave { lid, rid } => {
                self.ask("DELETE FROM lane_runs WHERE lid = $1 AND rid = $2", with![lid, rid]).await?;
            }
            Repair::Stand { lid, rid, takes, sched } => {
                let sql = "UPDATE lane_runs SET takes = $3, sched = $4 WHERE lid = $1 AND rid = $2";
                self.ask(sql, with![lid, rid, takes, sched]).await?;
            }
            Repair::Enter { rid } => self.enter_again(rid).await?,
            Repair::Place { rid } => self.place_again(rid).await?,
            Repair::LetGo { lid } => self.open_lane(lid).await?,
            Repair::Mark { mark, first_at, last_at } => {
                self.marks.insert(mark, (first_at, last_at));
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Reads a lane, and lets go of who has room in it.
    async fn open_lane(&mut self, lid: i64) -> Step<()> {
        for row in
            &self.ask("SELECT lid, name, version, held, total FROM lanes WHERE lid = $1", with![lid]).await?
        {
            self.take_lane(row, 0)?;
        }
        if let Some(lane) = self.lanes.get_mut(&lid) {
            lane.heads = None;
        }
        self.let_go(lid).await?;
        Ok(())
    }

    async fn enter_again(&mut self, rid: i64) -> Step<()> {
        let Some(Loaded { stored, run }) = self.readable(rid).await? else { return Ok(()) };
        self.read_lanes_of(&run).await?;
        let scheduled = run.spec.trigger == Trigger::Schedule;
        self.stand(rid, &run.spec.lanes, Stand::NONE, Stand::of(stored.status, scheduled));
        Ok(())
    }

    /// Who cannot be read stays out of the way.
    async fn place_again(&mut self, rid: i64) -> Step<()> {
        let Some(Loaded { stored, run }) = self.readable(rid).await? else { return Ok(()) };
        // Out of its place first, so that it is not in its own way.
        self.move_to(rid, place::NOWHERE, None);
        if !run.status.is_waiting() {
            return Ok(());
        }
        self.flush().await?;
        let members = self.members_of(&[rid]).await?.remove(&rid).unwrap_or_default();
        let (to, lane) = self.place_for(&stored, &members, stored.due_at).await?;
        self.move_to(rid, to, lane);
        Ok(())
    }

    async fn read_lanes_of(&mut self, run: &Run) -> Step<()> {
        let expect = Expect::At { version: 0, token: None, unrenewed: None };
        let write = RunWrite { expect, run: run.clone(), attempt: None, events: Vec::new() };
        let mut needs = Needs::default();
        needs.of_decision(&Decision::from(write));
        let (kinds, says) = needs.questions(self.memory);
        self.expect(&needs);
        for (kind, answer) in kinds.into_iter().zip(self.conn.say(None, says, None).await?) {
            self.take(kind, answer?)?;
        }
        Ok(())
    }

    async fn readable(&mut self, rid: i64) -> Step<Option<Loaded>> {
        let sql = format!("SELECT {STORED}, {REST} FROM runs r {WHOLE} WHERE r.rid = $1");
        let rows = self.ask(sql, with![rid]).await?;
        Ok(rows.first().and_then(|row| Loaded::read(row).ok()))
    }
}
