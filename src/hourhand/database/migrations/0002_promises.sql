-- Gates, overlap, deadlines, orders to nodes, idempotent submission. A run without any of these is written and read as
-- before: what is new is NULL for it, and NULL takes no room.

-- A lane belongs to one namespace, so that executors can share themselves out between namespaces, and runs that must
-- pass gates have lanes of their own: all others are claimed without asking.
ALTER TABLE hourhand.namespaces ADD COLUMN weight int NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000);

ALTER TABLE hourhand.lanes
    ADD COLUMN namespace_id int,
    ADD COLUMN gated boolean NOT NULL DEFAULT false,
    ADD COLUMN gate_ids int[],                       -- gates of the queue and of the namespace; NULL: none
    ADD COLUMN held boolean NOT NULL DEFAULT false,  -- the queue is paused
    DROP CONSTRAINT lanes_queue_needs_key;
UPDATE hourhand.lanes SET namespace_id = (SELECT namespace_id FROM hourhand.namespaces WHERE name = 'default');
ALTER TABLE hourhand.lanes ALTER COLUMN namespace_id SET NOT NULL;
ALTER TABLE hourhand.lanes ADD UNIQUE (namespace_id, queue, needs, gated);
INSERT INTO hourhand.lanes (namespace_id, queue, needs)
SELECT u.namespace_id, l.queue, l.needs
  FROM (SELECT namespace_id, lane_id FROM hourhand.jobs
        UNION
        SELECT namespace_id, lane_id FROM hourhand.live_runs    -- also of lanes that their job has left
        UNION
        SELECT namespace_id, lane_id FROM hourhand.timetable) u
  JOIN hourhand.lanes l USING (lane_id)
ON CONFLICT DO NOTHING;
CREATE TEMPORARY TABLE moved_lanes ON COMMIT DROP AS
SELECT n.namespace_id, o.lane_id AS old_id, n.lane_id AS new_id
  FROM hourhand.lanes o JOIN hourhand.lanes n USING (queue, needs, gated)
 WHERE n.namespace_id <> o.namespace_id
   AND o.namespace_id = (SELECT namespace_id FROM hourhand.namespaces WHERE name = 'default');
UPDATE hourhand.jobs t SET lane_id = m.new_id FROM moved_lanes m
 WHERE t.lane_id = m.old_id AND t.namespace_id = m.namespace_id;
UPDATE hourhand.timetable t SET lane_id = m.new_id FROM moved_lanes m
 WHERE t.lane_id = m.old_id AND t.namespace_id = m.namespace_id;
UPDATE hourhand.live_runs t SET lane_id = m.new_id FROM moved_lanes m
 WHERE t.lane_id = m.old_id AND t.namespace_id = m.namespace_id;

ALTER TABLE hourhand.jobs ADD COLUMN policy jsonb;   -- NULL: nothing beyond the ordinary

ALTER TABLE hourhand.live_runs
    ADD COLUMN gate_ids int[],          -- gates of this run alone: its job's limit, its key
    ADD COLUMN waits_on int,            -- the gate that holds it; 0: an earlier run of its job
    ADD COLUMN expires_at timestamptz;  -- until when it may wait
-- Those that wait on a gate, and those that were let go on from it and are not claimed yet.
CREATE INDEX live_runs_waiting ON hourhand.live_runs (state, waits_on, priority DESC, ready_at)
    WHERE waits_on IS NOT NULL AND state IN (0, 1);
CREATE INDEX live_runs_expiring ON hourhand.live_runs (expires_at) WHERE state IN (0, 1) AND expires_at IS NOT NULL;

-- What the runs of a cursor will carry. `exclusive`: a run waits while an earlier one of its job is not finished.
ALTER TABLE hourhand.timetable
    ADD COLUMN gate_ids int[],
    ADD COLUMN expires_after interval,
    ADD COLUMN exclusive boolean NOT NULL DEFAULT false;
UPDATE hourhand.timetable SET exclusive = true WHERE recurring;

CREATE TABLE hourhand.gates (
    gate_id      int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace_id int NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('job', 'key', 'queue', 'namespace')),
    name         text NOT NULL,
    capacity     int CHECK (capacity >= 0),             -- runs that may hold it at once; NULL: any number
    rate_count   int CHECK (rate_count > 0),            -- starts per rate_seconds; NULL: any number
    rate_seconds double precision CHECK (rate_seconds > 0),
    rate_bucket  bigint,                                -- the newest slice of time in which something started,
    rate_starts  int[],                                 -- and the starts per slice, newest first
    UNIQUE (namespace_id, kind, name)
) WITH (fillfactor = 50);

-- Who holds a gate now: the rows are the count, so nothing has to be repaired after a crash.
CREATE TABLE hourhand.gate_slots (
    run_id  uuid NOT NULL,
    gate_id int NOT NULL,
    PRIMARY KEY (run_id, gate_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX gate_slots_by_gate ON hourhand.gate_slots (gate_id);

-- Queues about which somebody said something. Any other queue exists by being named.
CREATE TABLE hourhand.queues (
    namespace_id int NOT NULL,
    queue        text NOT NULL,
    paused_at    timestamptz,
    paused_by    text,
    pause_reason text,
    PRIMARY KEY (namespace_id, queue)
);

ALTER TABLE hourhand.nodes
    ADD COLUMN orders text NOT NULL DEFAULT 'work' CHECK (orders IN ('work', 'cordon', 'drain'));

-- What an attempt said after its right to speak had passed to another.
ALTER TABLE hourhand.attempts ADD COLUMN late_state smallint, ADD COLUMN late_at timestamptz;

ALTER TABLE hourhand.run_requests ADD COLUMN retry_of uuid, ADD COLUMN overlap text;
CREATE INDEX run_requests_retries ON hourhand.run_requests (retry_of) WHERE retry_of IS NOT NULL;

CREATE TABLE hourhand.idempotency_keys (
    namespace_id int NOT NULL,
    key          text NOT NULL,
    digest       bytea NOT NULL,        -- of the request's body
    job_id       uuid NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (namespace_id, key)
);
CREATE INDEX idempotency_keys_by_age ON hourhand.idempotency_keys (created_at);

-- One live job per key, or one per period.
CREATE TABLE hourhand.unique_keys (
    namespace_id int NOT NULL,
    key          text NOT NULL,
    job_id       uuid NOT NULL,
    until        timestamptz,           -- NULL: as long as the job is alive
    PRIMARY KEY (namespace_id, key)
);

-- Who goes on when places of a gate become free: the highest priority first. But one place in four goes to those who have
-- waited longer than half a minute, whatever their priority, the oldest first, so that nobody waits for ever because of
-- it. Runs of paused queues could not use a place. Rows that somebody else is just choosing are left to him; those that are
-- chosen are locked, so the caller need not ask again whether they wait (and must not: it may see them as they were).
CREATE FUNCTION hourhand.next_in_line(of_gate int, places int) RETURNS SETOF uuid
LANGUAGE sql VOLATILE STRICT AS $$
    WITH old AS MATERIALIZED (
        SELECT o.run_id
          FROM hourhand.live_runs o
         WHERE o.run_id = ANY (ARRAY(
            SELECT c.run_id
              FROM generate_series(0, 9) AS p(priority)
             CROSS JOIN LATERAL (
                SELECT x.run_id, x.ready_at FROM hourhand.live_runs x
                 WHERE x.state = 1 AND x.waits_on = of_gate AND x.priority = p.priority
                   AND x.ready_at < now() - interval '30 seconds'
                   AND x.lane_id <> ALL (ARRAY(SELECT lane_id FROM hourhand.lanes WHERE held))
                 ORDER BY x.ready_at
                 LIMIT places
             ) c
             ORDER BY c.ready_at
             LIMIT (SELECT floor(places / 4.0 + random()))))
           AND o.state = 1 AND o.waits_on = of_gate
           FOR UPDATE SKIP LOCKED
    ), usual AS (
        SELECT x.run_id
          FROM hourhand.live_runs x
         WHERE x.state = 1 AND x.waits_on = of_gate
           AND x.lane_id <> ALL (ARRAY(SELECT lane_id FROM hourhand.lanes WHERE held))
           AND x.run_id <> ALL (ARRAY(SELECT run_id FROM old))
         ORDER BY x.priority DESC, x.ready_at
         LIMIT (SELECT places - count(*) FROM old)
           FOR UPDATE SKIP LOCKED
    )
    SELECT run_id FROM old UNION ALL SELECT run_id FROM usual
$$;

-- What counts for a run that meets an unfinished one of its job: the same rule as model/policy.py overlap_of, and before
-- it what somebody said who asked for the run.
CREATE FUNCTION hourhand.overlap_policy(for_namespace int, for_job uuid, for_run uuid) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT coalesce((SELECT q.overlap FROM hourhand.run_requests q WHERE q.run_id = for_run), j.policy ->> 'overlap',
                    CASE WHEN j.due_at IS NULL THEN 'skip' ELSE 'allow' END)
      FROM hourhand.jobs j WHERE j.namespace_id = for_namespace AND j.job_id = for_job
$$;

DROP VIEW hourhand.jobs_in_full;
CREATE VIEW hourhand.jobs_in_full AS
SELECT j.*, l.queue, l.needs, t.next_fire, live.next_live, t.job_id IS NOT NULL OR live.runs > 0 AS alive
  FROM hourhand.jobs j
  JOIN hourhand.lanes l USING (lane_id)
  LEFT JOIN hourhand.timetable t USING (job_id)
 CROSS JOIN LATERAL (
    SELECT count(*) AS runs,
           min(r.scheduled_for) FILTER (WHERE r.state IN (0, 1) AND r.attempt = 0 AND r.cause <> 2) AS next_live
      FROM (SELECT state, attempt, cause, scheduled_for FROM hourhand.live_runs WHERE job_id = j.job_id AND cause <> 0
            UNION ALL
            SELECT state, attempt, cause, scheduled_for FROM hourhand.live_runs
             WHERE run_id = hourhand.scheduled_run_id(j.due_at, j.job_id)) r
 ) live;
