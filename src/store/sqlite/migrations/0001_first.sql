-- The first schema. Append-only: a change of it is a new file beside this one.
--
-- Names are kept once and joined by number, so that the rows and indexes that every transition touches stay
-- small. What never changes about a run lies apart from what does: a transition rewrites its row.

-- Numbers that must never be given out twice, not even after the rows that had them were pruned.
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    next_rid INTEGER NOT NULL,
    next_cursor INTEGER NOT NULL,
    lane_version INTEGER NOT NULL
);
INSERT INTO meta (id, next_rid, next_cursor, lane_version) VALUES (0, 1, 1, 0);

-- Names of tasks, also of those that are gone: their runs and occurrences stay.
CREATE TABLE task_names (tid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE agent_names (aid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

CREATE TABLE tasks (
    tid INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL UNIQUE,
    aid INTEGER NOT NULL,
    enabled INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    spec TEXT NOT NULL
);

CREATE TABLE schedules (
    tid INTEGER PRIMARY KEY,
    enabled INTEGER NOT NULL,
    version INTEGER NOT NULL,
    last_due INTEGER,
    fire_at INTEGER,
    place TEXT NOT NULL
);
CREATE INDEX schedules_due ON schedules (fire_at) WHERE enabled = 1 AND fire_at IS NOT NULL;

-- What the runs of a task have in common, kept once. runs: how many have it.
CREATE TABLE parts (
    part INTEGER PRIMARY KEY AUTOINCREMENT,
    tid INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    spec TEXT NOT NULL
);
CREATE INDEX parts_of_task ON parts (tid, part);

-- status: the number of RunStatus. place: 0 nowhere, 1 ready, 2 future, 3 lane, 4 paused, 5 unreadable. part: none
-- if its specification is its own. body: everything that no statement looks at, as pack.rs and body.rs write it.
CREATE TABLE runs (
    rid INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    tid INTEGER NOT NULL,
    aid INTEGER NOT NULL,
    status INTEGER NOT NULL,
    place INTEGER NOT NULL,
    lane INTEGER,
    priority INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    wake_at INTEGER,
    lanes INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    nonce INTEGER,
    queued_at INTEGER NOT NULL,
    finished_at INTEGER,
    part INTEGER,
    body BLOB NOT NULL
);
CREATE INDEX runs_of_task ON runs (tid);
CREATE INDEX runs_ready ON runs (aid, priority DESC, due_at) WHERE place = 1;
CREATE INDEX runs_future ON runs (due_at) WHERE place = 2;
CREATE INDEX runs_blocked ON runs (lane, aid, priority DESC, due_at) WHERE place = 3;
CREATE INDEX runs_paused ON runs (tid) WHERE place = 4;
CREATE INDEX runs_wake ON runs (wake_at, nonce) WHERE wake_at IS NOT NULL;
CREATE INDEX runs_ended ON runs (status, finished_at) WHERE finished_at IS NOT NULL;

-- The specifications of runs that are one of their kind.
CREATE TABLE specs (rid INTEGER PRIMARY KEY, spec TEXT NOT NULL);

-- A small result is in the row of its run. One that is kept inline has bytes; one that is kept in a file has a size, a path and a preview.
CREATE TABLE results (
    rid INTEGER PRIMARY KEY,
    media_type TEXT NOT NULL,
    bytes BLOB,
    size INTEGER,
    path TEXT,
    preview TEXT
);

-- Attempts before the latest, which is in the row of its run.
CREATE TABLE attempts (
    rid INTEGER NOT NULL,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (rid, number)
) WITHOUT ROWID;

-- subject: the rid of a run, or the tid of a task with its sign turned. seq: that of an earlier task of the same name
-- lies below 0, 2^40 for each task that came after it. prev: the cursor of the event of the same run before it; the
-- row of the run has that of its last one, so that they need no index.
CREATE TABLE events (
    cursor INTEGER PRIMARY KEY,
    subject INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    prev INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    data TEXT
);
CREATE UNIQUE INDEX events_of_task ON events (subject, seq) WHERE subject < 0;
CREATE INDEX events_of_tasks ON events (at) WHERE subject < 0;

CREATE TABLE occurrences (
    tid INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (tid, due_at)
) WITHOUT ROWID;
CREATE INDEX occurrences_recorded ON occurrences (recorded_at);

CREATE TABLE idempotency (
    tid INTEGER NOT NULL,
    key TEXT NOT NULL,
    rid INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (tid, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_of_run ON idempotency (rid);

-- A lane that has active runs. held: how many of them take room.
CREATE TABLE lanes (
    lid INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    held INTEGER NOT NULL,
    total INTEGER NOT NULL
);
-- pos: the order in which the run names its lanes. most: how many it lets take room. sched: a queued run that a schedule wanted.
CREATE TABLE lane_runs (
    lid INTEGER NOT NULL,
    rid INTEGER NOT NULL,
    pos INTEGER NOT NULL,
    most INTEGER NOT NULL,
    takes INTEGER NOT NULL,
    sched INTEGER NOT NULL,
    PRIMARY KEY (lid, rid)
) WITHOUT ROWID;
CREATE INDEX lanes_of_run ON lane_runs (rid);
CREATE INDEX lanes_scheduled ON lane_runs (lid, rid) WHERE sched = 1;

-- How many runs there are, by task and status; task 0 stands for all.
CREATE TABLE counters (
    tid INTEGER NOT NULL,
    status INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (tid, status)
) WITHOUT ROWID;
