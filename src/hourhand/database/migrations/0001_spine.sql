-- The spine: definitions, the cursor, live runs, history. State is table membership: what is hot is narrow and
-- small, what is history is append-only. Every table is written with the schema name `hourhand`, which is replaced
-- when another one was chosen.

CREATE TABLE hourhand.namespaces (
    namespace_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    created_at   timestamptz NOT NULL DEFAULT now()
);
INSERT INTO hourhand.namespaces (name) VALUES ('default');

-- A lane is what an executor chooses its work by: a queue, and what a run needs ("command", "python:reports.build").
CREATE TABLE hourhand.lanes (
    lane_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue   text NOT NULL,
    needs   text NOT NULL,
    UNIQUE (queue, needs)
);

-- No foreign keys on the tables of the hot path: each costs a look-up per row, and every writer resolves the
-- number from its own cache of a table that nothing is ever deleted from.
CREATE TABLE hourhand.jobs (
    job_id          uuid NOT NULL,
    namespace_id    int NOT NULL,
    lane_id         int NOT NULL,
    name            text NOT NULL,
    kind            text NOT NULL,
    payload         jsonb NOT NULL,
    due_at          timestamptz,           -- the single due time of a job that runs once
    timing          jsonb,                 -- when it falls due; NULL where due_at says it all
    priority        smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
    max_retries     smallint NOT NULL CHECK (max_retries >= 0),
    retry           jsonb,                 -- NULL: the default curve
    catchup         jsonb,                 -- NULL: the default policy
    timeout_seconds double precision CHECK (timeout_seconds > 0),
    labels          jsonb,
    description     text,
    owner           text NOT NULL,
    status          smallint NOT NULL CHECK (status IN (0, 1, 2)),   -- active, paused, cancelled
    pause_reason    text,
    version         int NOT NULL,
    created_at      timestamptz NOT NULL,
    created_by      text NOT NULL,
    updated_at      timestamptz NOT NULL,
    updated_by      text,                  -- NULL: nobody since created_by
    PRIMARY KEY (namespace_id, job_id),
    CHECK (due_at IS NOT NULL OR timing IS NOT NULL)
) PARTITION BY RANGE (job_id);
CREATE TABLE hourhand.jobs_rest PARTITION OF hourhand.jobs DEFAULT;

CREATE TABLE hourhand.job_versions (
    job_id     uuid NOT NULL,
    version    int NOT NULL,
    definition jsonb NOT NULL,
    changed_at timestamptz NOT NULL,
    changed_by text NOT NULL,
    PRIMARY KEY (job_id, version)
);

-- The cursor: one row per job that is still to fall due.
CREATE TABLE hourhand.timetable (
    job_id       uuid PRIMARY KEY,
    next_fire    timestamptz NOT NULL,
    namespace_id int NOT NULL,
    lane_id      int NOT NULL,
    version      int NOT NULL,
    shard        smallint NOT NULL CHECK (shard BETWEEN 0 AND 1023),
    priority     smallint NOT NULL,
    recurring    boolean NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
-- By time first: a planner then reads what is due and nothing else, however many shards it owns.
CREATE INDEX timetable_once ON hourhand.timetable (next_fire, shard) WHERE NOT recurring;
CREATE INDEX timetable_recurring ON hourhand.timetable (next_fire, shard) WHERE recurring;

CREATE SEQUENCE hourhand.fence;   -- no cache: a session's own stock would hand out numbers that do not grow

CREATE TABLE hourhand.live_runs (
    run_id        uuid PRIMARY KEY,
    job_id        uuid NOT NULL,
    scheduled_for timestamptz NOT NULL,
    ready_at      timestamptz NOT NULL,
    started_at    timestamptz,
    fence         bigint,
    namespace_id  int NOT NULL,
    lane_id       int NOT NULL,
    executor_id   int,
    version       int NOT NULL,
    state         smallint NOT NULL CHECK (state BETWEEN 0 AND 4),
    priority      smallint NOT NULL,
    cause         smallint NOT NULL CHECK (cause BETWEEN 0 AND 2),
    attempt       smallint NOT NULL DEFAULT 0,
    failures      smallint NOT NULL DEFAULT 0,
    losses        smallint NOT NULL DEFAULT 0
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
CREATE INDEX live_runs_ready ON hourhand.live_runs (lane_id, priority DESC, ready_at) WHERE state = 0;
-- Jobs that run once have one scheduled run, whose id can be computed; only the others need to be looked up by job.
CREATE INDEX live_runs_by_job ON hourhand.live_runs (job_id) WHERE cause <> 0;
CREATE INDEX live_runs_cancelling ON hourhand.live_runs (executor_id) WHERE state = 4;

CREATE TABLE hourhand.runs (
    run_id        uuid NOT NULL,
    job_id        uuid NOT NULL,
    scheduled_for timestamptz NOT NULL,
    started_at    timestamptz,
    ended_at      timestamptz NOT NULL,
    namespace_id  int NOT NULL,
    executor_id   int,
    version       int NOT NULL,
    state         smallint NOT NULL CHECK (state BETWEEN 10 AND 16),
    cause         smallint NOT NULL,
    attempt       smallint NOT NULL,
    reason        text,
    error         text,
    result        jsonb,
    PRIMARY KEY (namespace_id, run_id)
) PARTITION BY RANGE (run_id);
CREATE INDEX runs_by_job ON hourhand.runs (job_id, run_id);
CREATE TABLE hourhand.runs_rest PARTITION OF hourhand.runs DEFAULT;

-- Attempts that did not finish their run.
CREATE TABLE hourhand.attempts (
    run_id      uuid NOT NULL,
    attempt     smallint NOT NULL,
    state       smallint NOT NULL,
    executor_id int,
    fence       bigint,
    started_at  timestamptz,
    ended_at    timestamptz NOT NULL,
    reason      text,
    error       text,
    PRIMARY KEY (run_id, attempt)
) PARTITION BY RANGE (run_id);
CREATE TABLE hourhand.attempts_rest PARTITION OF hourhand.attempts DEFAULT;

CREATE TABLE hourhand.log_chunks (
    run_id     uuid NOT NULL,
    attempt    smallint NOT NULL,
    first_line int NOT NULL,
    at         timestamptz[] NOT NULL,
    stream     smallint[] NOT NULL,
    lines      text[] NOT NULL,
    PRIMARY KEY (run_id, attempt, first_line)
) PARTITION BY RANGE (run_id);
CREATE TABLE hourhand.log_chunks_rest PARTITION OF hourhand.log_chunks DEFAULT;

-- Who asked for a run, why, and with which other payload.
CREATE TABLE hourhand.run_requests (
    run_id       uuid PRIMARY KEY,
    requested_by text NOT NULL,
    requested_at timestamptz NOT NULL,
    note         text,
    payload      jsonb
);

-- Due times that made no run, as ranges with a count.
CREATE TABLE hourhand.ledger_ranges (
    job_id    uuid NOT NULL,
    first_due timestamptz NOT NULL,
    last_due  timestamptz NOT NULL,
    count     int NOT NULL CHECK (count > 0),
    state     smallint NOT NULL,
    reason    text NOT NULL,
    PRIMARY KEY (job_id, first_due)
);

CREATE TABLE hourhand.nodes (
    node_id      int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    role         text NOT NULL CHECK (role IN ('api', 'scheduler', 'executor', 'notifier')),
    name         text NOT NULL,
    started_at   timestamptz NOT NULL,
    lease_until  timestamptz NOT NULL,
    ended_at     timestamptz,             -- set when the node left, or when it was found dead
    returned     boolean NOT NULL DEFAULT false,   -- nothing is in its hands any more
    facts        jsonb NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX nodes_present ON hourhand.nodes (node_id) WHERE ended_at IS NULL OR NOT returned;

CREATE TABLE hourhand.leases (
    name        text PRIMARY KEY,
    node_id     int NOT NULL,
    epoch       bigint NOT NULL,
    lease_until timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE hourhand.shards (
    shard    smallint PRIMARY KEY CHECK (shard BETWEEN 0 AND 1023),
    owner_id int,
    epoch    bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO hourhand.shards (shard, epoch) SELECT generate_series(0, 1023), 0;

CREATE TABLE hourhand.tokens (
    token_id     uuid PRIMARY KEY,
    namespace_id int,                     -- NULL: every namespace
    name         text NOT NULL,
    digest       bytea NOT NULL UNIQUE,   -- SHA-256 of 256 random bits
    purpose      text NOT NULL CHECK (purpose IN ('api', 'session', 'login')),
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz
);

-- The same rule as model/ids.py scheduled_run_id.
CREATE FUNCTION hourhand.scheduled_run_id(due timestamptz, job_id uuid) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT encode(
        int8send((((extract(epoch FROM due) * 1000000)::bigint / 1000) << 16)
                 | 28672 | (((extract(epoch FROM due) * 1000000)::bigint % 1000) << 2))
        || substring(uuid_send(job_id) FROM 9 FOR 8), 'hex')::uuid
$$;

-- A job as it is read: its lane in words, its cursor, whether anything of it is still to come or under way, and the next
-- due time whose run is made already. Nothing of this is stored twice; it follows from the tables.
CREATE VIEW hourhand.jobs_in_full AS
SELECT j.*, l.queue, l.needs, t.next_fire, live.next_live, t.job_id IS NOT NULL OR live.runs > 0 AS alive
  FROM hourhand.jobs j
  JOIN hourhand.lanes l USING (lane_id)
  LEFT JOIN hourhand.timetable t USING (job_id)
 CROSS JOIN LATERAL (
    SELECT count(*) AS runs,
           min(r.scheduled_for) FILTER (WHERE r.state = 0 AND r.attempt = 0 AND r.cause <> 2) AS next_live
      FROM (SELECT state, attempt, cause, scheduled_for FROM hourhand.live_runs WHERE job_id = j.job_id AND cause <> 0
            UNION ALL
            SELECT state, attempt, cause, scheduled_for FROM hourhand.live_runs
             WHERE run_id = hourhand.scheduled_run_id(j.due_at, j.job_id)) r
 ) live;
