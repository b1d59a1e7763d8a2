-- A run's life in fewer rows, and listings that find what they are asked for. Append-only, as the first.

-- Raised by every transaction that writes runs: who finds it as it left it knows how the runs stand that it wrote.
ALTER TABLE meta ADD COLUMN version bigint NOT NULL DEFAULT 0;

-- tried: the latest attempt, as attempt.rs writes it; those before it are in "attempts". small: a result of few bytes,
-- as result.rs writes it; others are in "results".
ALTER TABLE runs ADD COLUMN tried bytea, ADD COLUMN small bytea;

-- Where runs wait that nobody can claim: place 4 paused, 5 unreadable. Those that wait elsewhere are in the indexes of
-- their places.
DROP INDEX runs_waiting;
DROP INDEX runs_paused;
CREATE INDEX runs_paused ON runs (tid, rid) WHERE place >= 4;

-- An entry of an index has a bounded size, a session has not.
CREATE INDEX specs_of_agent ON specs (aid, rid);
CREATE INDEX specs_of_session ON specs (substring(session FROM 1 FOR 128), rid);

-- Between which instants the runs were queued whose numbers are mark * 4096 and the 4095 after it.
CREATE TABLE marks (
    mark bigint PRIMARY KEY,
    first_at bigint NOT NULL,
    last_at bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
INSERT INTO marks SELECT rid / 4096, min(queued_at), max(queued_at) FROM specs GROUP BY 1;
