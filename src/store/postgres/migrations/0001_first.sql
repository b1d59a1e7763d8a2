-- The first schema. Append-only: a change of it is a new file beside this one.
--
-- Names are kept once and joined by number. What never changes about a run lies apart from what does: a transition
-- makes a new version of its row in "runs", and a new entry in each index of that table whose condition it meets.
-- What is indexed there is therefore little, and a status is not part of it: whoever only begins stays on its page.
-- Text that may hold any character is bytea: text of this server has no NUL.

-- Numbers that must never be given out twice, not even after the rows that had them were pruned. Whoever writes
-- locks this row first.
CREATE TABLE meta (
    id smallint PRIMARY KEY CHECK (id = 0),
    next_rid bigint NOT NULL,
    next_cursor bigint NOT NULL,
    next_tid bigint NOT NULL,
    next_aid bigint NOT NULL,
    next_lid bigint NOT NULL,
    lane_version bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO meta VALUES (0, 1, 1, 1, 1, 1, 0);

-- Names of tasks, also of those that are gone: their runs and occurrences stay.
CREATE TABLE task_names (tid bigint PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE);
CREATE TABLE agent_names (aid bigint PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE);

CREATE TABLE tasks (
    tid bigint PRIMARY KEY,
    task_id text COLLATE "C" NOT NULL UNIQUE,
    aid bigint NOT NULL,
    enabled boolean NOT NULL,
    revision bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    last_event bigint NOT NULL,
    spec text NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE schedules (
    tid bigint PRIMARY KEY,
    enabled boolean NOT NULL,
    version bigint NOT NULL,
    last_due bigint,
    fire_at bigint,
    place text NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX schedules_due ON schedules (fire_at) WHERE enabled AND fire_at IS NOT NULL;

-- What never changes about a run.
CREATE TABLE specs (
    rid bigint PRIMARY KEY,
    tid bigint NOT NULL,
    aid bigint NOT NULL,
    queued_at bigint NOT NULL,
    deadline_at bigint,
    occurrence bigint,
    run_id text COLLATE "C" NOT NULL UNIQUE,
    session bytea NOT NULL,
    spec text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX specs_of_task ON specs (tid, rid);

-- status: the number of RunStatus. place: 0 nowhere, 1 ready, 2 future, 3 lane, 4 paused, 5 unreadable.
-- resting: the status of a run that neither waits to be claimed nor is held. ended_at: of one that is terminal.
CREATE TABLE runs (
    rid bigint PRIMARY KEY,
    tid bigint NOT NULL,
    aid bigint NOT NULL,
    lane bigint,
    due_at bigint NOT NULL,
    wake_at bigint,
    version bigint NOT NULL,
    stamp bigint NOT NULL,
    fence bigint NOT NULL,
    last_event bigint NOT NULL,
    nonce bigint,
    expires_at bigint,
    heartbeat_at bigint,
    claimed_at bigint,
    started_at bigint,
    attempt_started_at bigint,
    finished_at bigint,
    ended_at bigint,
    priority integer NOT NULL,
    lanes integer NOT NULL,
    flags integer NOT NULL,
    attempt integer NOT NULL,
    failures integer NOT NULL,
    interruptions integer NOT NULL,
    status smallint NOT NULL,
    place smallint NOT NULL,
    resting smallint,
    owner uuid,
    extra text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX runs_ready ON runs (aid, priority DESC, due_at, rid) WHERE place = 1;
CREATE INDEX runs_future ON runs (due_at, rid) WHERE place = 2;
CREATE INDEX runs_blocked ON runs (lane, aid, priority DESC, due_at, rid) WHERE place = 3;
CREATE INDEX runs_paused ON runs (tid, rid) WHERE place = 4;
CREATE INDEX runs_waiting ON runs (rid) WHERE place <> 0;
CREATE INDEX runs_wake ON runs (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX runs_resting ON runs (resting, ended_at, rid) WHERE resting IS NOT NULL;

-- A result that is kept inline has bytes; one that is kept in a file has a size, a path and a preview.
CREATE TABLE results (
    rid bigint PRIMARY KEY,
    size bigint,
    media_type bytea NOT NULL,
    bytes bytea,
    path bytea,
    preview bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE attempts (
    rid bigint NOT NULL,
    fence bigint NOT NULL,
    started_at bigint NOT NULL,
    finished_at bigint,
    number integer NOT NULL,
    status smallint NOT NULL,
    instance uuid NOT NULL,
    error text,
    PRIMARY KEY (rid, number)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- subject: the rid of a run, or the tid of a task with its sign turned. aid: of a task's events only. seq: that
-- of an earlier task of the same name lies below 0, 2^40 for each task that came after it.
CREATE TABLE events (
    cursor bigint PRIMARY KEY,
    subject bigint NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    fence bigint NOT NULL,
    aid bigint,
    attempt integer NOT NULL,
    kind smallint NOT NULL,
    status smallint,
    instance uuid,
    data text
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX events_of_subject ON events (subject, seq);
CREATE INDEX events_of_tasks ON events (at) WHERE subject < 0;

CREATE TABLE occurrences (
    tid bigint NOT NULL,
    due_at bigint NOT NULL,
    recorded_at bigint NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (tid, due_at)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX occurrences_recorded ON occurrences (recorded_at);

CREATE TABLE idempotency (
    tid bigint NOT NULL,
    rid bigint NOT NULL,
    digest bigint NOT NULL,
    key bytea NOT NULL,
    PRIMARY KEY (tid, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX idempotency_of_run ON idempotency (rid);

-- A lane that has active runs. held: how many of them take room.
CREATE TABLE lanes (
    lid bigint PRIMARY KEY,
    version bigint NOT NULL,
    held bigint NOT NULL,
    total bigint NOT NULL,
    name bytea NOT NULL UNIQUE
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- pos: the order in which the run names its lanes. most: how many it lets take room. sched: a queued run that a
-- schedule wanted.
CREATE TABLE lane_runs (
    lid bigint NOT NULL,
    rid bigint NOT NULL,
    most bigint NOT NULL,
    pos integer NOT NULL,
    takes boolean NOT NULL,
    sched boolean NOT NULL,
    PRIMARY KEY (lid, rid)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX lanes_of_run ON lane_runs (rid);
CREATE INDEX lanes_scheduled ON lane_runs (lid, rid) WHERE sched;

-- How many runs there are, by task and status; task 0 stands for all.
CREATE TABLE counters (
    tid bigint NOT NULL,
    n bigint NOT NULL,
    status smallint NOT NULL,
    PRIMARY KEY (tid, status)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- What is said of agents that were made over HTTP. The text is the host's affair.
CREATE TABLE agents (agent_id text COLLATE "C" PRIMARY KEY, definition bytea NOT NULL);
