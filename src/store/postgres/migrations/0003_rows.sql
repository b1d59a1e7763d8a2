-- Rows as programs send them, each as one value. A column that is added later comes with another type beside these: a
-- program that knows these goes on writing what it knows.

CREATE TYPE run_row AS (
    rid bigint, tid bigint, aid bigint, lane bigint, due_at bigint, wake_at bigint, version bigint, stamp bigint,
    fence bigint, last_event bigint, nonce bigint, expires_at bigint, heartbeat_at bigint, claimed_at bigint,
    started_at bigint, attempt_started_at bigint, finished_at bigint, ended_at bigint, priority integer,
    lanes integer, flags integer, attempt integer, failures integer, interruptions integer, status smallint,
    place smallint, resting smallint, owner uuid, extra text, tried bytea, small bytea
);

CREATE TYPE spec_row AS (
    rid bigint, tid bigint, aid bigint, queued_at bigint, deadline_at bigint, occurrence bigint, run_id text,
    session bytea, spec text
);

CREATE TYPE attempt_row AS (
    rid bigint, fence bigint, started_at bigint, finished_at bigint, number integer, status smallint, instance uuid,
    error text
);

CREATE TYPE event_row AS (
    cursor bigint, subject bigint, seq bigint, at bigint, fence bigint, aid bigint, attempt integer, kind smallint,
    status smallint, instance uuid, data text
);
