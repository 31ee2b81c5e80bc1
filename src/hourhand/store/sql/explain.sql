-- name: explain_live_run
SELECT r.run_id, r.job_id, j.name AS job_name, r.state, r.scheduled_for, r.ready_at, r.attempt, r.priority, r.started_at,
       NULL::timestamptz AS ended_at, r.waits_on, r.expires_at, r.gate_ids || l.gate_ids AS gate_ids, r.executor_id,
       l.queue, l.needs,
       CASE WHEN j.status = 1 AND j.pause_until <= clock_timestamp() THEN 0 ELSE j.status END AS status, j.pause_reason,
       j.paused_by AS job_paused_by, j.paused_at AS job_paused_at, j.pause_until AS job_pause_until,
       q.paused_at, q.paused_by, q.pause_reason AS queue_pause_reason,
       (SELECT p.until FROM hourhand.pauses p
         WHERE p.namespace_id = r.namespace_id AND p.queue = l.queue AND p.ended_at IS NULL) AS queue_pause_until,
       (SELECT a.reason FROM hourhand.attempts a WHERE a.run_id = r.run_id ORDER BY a.attempt DESC LIMIT 1) AS reason,
       NULL::text AS error, 0 AS failures, NULL::smallint AS max_retries, NULL::jsonb AS retry, NULL::jsonb AS policy,
       (SELECT jsonb_agg(to_jsonb(p) ORDER BY p.pause_id) FROM hourhand.pauses p
         WHERE p.ended_at IS NULL AND p.queue IS NULL AND (p.until IS NULL OR p.until > clock_timestamp())
           AND hourhand.pause_covers(p, r.namespace_id, r.lane_id, r.job_id, true)) AS held_by,
       clock_timestamp() AS now
  FROM hourhand.live_runs r
  JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  JOIN hourhand.lanes l ON l.lane_id = r.lane_id
  LEFT JOIN hourhand.queues q ON q.namespace_id = r.namespace_id AND q.queue = l.queue AND q.paused_at IS NOT NULL
 WHERE r.namespace_id = @namespace_id AND r.run_id = @run_id;

-- name: explain_finished_run
-- What the job says of retries counts only if that is still what counted for the run. Of its attempts the table has all
-- but the last.
SELECT r.run_id, r.job_id, coalesce(j.name, '') AS job_name, r.state, r.scheduled_for, r.scheduled_for AS ready_at,
       r.attempt, coalesce(j.priority, 0) AS priority, r.started_at, r.ended_at, NULL::int AS waits_on,
       NULL::timestamptz AS expires_at, NULL::int[] AS gate_ids, r.executor_id, ''::text AS queue, ''::text AS needs,
       coalesce(j.status, 0) AS status, j.pause_reason, NULL::text AS job_paused_by, NULL::timestamptz AS job_paused_at,
       NULL::timestamptz AS job_pause_until, NULL::timestamptz AS paused_at, NULL::text AS paused_by,
       NULL::timestamptz AS queue_pause_until,
       NULL::text AS queue_pause_reason, r.reason, r.error,
       1 + (SELECT count(*) FROM hourhand.attempts a WHERE a.run_id = r.run_id AND a.state IN (11, 12)) AS failures,
       CASE WHEN j.version = r.version THEN j.max_retries END AS max_retries,
       CASE WHEN j.version = r.version THEN j.retry END AS retry,
       CASE WHEN j.version = r.version THEN j.policy END AS policy,
       NULL::jsonb AS held_by, clock_timestamp() AS now
  FROM hourhand.runs r
  LEFT JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
 WHERE r.namespace_id = @namespace_id AND r.run_id = @run_id;

-- name: explain_gates
SELECT g.gate_id, g.kind, g.name, g.capacity, g.rate_count, g.rate_seconds, g.rate_bucket, g.rate_starts,
       (SELECT count(*) FROM hourhand.gate_slots s WHERE s.gate_id = g.gate_id) AS taken
  FROM hourhand.gates g
 WHERE g.gate_id = ANY (@gate_ids::int[]) AND g.namespace_id = @namespace_id
 ORDER BY g.gate_id;

-- name: explain_holders
-- Who has had a place longest. Runs of other namespaces are nobody's business.
SELECT g.gate_id, h.run_id, h.job_name, h.since
  FROM unnest(@gate_ids::int[]) AS g(gate_id)
 CROSS JOIN LATERAL (
    SELECT r.run_id, j.name AS job_name, coalesce(r.started_at, r.ready_at) AS since
      FROM hourhand.gate_slots s
      JOIN hourhand.live_runs r ON r.run_id = s.run_id
      JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
     WHERE s.gate_id = g.gate_id AND r.namespace_id = @namespace_id
     ORDER BY since, r.run_id
     LIMIT @limit
 ) h;

-- name: explain_named
-- Those of the given runs that are live and belong to the namespace: others are nobody's business.
SELECT r.run_id, j.name AS job_name, coalesce(r.started_at, r.ready_at) AS since
  FROM hourhand.live_runs r
  JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
 WHERE r.run_id = ANY (@run_ids::uuid[]) AND r.namespace_id = @namespace_id;

-- name: explain_line
-- How many are let go before a run that waits for a place: those that were told already and not claimed yet, those of
-- higher priority, and of its own those that wait longer.
SELECT (SELECT count(*) FROM (
          SELECT FROM hourhand.live_runs
           WHERE state = 0 AND waits_on = @gate_id::int AND ready_at <= @now LIMIT @limit) told)
     + (SELECT count(*) FROM (
          SELECT FROM hourhand.live_runs
           WHERE state = 1 AND waits_on = @gate_id AND priority > @priority::smallint LIMIT @limit) higher)
     + (SELECT count(*) FROM (
          SELECT FROM hourhand.live_runs
           WHERE state = 1 AND waits_on = @gate_id AND priority = @priority AND ready_at < @ready_at LIMIT @limit) earlier)
       AS ahead;

-- name: explain_siblings
-- Earlier runs of the job that are not finished. Ids grow with the time that a run stands for.
SELECT r.run_id, r.state, r.scheduled_for, r.started_at
  FROM hourhand.live_runs r
 WHERE r.namespace_id = @namespace_id AND r.job_id = @job_id AND r.cause <> 0 AND r.run_id < @run_id
 ORDER BY r.run_id
 LIMIT @limit;

-- name: explain_executors
-- Every executor that is present, and the one that has or had the run.
SELECT node_id, name, orders, facts, lease_until, ended_at
  FROM hourhand.nodes
 WHERE (role = 'executor' AND ended_at IS NULL) OR node_id = @executor_id::int
 ORDER BY node_id;

-- name: explain_lanes
-- What executors may be taking: everything but what is in queues that are paused.
SELECT lane_id, queue, needs FROM hourhand.lanes WHERE NOT held;

-- name: explain_competition
-- Who else wants the slots of the executors that could take a run: how many of its namespace are taken before it, and
-- the weight of all other namespaces that have something to run there now.
WITH rivals AS MATERIALIZED (
    SELECT lane_id, namespace_id FROM hourhand.lanes WHERE lane_id = ANY (@lanes::int[])
), ahead AS (
    SELECT FROM rivals x
     CROSS JOIN LATERAL (
        (SELECT FROM hourhand.live_runs r
          WHERE r.state = 0 AND r.lane_id = x.lane_id AND r.priority > @priority::smallint AND r.ready_at <= @now
          LIMIT @limit)
        UNION ALL
        (SELECT FROM hourhand.live_runs r
          WHERE r.state = 0 AND r.lane_id = x.lane_id AND r.priority = @priority AND r.ready_at < @ready_at
            AND r.ready_at <= @now
          LIMIT @limit)
     ) a
     WHERE x.namespace_id = @namespace_id
     LIMIT @limit
)
SELECT (SELECT count(*) FROM ahead) AS ahead,
       (SELECT weight FROM hourhand.namespaces WHERE namespace_id = @namespace_id) AS weight,
       (SELECT coalesce(sum(n.weight), 0) FROM hourhand.namespaces n
         WHERE n.namespace_id <> @namespace_id
           AND EXISTS (SELECT FROM rivals x JOIN hourhand.live_runs r ON r.lane_id = x.lane_id
                        WHERE x.namespace_id = n.namespace_id AND r.state = 0 AND r.ready_at <= @now)
       ) AS weight_of_others;
