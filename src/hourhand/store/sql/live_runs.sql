-- name: peek_ready
-- The oldest queued run of every (lane, priority) that has one: a walk over the index that touches one entry each.
WITH RECURSIVE heads AS (
    (SELECT lane_id, priority, ready_at FROM hourhand.live_runs
      WHERE state = 0 ORDER BY lane_id, priority DESC, ready_at LIMIT 1)
    UNION ALL
    SELECT n.lane_id, n.priority, n.ready_at
      FROM heads h
     CROSS JOIN LATERAL (
        (SELECT lane_id, priority, ready_at FROM hourhand.live_runs
          WHERE state = 0 AND lane_id = h.lane_id AND priority < h.priority ORDER BY priority DESC, ready_at LIMIT 1)
        UNION ALL
        (SELECT lane_id, priority, ready_at FROM hourhand.live_runs
          WHERE state = 0 AND lane_id > h.lane_id ORDER BY lane_id, priority DESC, ready_at LIMIT 1)
        LIMIT 1
     ) n
)
SELECT lane_id, priority, ready_at FROM heads WHERE lane_id = ANY (@lanes::int[]);

-- name: claim_runs
-- Claims due runs of the given lanes, higher priority first and the longest waiting lane first among equals. The heads
-- come from peek_ready. The fence number drawn here ends the right of every earlier attempt of these runs.
WITH heads AS (
    SELECT * FROM unnest(@lanes::int[], @priorities::smallint[]) WITH ORDINALITY AS h(lane_id, priority, place)
), picked AS MATERIALIZED (
    SELECT c.run_id
      FROM (SELECT lane_id, priority FROM heads ORDER BY place) h
     CROSS JOIN LATERAL (
        SELECT r.run_id FROM hourhand.live_runs r
         WHERE r.state = 0 AND r.lane_id = h.lane_id AND r.priority = h.priority AND r.ready_at <= @until
         ORDER BY r.ready_at
         LIMIT @limit
           FOR UPDATE SKIP LOCKED
     ) c
     LIMIT @limit
), claimed AS (
    UPDATE hourhand.live_runs r
       SET state = 2, executor_id = @executor_id, attempt = r.attempt + 1, fence = nextval('hourhand.fence')
      FROM picked WHERE r.run_id = picked.run_id
    RETURNING r.run_id, r.job_id, r.namespace_id, r.lane_id, r.scheduled_for, r.ready_at, r.fence, r.attempt,
              r.failures, r.losses, r.cause
)
SELECT c.run_id, c.job_id, c.namespace_id, c.lane_id, c.scheduled_for, c.ready_at, c.fence, c.attempt, c.failures,
       c.losses, j.name, j.kind, j.max_retries, j.retry, j.timeout_seconds,
       CASE WHEN c.cause = 2
            THEN coalesce((SELECT q.payload FROM hourhand.run_requests q WHERE q.run_id = c.run_id), j.payload)
            ELSE j.payload END AS payload
  FROM claimed c
  JOIN hourhand.jobs j ON j.namespace_id = c.namespace_id AND j.job_id = c.job_id;

-- name: start_runs
-- Marks runs as running that have not ended by the time of the flush; short ones never pass through here.
UPDATE hourhand.live_runs r SET state = 3, started_at = x.started_at
  FROM unnest(@run_ids::uuid[], @fences::bigint[], @started::timestamptz[]) AS x(run_id, fence, started_at)
 WHERE r.run_id = x.run_id AND r.fence = x.fence AND r.state = 2
RETURNING r.run_id;

-- name: finish_runs
-- Moves finished runs into history. A run missing from the answer was late: its fence had passed to someone else. Once
-- cancel was acknowledged (state 4) nothing but cancelled is recorded.
WITH finished AS (
    DELETE FROM hourhand.live_runs r
     USING unnest(@run_ids::uuid[], @fences::bigint[], @states::smallint[], @started::timestamptz[],
                  @ended::timestamptz[], @reasons::text[], @errors::text[], @results::jsonb[])
           AS x(run_id, fence, state, started_at, ended_at, reason, error, result)
     WHERE r.run_id = x.run_id
       AND r.fence = x.fence              -- only the newest attempt may speak
       AND r.state = ANY (@from_states::smallint[])
    RETURNING r.run_id, r.job_id, r.scheduled_for, r.namespace_id, r.executor_id, r.version, r.cause, r.attempt,
              r.state AS was, x.state, coalesce(x.started_at, r.started_at) AS started_at, x.ended_at, x.reason, x.error,
              x.result
)
INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version, state,
                           cause, attempt, reason, error, result)
SELECT run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version,
       CASE was WHEN 4 THEN 14 ELSE state END, cause, attempt,
       CASE was WHEN 4 THEN 'cancelled' ELSE reason END, error, CASE was WHEN 4 THEN NULL ELSE result END
  FROM finished
ON CONFLICT DO NOTHING                    -- one run that is final already must not hold up the others
RETURNING run_id, state;

-- name: requeue_runs
-- Brings runs back to the queue after a failure, a loss or a hand-back, and keeps the attempt. Runs that are being
-- cancelled are left alone: the caller finishes those.
WITH returned AS (
    UPDATE hourhand.live_runs r
       SET state = 0, ready_at = x.ready_at, executor_id = NULL, started_at = NULL,
           failures = r.failures + x.failed, losses = r.losses + x.lost
      FROM unnest(@run_ids::uuid[], @fences::bigint[], @ready::timestamptz[], @failed::smallint[], @lost::smallint[])
           AS x(run_id, fence, ready_at, failed, lost)
      JOIN hourhand.live_runs o ON o.run_id = x.run_id     -- the row as it was: RETURNING shows it as it has become
     WHERE r.run_id = x.run_id AND r.fence = x.fence AND r.state = ANY (@from_states::smallint[])
    RETURNING r.run_id, r.fence, r.attempt, o.executor_id, o.started_at
), kept AS (
    INSERT INTO hourhand.attempts (run_id, attempt, state, executor_id, fence, started_at, ended_at, reason, error)
    SELECT r.run_id, r.attempt, x.state, r.executor_id, r.fence, coalesce(x.started_at, r.started_at), x.ended_at,
           x.reason, x.error
      FROM unnest(@run_ids::uuid[], @states::smallint[], @started::timestamptz[], @ended::timestamptz[], @reasons::text[],
                  @errors::text[]) AS x(run_id, state, started_at, ended_at, reason, error)
      JOIN returned r USING (run_id)
    ON CONFLICT DO NOTHING
)
SELECT run_id FROM returned;

-- name: insert_manual_run
-- Waits for a change of the job that is under way; a cancelled job gets no run.
WITH job AS (
    SELECT FROM hourhand.jobs WHERE namespace_id = @namespace_id AND job_id = @job_id AND status <> 2 FOR SHARE
), asked AS (
    INSERT INTO hourhand.run_requests (run_id, requested_by, requested_at, note, payload)
    SELECT @run_id::uuid, @requested_by::text, @now::timestamptz, @note::text, @payload::jsonb FROM job
)
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state, priority,
                                cause)
SELECT @run_id, @job_id, @now, @now, @namespace_id, @lane_id::int, @version::int, 0, @priority::smallint, 2 FROM job
RETURNING run_id;

-- name: cancel_waiting
-- Ends runs that nobody holds, at once.
WITH gone AS (
    DELETE FROM hourhand.live_runs r
     WHERE r.run_id = ANY (@run_ids::uuid[]) AND r.state IN (0, 1)
       AND r.namespace_id = @namespace_id
    RETURNING r.*
)
INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version, state,
                           cause, attempt, reason)
SELECT run_id, job_id, scheduled_for, NULL, @now, namespace_id, NULL, version, 14, cause, attempt, @reason FROM gone
ON CONFLICT DO NOTHING
RETURNING run_id;

-- name: request_cancel
-- Asks the executor to end runs it holds; from here on they can end as cancelled only.
UPDATE hourhand.live_runs SET state = 4
 WHERE run_id = ANY (@run_ids::uuid[]) AND state IN (2, 3, 4) AND namespace_id = @namespace_id
RETURNING run_id, executor_id;

-- name: cancelling_runs
SELECT run_id, fence FROM hourhand.live_runs WHERE state = 4 AND executor_id = @executor_id;

-- name: held_by
-- Runs in the hands of executors. A walk over the whole table: asked for seldom, and an index by executor would cost
-- every claim.
SELECT r.run_id, r.fence, r.failures, r.losses, r.state, r.started_at, r.executor_id
  FROM hourhand.live_runs r
 WHERE r.executor_id = ANY (@executor_ids::int[]) AND r.state IN (2, 3, 4)
 LIMIT @limit;
