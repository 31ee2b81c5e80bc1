-- name: get_live_run
SELECT r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, r.ready_at, r.started_at,
       NULL::timestamptz AS ended_at, r.attempt, n.name AS executor, r.version, NULL::text AS reason, NULL::text AS error,
       NULL::jsonb AS result, q.requested_by, q.note, q.retry_of, q.backfill_id,
       p.percent, p.message, p.at
  FROM hourhand.live_runs r
  JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
  LEFT JOIN hourhand.run_progress p ON p.run_id = r.run_id AND p.fence = r.fence
 WHERE r.namespace_id = @namespace_id AND r.run_id = @run_id;

-- name: get_finished_run
-- When a run could start follows from its due time and the jitter of its job: `spread` is what that is computed from. It
-- is not known where the job was changed since.
SELECT r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, NULL::timestamptz AS ready_at,
       CASE WHEN r.cause = 1 AND j.version = r.version AND j.timing ? 'jitter' THEN j.timing END AS spread,
       r.started_at, r.ended_at, r.attempt, n.name AS executor, r.version, r.reason, r.error, r.result, q.requested_by,
       q.note, q.retry_of, q.backfill_id, r.usage
  FROM hourhand.runs r
  LEFT JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
 WHERE r.namespace_id = @namespace_id AND r.run_id = @run_id;

-- name: list_live_runs
-- Newest first. A walk ends with the row at the place `look`, which is in the answer (`is_last`) even where it does not fit:
-- what a page costs does not follow from what is stored, and the next page goes on behind it.
SELECT r.fits, r.place = @look AS is_last, r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, r.ready_at, r.started_at,
       NULL::timestamptz AS ended_at, r.attempt, n.name AS executor, r.version, NULL::text AS reason, NULL::text AS error,
       NULL::jsonb AS result, q.requested_by, q.note, q.retry_of, q.backfill_id,
       p.percent, p.message, p.at
  FROM (SELECT * FROM (
            SELECT x.*, row_number() OVER (ORDER BY x.run_id DESC) AS place,
                   NOT hourhand.is_part(x.run_id) AND x.state = ANY (@states::smallint[]) AS fits
              FROM hourhand.live_runs x
             WHERE x.namespace_id = @namespace_id AND x.run_id < @before::uuid AND x.run_id >= @since::uuid
             ORDER BY x.run_id DESC LIMIT @look) looked
         WHERE fits OR place = @look
         ORDER BY run_id DESC LIMIT @limit) r
  JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
  LEFT JOIN hourhand.run_progress p ON p.run_id = r.run_id AND p.fence = r.fence
 ORDER BY r.run_id DESC;

-- name: list_live_runs_of_job
SELECT r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, r.ready_at, r.started_at,
       NULL::timestamptz AS ended_at, r.attempt, n.name AS executor, r.version, NULL::text AS reason, NULL::text AS error,
       NULL::jsonb AS result, q.requested_by, q.note, q.retry_of, q.backfill_id,
       p.percent, p.message, p.at
  FROM (SELECT * FROM hourhand.live_runs x
         WHERE x.namespace_id = @namespace_id
           AND ((x.job_id = @job_id AND x.cause <> 0) OR x.run_id = @once_run_id::uuid)
           AND x.state = ANY (@states::smallint[])
           AND x.run_id < @before::uuid AND x.run_id >= @since::uuid
         ORDER BY x.run_id DESC LIMIT @limit) r
  JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
  LEFT JOIN hourhand.run_progress p ON p.run_id = r.run_id AND p.fence = r.fence
 ORDER BY r.run_id DESC;

-- name: list_finished_runs
-- Those that did not succeed have an index of their own: where nothing else is wanted, they are read off it.
SELECT r.fits, r.place = @look AS is_last,
       r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, NULL::timestamptz AS ready_at,
       CASE WHEN r.cause = 1 AND j.version = r.version AND j.timing ? 'jitter' THEN j.timing END AS spread,
       r.started_at, r.ended_at, r.attempt, n.name AS executor, r.version, r.reason, r.error, r.result, q.requested_by,
       q.note, q.retry_of, q.backfill_id
  FROM ((SELECT * FROM (
            SELECT x.*, row_number() OVER (ORDER BY x.run_id DESC) AS place,
                   NOT hourhand.is_part(x.run_id) AND x.state = ANY (@states::smallint[])
                   AND (@reasons::text[] IS NULL OR x.reason = ANY (@reasons)) AS fits
              FROM hourhand.runs x
             WHERE 10 = ANY (@states) AND x.namespace_id = @namespace_id
               AND x.run_id < @before::uuid AND x.run_id >= @since::uuid
             ORDER BY x.run_id DESC LIMIT @look) looked
         WHERE fits OR place = @look
         ORDER BY run_id DESC LIMIT @limit)
        UNION ALL
        (SELECT * FROM (
            SELECT x.*, row_number() OVER (ORDER BY x.run_id DESC) AS place,
                   NOT hourhand.is_part(x.run_id) AND x.state = ANY (@states::smallint[])
                   AND (@reasons::text[] IS NULL OR x.reason = ANY (@reasons)) AS fits
              FROM hourhand.runs x
             WHERE NOT 10 = ANY (@states) AND x.namespace_id = @namespace_id AND x.state <> 10
               AND x.run_id < @before::uuid AND x.run_id >= @since::uuid
             ORDER BY x.run_id DESC LIMIT @look) looked
         WHERE fits OR place = @look
         ORDER BY run_id DESC LIMIT @limit)) r
  LEFT JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
 ORDER BY r.run_id DESC;

-- name: list_finished_runs_of_job
SELECT r.fits, r.place = @look AS is_last,
       r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, NULL::timestamptz AS ready_at,
       CASE WHEN r.cause = 1 AND j.version = r.version AND j.timing ? 'jitter' THEN j.timing END AS spread,
       r.started_at, r.ended_at, r.attempt, n.name AS executor, r.version, r.reason, r.error, r.result, q.requested_by,
       q.note, q.retry_of, q.backfill_id
  FROM (SELECT * FROM (
            SELECT x.*, row_number() OVER (ORDER BY x.run_id DESC) AS place,
                   NOT hourhand.is_part(x.run_id) AND x.state = ANY (@states::smallint[])
                   AND (@reasons::text[] IS NULL OR x.reason = ANY (@reasons)) AS fits
              FROM hourhand.runs x
             WHERE x.namespace_id = @namespace_id AND x.job_id = @job_id
               AND x.run_id < @before::uuid AND x.run_id >= @since::uuid
             ORDER BY x.run_id DESC LIMIT @look) looked
         WHERE fits OR place = @look
         ORDER BY run_id DESC LIMIT @limit) r
  LEFT JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
 ORDER BY r.run_id DESC;

-- name: list_attempts
SELECT a.attempt, a.state, a.reason, a.error, n.name AS executor, a.started_at, a.ended_at, a.late_state, a.late_at,
       a.usage
  FROM hourhand.attempts a
  LEFT JOIN hourhand.nodes n ON n.node_id = a.executor_id
 WHERE a.run_id = @run_id
 ORDER BY a.attempt;

-- name: count_live
-- A run counts once, in however many parts it runs.
SELECT state, count(*) AS count FROM hourhand.live_runs
 WHERE namespace_id = @namespace_id AND NOT hourhand.is_part(run_id) GROUP BY state;

-- name: count_finished
SELECT state, count(*) AS count FROM hourhand.runs
 WHERE namespace_id = @namespace_id AND run_id >= @since::uuid AND NOT hourhand.is_part(run_id) GROUP BY state;

-- name: list_retries
-- The runs that were asked for to repeat this one, oldest first.
SELECT run_id FROM hourhand.run_requests WHERE retry_of = @run_id ORDER BY run_id;

-- name: pick_retries
-- Finished runs that fit a filter and that no retry, or retry of a retry, already repeats or has repeated with success.
-- Looked for as in list_finished_runs.
SELECT r.fits, r.place = @look AS is_last, r.run_id
  FROM ((SELECT * FROM (
            SELECT x.run_id, row_number() OVER (ORDER BY x.run_id DESC) AS place,
                   NOT hourhand.is_part(x.run_id) AND x.state = ANY (@states::smallint[])
                   AND (@reasons::text[] IS NULL OR x.reason = ANY (@reasons))
                   AND (@again::boolean OR NOT EXISTS (
                        WITH RECURSIVE later AS (
                            SELECT q.run_id FROM hourhand.run_requests q WHERE q.retry_of = x.run_id
                            UNION ALL
                            SELECT q.run_id FROM later l JOIN hourhand.run_requests q ON q.retry_of = l.run_id
                        )
                        SELECT FROM later l
                         WHERE EXISTS (SELECT FROM hourhand.live_runs r WHERE r.run_id = l.run_id)
                            OR EXISTS (SELECT FROM hourhand.runs r
                                        WHERE r.namespace_id = @namespace_id AND r.run_id = l.run_id
                                          AND r.state = 10))) AS fits
              FROM hourhand.runs x
             WHERE 10 = ANY (@states) AND x.namespace_id = @namespace_id
               AND x.run_id < @before::uuid AND x.run_id >= @since::uuid
             ORDER BY x.run_id DESC LIMIT @look) looked
         WHERE fits OR place = @look
         ORDER BY run_id DESC LIMIT @limit)
        UNION ALL
        (SELECT * FROM (
            SELECT x.run_id, row_number() OVER (ORDER BY x.run_id DESC) AS place,
                   NOT hourhand.is_part(x.run_id) AND x.state = ANY (@states::smallint[])
                   AND (@reasons::text[] IS NULL OR x.reason = ANY (@reasons))
                   AND (@again::boolean OR NOT EXISTS (
                        WITH RECURSIVE later AS (
                            SELECT q.run_id FROM hourhand.run_requests q WHERE q.retry_of = x.run_id
                            UNION ALL
                            SELECT q.run_id FROM later l JOIN hourhand.run_requests q ON q.retry_of = l.run_id
                        )
                        SELECT FROM later l
                         WHERE EXISTS (SELECT FROM hourhand.live_runs r WHERE r.run_id = l.run_id)
                            OR EXISTS (SELECT FROM hourhand.runs r
                                        WHERE r.namespace_id = @namespace_id AND r.run_id = l.run_id
                                          AND r.state = 10))) AS fits
              FROM hourhand.runs x
             WHERE NOT 10 = ANY (@states) AND x.namespace_id = @namespace_id AND x.state <> 10
               AND x.run_id < @before::uuid AND x.run_id >= @since::uuid
             ORDER BY x.run_id DESC LIMIT @look) looked
         WHERE fits OR place = @look
         ORDER BY run_id DESC LIMIT @limit)) r
 ORDER BY r.run_id DESC;

-- name: pick_retries_of_job
SELECT r.fits, r.place = @look AS is_last, r.run_id
  FROM (SELECT * FROM (
            SELECT x.run_id, row_number() OVER (ORDER BY x.run_id DESC) AS place,
                   NOT hourhand.is_part(x.run_id) AND x.state = ANY (@states::smallint[])
                   AND (@reasons::text[] IS NULL OR x.reason = ANY (@reasons))
                   AND (@again::boolean OR NOT EXISTS (
                        WITH RECURSIVE later AS (
                            SELECT q.run_id FROM hourhand.run_requests q WHERE q.retry_of = x.run_id
                            UNION ALL
                            SELECT q.run_id FROM later l JOIN hourhand.run_requests q ON q.retry_of = l.run_id
                        )
                        SELECT FROM later l
                         WHERE EXISTS (SELECT FROM hourhand.live_runs r WHERE r.run_id = l.run_id)
                            OR EXISTS (SELECT FROM hourhand.runs r
                                        WHERE r.namespace_id = @namespace_id AND r.run_id = l.run_id
                                          AND r.state = 10))) AS fits
              FROM hourhand.runs x
             WHERE x.namespace_id = @namespace_id AND x.job_id = @job_id
               AND x.run_id < @before::uuid AND x.run_id >= @since::uuid
             ORDER BY x.run_id DESC LIMIT @look) looked
         WHERE fits OR place = @look
         ORDER BY run_id DESC LIMIT @limit) r
 ORDER BY r.run_id DESC;

-- name: retry_facts
-- What must be known of finished runs to run them again. The payload is read only where a key is made from it.
SELECT r.run_id, r.job_id, j.version, j.policy, j.due_at IS NULL AS recurring,
       CASE WHEN j.policy ? 'concurrency_key' THEN coalesce(q.payload, j.payload) END AS payload
  FROM hourhand.runs r
  JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
 WHERE r.namespace_id = @namespace_id AND r.run_id = ANY (@run_ids::uuid[]) AND j.status <> 2
 ORDER BY r.run_id DESC;

-- name: lock_retries
-- One at a time in a namespace: the next one sees what the one before has made.
SELECT pg_advisory_xact_lock(hashtext('hourhand.retries'), @namespace_id);

-- name: insert_retries
-- New runs that repeat finished ones: of the same job as it is now, for the same time, with the same payload where the
-- run had one of its own. Waits for changes of the jobs that are under way; a cancelled job gets no run. Left out are
-- runs that are repeated already, and those of which a later repetition is among those seen by this request.
WITH RECURSIVE wanted AS (
    SELECT x.* FROM unnest(@run_ids::uuid[], @new_ids::uuid[], @gate_ids::text[], @expires::timestamptz[],
                           @behind::boolean[], @versions::int[]) AS x(run_id, new_id, gate_ids, expires_at, behind, version)
), later(origin, run_id) AS (
    SELECT w.run_id, q.run_id FROM wanted w JOIN hourhand.run_requests q ON q.retry_of = w.run_id
    UNION ALL
    SELECT l.origin, q.run_id FROM later l JOIN hourhand.run_requests q ON q.retry_of = l.run_id
), chosen AS MATERIALIZED (
    SELECT w.*, r.job_id, r.scheduled_for
      FROM wanted w
      JOIN hourhand.runs r ON r.namespace_id = @namespace_id AND r.run_id = w.run_id
     WHERE NOT EXISTS (
        SELECT FROM later l
         WHERE l.origin = w.run_id
           AND (l.run_id = ANY (@seen::uuid[])
                OR (NOT @again::boolean
                    AND (EXISTS (SELECT FROM hourhand.live_runs v WHERE v.run_id = l.run_id)
                         OR EXISTS (SELECT FROM hourhand.runs f
                                     WHERE f.namespace_id = @namespace_id AND f.run_id = l.run_id AND f.state = 10)))))
), job AS MATERIALIZED (
    SELECT j.job_id, j.lane_id, j.version, j.priority FROM hourhand.jobs j
     WHERE j.namespace_id = @namespace_id AND j.job_id IN (SELECT job_id FROM chosen) AND j.status <> 2
       FOR SHARE
), asked AS (
    INSERT INTO hourhand.run_requests (run_id, requested_by, requested_at, note, payload, retry_of, overlap)
    SELECT c.new_id, @requested_by::text, @now::timestamptz, @note::text, q.payload, c.run_id,
           CASE WHEN c.behind THEN 'queue_all' END
      FROM chosen c
      JOIN job USING (job_id, version)   -- of another version it would have the wrong gates
      LEFT JOIN hourhand.run_requests q ON q.run_id = c.run_id
)
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state, priority,
                                cause, gate_ids, waits_on, expires_at)
SELECT c.new_id, c.job_id, c.scheduled_for, @now, @namespace_id, job.lane_id, version,
       CASE WHEN c.behind THEN 1 ELSE 0 END, job.priority, 2, c.gate_ids::int[], CASE WHEN c.behind THEN 0 END,
       c.expires_at
  FROM chosen c
  JOIN job USING (job_id, version)
RETURNING run_id;
