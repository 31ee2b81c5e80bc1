-- name: fan_out_facts
-- What a run that fans out asks for, as long as it is in the given hands and nobody has cancelled it.
SELECT r.namespace_id, l.queue, l.needs, j.policy
  FROM hourhand.live_runs r
  JOIN hourhand.lanes l USING (lane_id)
 CROSS JOIN LATERAL (
    SELECT j.policy FROM hourhand.jobs j WHERE j.namespace_id = r.namespace_id AND j.job_id = r.job_id OFFSET 0
 ) j
 WHERE r.run_id = @parent_id AND r.fence = @fence AND r.state IN (2, 3);

-- name: fan_out
-- Makes the parts of a run, all or none, under its fence. Made once, they are not made again: their ids follow from
-- that of the run. Its lock lets a cancellation come before or after, never in between.
WITH parent AS (
    SELECT r.* FROM hourhand.live_runs r
     WHERE r.run_id = @parent_id AND r.fence = @fence AND r.state IN (2, 3)
       AND NOT EXISTS (SELECT FROM hourhand.run_parts p WHERE p.parent_id = @parent_id)
       FOR UPDATE
), made AS (
    INSERT INTO hourhand.run_parts (run_id, parent_id, namespace_id, place, total, node_id)
    SELECT x.run_id, p.run_id, p.namespace_id, x.place, cardinality(@run_ids), x.node_id
      FROM parent p, unnest(@run_ids::uuid[], @places::int[], @node_ids::int[]) AS x(run_id, place, node_id)
    ON CONFLICT DO NOTHING
    RETURNING run_id
)
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state, priority,
                                cause, expires_at)
SELECT m.run_id, p.job_id, p.scheduled_for, @now::timestamptz, p.namespace_id, @lane_id::int, p.version, 0, p.priority, 0,
       @expires_at::timestamptz
  FROM made m, parent p
RETURNING run_id;

-- name: parts_of
-- Every part of a run as it stands. `gone`: its executor has ended.
SELECT p.run_id, p.place, p.total, p.node_id, n.name AS node, n.ended_at IS NOT NULL AS gone,
       coalesce(f.state, r.state) AS state, coalesce(f.attempt, r.attempt, 0) AS attempt,
       coalesce(f.started_at, r.started_at) AS started_at, f.ended_at, f.reason, f.error, f.result
  FROM hourhand.run_parts p
  LEFT JOIN hourhand.nodes n USING (node_id)
  LEFT JOIN LATERAL (SELECT * FROM hourhand.live_runs r WHERE r.run_id = p.run_id OFFSET 0) r ON true
  LEFT JOIN LATERAL (
    SELECT * FROM hourhand.runs f WHERE f.namespace_id = p.namespace_id AND f.run_id = p.run_id OFFSET 0
  ) f ON true
 WHERE p.parent_id = @parent_id
 ORDER BY p.place;

-- name: parts_by_run
SELECT p.parent_id, p.run_id FROM hourhand.run_parts p
 WHERE p.parent_id = ANY (@run_ids::uuid[])
 ORDER BY p.parent_id, p.place;

-- name: run_of_part
SELECT parent_id FROM hourhand.run_parts WHERE run_id = @run_id;

-- name: give_parts
-- Gives parts that nobody has claimed to other executors, under the fence of their run.
WITH parent AS (
    SELECT FROM hourhand.live_runs WHERE run_id = @parent_id AND fence = @fence AND state IN (2, 3) FOR SHARE
), waiting AS (
    SELECT r.run_id FROM hourhand.live_runs r, parent WHERE r.run_id = ANY (@run_ids::uuid[]) AND r.state IN (0, 1)
     ORDER BY r.run_id FOR UPDATE OF r
)
UPDATE hourhand.run_parts p SET node_id = x.node_id
  FROM unnest(@run_ids::uuid[], @node_ids::int[]) AS x(run_id, node_id)
  JOIN waiting w ON w.run_id = x.run_id
 WHERE p.run_id = x.run_id
RETURNING p.run_id;

-- name: lose_parts
-- Ends parts that nobody has claimed and whose executor is gone, under the fence of their run.
WITH parent AS (
    SELECT FROM hourhand.live_runs WHERE run_id = @parent_id AND fence = @fence AND state IN (2, 3) FOR SHARE
), gone AS (
    DELETE FROM hourhand.live_runs r USING parent
     WHERE r.run_id = ANY (@run_ids::uuid[]) AND r.state IN (0, 1)
    RETURNING r.*
)
INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version, state,
                           cause, attempt, reason, error)
SELECT g.run_id, g.job_id, g.scheduled_for, NULL, @now::timestamptz, g.namespace_id, p.node_id, g.version, 13, g.cause,
       g.attempt, 'executor_lost', @error
  FROM gone g JOIN hourhand.run_parts p USING (run_id)
ON CONFLICT DO NOTHING
RETURNING run_id;

-- name: close_parts
-- Nobody need look at them any more: their run is about to end, and they have ended.
UPDATE hourhand.run_parts SET open = false WHERE parent_id = @parent_id AND open;

-- name: run_state
SELECT state FROM hourhand.live_runs WHERE run_id = @run_id AND fence = @fence;

-- name: claim_parts
-- Claims parts that are for one executor, and for nobody else. They pass no gates: their run has.
WITH picked AS MATERIALIZED (
    SELECT r.run_id, p.parent_id, p.place, p.total
      FROM hourhand.run_parts p
      JOIN hourhand.live_runs r ON r.run_id = ANY (ARRAY[p.run_id])
     WHERE p.node_id = @executor_id AND p.open AND r.state = 0 AND r.lane_id = @lane_id AND r.ready_at <= @now
       AND NOT EXISTS (SELECT FROM hourhand.nodes n WHERE n.node_id = @executor_id AND n.ended_at IS NOT NULL)
       AND NOT EXISTS (SELECT FROM hourhand.lanes l WHERE l.lane_id = @lane_id AND l.held)
     ORDER BY r.priority DESC, r.ready_at
     LIMIT @limit
       FOR UPDATE OF r SKIP LOCKED
), claimed AS (
    UPDATE hourhand.live_runs r
       SET state = 2, executor_id = @executor_id, attempt = r.attempt + 1, fence = nextval('hourhand.fence')
      FROM picked WHERE r.run_id = ANY (ARRAY[picked.run_id])
    RETURNING r.run_id, r.job_id, r.namespace_id, r.lane_id, r.scheduled_for, r.ready_at, r.fence, r.attempt,
              r.failures, r.losses, picked.parent_id, picked.place, picked.total
)
SELECT c.run_id, c.job_id, c.namespace_id, c.lane_id, date_part('epoch', c.scheduled_for) AS due,
       nullif(c.ready_at, c.scheduled_for) AS ready_at, c.fence, c.attempt, c.failures, c.losses, j.name,
       j.kind, j.max_retries, j.retry, j.timeout_seconds,
       coalesce((SELECT q.payload FROM hourhand.run_requests q WHERE q.run_id = c.parent_id), j.payload) AS payload,
       j.policy, 0 AS share, c.place, c.total
  FROM claimed c
 CROSS JOIN LATERAL (
    SELECT j.name, j.kind, j.max_retries, j.retry, j.timeout_seconds, j.payload, j.policy
      FROM hourhand.jobs j WHERE j.namespace_id = c.namespace_id AND j.job_id = c.job_id
    OFFSET 0
 ) j;

-- name: orphans
-- Parts that are live although their run is not: it was cancelled while nobody led it. And runs whose parts have all
-- ended with them, to be closed.
SELECT p.run_id, p.namespace_id, p.parent_id, r.run_id IS NOT NULL AS live
  FROM hourhand.run_parts p
  LEFT JOIN LATERAL (SELECT r.run_id FROM hourhand.live_runs r WHERE r.run_id = p.run_id OFFSET 0) r ON true
 WHERE p.open AND (SELECT x.run_id FROM hourhand.live_runs x WHERE x.run_id = p.parent_id) IS NULL
 LIMIT @limit;

-- name: close_orphans
UPDATE hourhand.run_parts SET open = false WHERE run_id = ANY (@run_ids::uuid[]);

-- name: part_namespace
SELECT namespace_id FROM hourhand.run_parts WHERE run_id = @run_id;

-- name: part_of_run
SELECT p.parent_id, p.place, p.total, n.name AS node
  FROM hourhand.run_parts p LEFT JOIN hourhand.nodes n USING (node_id)
 WHERE p.run_id = @run_id;
