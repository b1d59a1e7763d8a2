-- Fewer indexes for what every run does, and more for what listings are asked for. Append-only, as those before.

-- One index of all that wait, instead of one for each place: a statement opens every index that it may touch.
-- lane: of place 3 the lane, of place 2 when it is due, of place 4 the task; of others none.
UPDATE runs SET lane = due_at WHERE place = 2;
UPDATE runs SET lane = tid WHERE place = 4;
DROP INDEX runs_ready;
DROP INDEX runs_future;
DROP INDEX runs_blocked;
DROP INDEX runs_paused;
CREATE INDEX runs_waiting ON runs (place, lane, aid, priority DESC, due_at) WHERE place > 0;

-- Events of tasks are found by a table of their own: those of runs, which are most, have no index.
CREATE TABLE task_events (
    tid INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    PRIMARY KEY (tid, seq)
) WITHOUT ROWID;
INSERT INTO task_events SELECT -subject, seq, at, cursor FROM events WHERE subject < 0 ORDER BY subject, seq;
CREATE INDEX task_events_at ON task_events (at, tid, seq);
DROP INDEX events_of_task;
DROP INDEX events_of_tasks;

-- Listings of an agent and of a session. session: a digest of its name; none if the name is made of the id of the run.
ALTER TABLE runs ADD COLUMN session INTEGER;
CREATE INDEX runs_of_agent ON runs (aid);
CREATE INDEX runs_of_session ON runs (session) WHERE session IS NOT NULL;

-- Between which instants the runs were queued whose numbers are mark * 4096 and the 4095 after it.
CREATE TABLE marks (mark INTEGER PRIMARY KEY, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL);
INSERT INTO marks SELECT rid / 4096, min(queued_at), max(queued_at) FROM runs GROUP BY 1;
