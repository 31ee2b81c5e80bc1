-- Pauses of more than one job, with who, why and until when; and a ledger that says more. A job without any of this is
-- written and read as before: what is new is NULL for it, and NULL takes no room.

ALTER TABLE hourhand.jobs
    ADD COLUMN paused_at   timestamptz,   -- of the job's own pause, also when its `until` has passed
    ADD COLUMN paused_by   text,
    ADD COLUMN pause_until timestamptz,
    ADD COLUMN pause_from  timestamptz,   -- due times later than this fell into the pause and are not in the ledger yet
    ADD COLUMN resumed_at  timestamptz;   -- failures before it are not counted any more

-- One row for one stretch. `recent_*`: the newest of them would have been caught up, had the job wanted more of them.
-- `next_due` is the due time that follows: a stretch that goes on there is the same one.
ALTER TABLE hourhand.ledger_ranges
    ADD COLUMN version      int,           -- of the job, by whose schedule the stretch is told one by one
    ADD COLUMN detail       text,          -- who paused it and why; which calendar
    ADD COLUMN next_due     timestamptz,
    ADD COLUMN recent_from  timestamptz,
    ADD COLUMN recent_count int;

-- Pauses of all jobs of a label, a queue, a namespace or the cluster. A due time is paused if it is later than paused_at
-- and earlier than both until and ended_at.
CREATE TABLE hourhand.pauses (
    pause_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace_id int,                    -- NULL: the whole cluster
    queue        text,                   -- NULL: every queue
    labels       jsonb,                  -- NULL: whatever the labels
    paused_at    timestamptz NOT NULL,
    paused_by    text NOT NULL,
    reason       text,
    until        timestamptz,
    ended_at     timestamptz,
    ended_by     text,
    catch_up     text CHECK (catch_up IN ('none', 'last', 'all')),
    settled      boolean NOT NULL DEFAULT false   -- over, and no cursor stands before its end any more
);
CREATE UNIQUE INDEX pauses_in_force ON hourhand.pauses
    (coalesce(namespace_id, 0), coalesce(queue, ''), coalesce(labels, '{}'::jsonb)) WHERE ended_at IS NULL;
CREATE INDEX pauses_unsettled ON hourhand.pauses (pause_id) WHERE NOT settled;
-- Queues that are paused already hold the due times of recurring jobs from now on, not only their runs.
INSERT INTO hourhand.pauses (namespace_id, queue, paused_at, paused_by, reason)
SELECT namespace_id, queue, paused_at, coalesce(paused_by, 'somebody'), pause_reason FROM hourhand.queues
 WHERE paused_at IS NOT NULL;

-- Cursors that a pause holds: where they really stand. In the timetable they stand at the end of time meanwhile, so that
-- planners do not meet them.
CREATE TABLE hourhand.resting (
    job_id    uuid PRIMARY KEY,
    next_fire timestamptz NOT NULL,
    pause_id  bigint,                     -- NULL: the job's own pause
    until     timestamptz                 -- of the job's own pause
);
CREATE INDEX resting_by_pause ON hourhand.resting (pause_id);
CREATE INDEX resting_until ON hourhand.resting (until) WHERE until IS NOT NULL;

-- Whether a pause is about a job. Jobs that run once are held by their lane when their queue is paused.
CREATE FUNCTION hourhand.pause_covers(p hourhand.pauses, of_namespace int, of_lane int, of_job uuid, recurring boolean)
RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (p.namespace_id IS NULL OR p.namespace_id = of_namespace)
       AND (p.queue IS NULL
            OR (recurring AND EXISTS (SELECT FROM hourhand.lanes l WHERE l.lane_id = of_lane AND l.queue = p.queue)))
       AND (p.labels IS NULL
            OR EXISTS (SELECT FROM hourhand.jobs j
                        WHERE j.namespace_id = of_namespace AND j.job_id = of_job AND j.labels @> p.labels))
$$;

-- As before, with the columns that are new in jobs, whether the job's own pause is in force, and which others hold it.
-- By the time of the statement: with a clock that moves on, those who read the view would have to make it whole first.
DROP VIEW hourhand.jobs_in_full;
CREATE VIEW hourhand.jobs_in_full AS
SELECT j.*, l.queue, l.needs, t.next_fire, live.next_live, t.job_id IS NOT NULL OR live.runs > 0 AS alive,
       j.status = 1 AND (j.pause_until IS NULL OR j.pause_until > statement_timestamp()) AS paused,
       CASE WHEN EXISTS (SELECT FROM hourhand.pauses WHERE ended_at IS NULL) THEN     -- asked once, and hardly ever true
           (SELECT jsonb_agg(to_jsonb(p) ORDER BY p.pause_id) FROM hourhand.pauses p
             WHERE p.ended_at IS NULL AND (p.until IS NULL OR p.until > statement_timestamp())
               AND hourhand.pause_covers(p, j.namespace_id, j.lane_id, j.job_id, j.due_at IS NULL)) END AS held_by
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
