-- Backfills, and the rules of time zones as they were when jobs were last planned by them. New tables, and one column
-- that is NULL for every row there is: nothing is rewritten, and nobody waits for it.

-- A past range of a job's due times that somebody wants to have run. The timing is the job's own at that moment, with what
-- its calendars say then: a change of the job changes what is run, not which times.
CREATE TABLE hourhand.backfills (
    backfill_id  uuid PRIMARY KEY,
    namespace_id int NOT NULL,
    job_id       uuid NOT NULL,
    timing       jsonb NOT NULL,
    from_time    timestamptz NOT NULL,
    to_time      timestamptz NOT NULL CHECK (to_time > from_time),       -- not included
    first_due    timestamptz NOT NULL,
    last_due     timestamptz NOT NULL CHECK (last_due >= first_due),
    total        int NOT NULL CHECK (total > 0),
    next_due     timestamptz,                      -- the first one not dealt with; NULL: all have been
    existing     text NOT NULL CHECK (existing IN ('skip', 'retry_failed', 'repeat')),
    parallelism  int NOT NULL CHECK (parallelism BETWEEN 1 AND 1000),
    rate_count   int CHECK (rate_count > 0),       -- released per rate_seconds; NULL: any number
    rate_seconds double precision CHECK (rate_seconds > 0),
    overlap      text CHECK (overlap = 'allow'),   -- NULL: the job's own policy
    reason       text CHECK (overlap IS NULL OR reason IS NOT NULL),
    note         text,
    state        text NOT NULL CHECK (state IN ('running', 'paused', 'completed', 'cancelled')),
    state_reason text,
    open         boolean NOT NULL DEFAULT true,    -- something is still to be released, or not finished
    left_out     int NOT NULL DEFAULT 0,
    succeeded    int NOT NULL DEFAULT 0,
    failed       int NOT NULL DEFAULT 0,
    cancelled    int NOT NULL DEFAULT 0,
    skipped      int NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    created_by   text NOT NULL,
    changed_at   timestamptz NOT NULL,
    changed_by   text NOT NULL,
    ended_at     timestamptz
) WITH (fillfactor = 70);
CREATE INDEX backfills_open ON hourhand.backfills (backfill_id) WHERE open;
CREATE INDEX backfills_of_namespace ON hourhand.backfills (namespace_id, backfill_id);
CREATE INDEX backfills_of_job ON hourhand.backfills (job_id, backfill_id);

-- What a backfill has released. The key is the guard: a due time is released once, however often a scheduler that was
-- killed half-way is followed by another. And no due time of a job is under way in two backfills.
CREATE TABLE hourhand.backfill_runs (
    backfill_id uuid NOT NULL,
    due         timestamptz NOT NULL,
    job_id      uuid NOT NULL,
    run_id      uuid NOT NULL UNIQUE,
    released_at timestamptz NOT NULL,
    state       smallint CHECK (state BETWEEN 10 AND 16),                -- how it ended; NULL: not yet
    PRIMARY KEY (backfill_id, due)
);
CREATE UNIQUE INDEX backfill_runs_live ON hourhand.backfill_runs (job_id, due) WHERE state IS NULL;
CREATE INDEX backfill_runs_unsettled ON hourhand.backfill_runs (backfill_id) WHERE state IS NULL;
CREATE INDEX backfill_runs_of_job ON hourhand.backfill_runs (job_id, due);
CREATE INDEX backfill_runs_by_release ON hourhand.backfill_runs (backfill_id, released_at);

ALTER TABLE hourhand.run_requests ADD COLUMN backfill_id uuid;

-- What each zone's rules were when its jobs were last planned by them, as a digest; and under the name '' the version of
-- all tz data. Where they differ from those that a scheduler has, the cursors of the zone's jobs are computed anew.
CREATE TABLE hourhand.zone_rules (
    zone       text PRIMARY KEY,
    digest     text NOT NULL,
    changed_at timestamptz NOT NULL
);
