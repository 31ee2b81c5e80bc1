-- name: list_queues
-- Every queue of a namespace that a job named or somebody said something about, and how much is in it.
WITH named AS (
    SELECT queue FROM hourhand.lanes WHERE namespace_id = @namespace_id
    UNION
    SELECT queue FROM hourhand.queues WHERE namespace_id = @namespace_id
    UNION
    SELECT name FROM hourhand.gates WHERE namespace_id = @namespace_id AND kind = 'queue'
), counted AS (
    SELECT l.queue,
           count(*) FILTER (WHERE r.state IN (0, 1) AND r.ready_at <= clock_timestamp()) AS waiting,
           count(*) FILTER (WHERE r.state IN (0, 1) AND r.ready_at > clock_timestamp()) AS later,
           count(*) FILTER (WHERE r.state IN (2, 3, 4)) AS running
      FROM hourhand.live_runs r JOIN hourhand.lanes l USING (lane_id)
     WHERE r.namespace_id = @namespace_id
     GROUP BY l.queue
)
SELECT n.queue, q.paused_at, q.paused_by, q.pause_reason, g.capacity, g.rate_count, g.rate_seconds,
       coalesce(c.waiting, 0) AS waiting, coalesce(c.later, 0) AS later, coalesce(c.running, 0) AS running,
       (SELECT p.until FROM hourhand.pauses p
         WHERE p.namespace_id = @namespace_id AND p.queue = n.queue AND p.ended_at IS NULL) AS until
  FROM named n
  LEFT JOIN hourhand.queues q ON q.namespace_id = @namespace_id AND q.queue = n.queue
  LEFT JOIN hourhand.gates g ON g.namespace_id = @namespace_id AND g.kind = 'queue' AND g.name = n.queue
  LEFT JOIN counted c ON c.queue = n.queue
 WHERE @queue::text IS NULL OR n.queue = @queue
 ORDER BY n.queue;

-- name: get_namespace
SELECT n.name, n.weight, g.capacity,
       (SELECT count(*) FROM hourhand.live_runs r
         WHERE r.namespace_id = n.namespace_id AND r.state IN (2, 3, 4)) AS running
  FROM hourhand.namespaces n
  LEFT JOIN hourhand.gates g ON g.namespace_id = n.namespace_id AND g.kind = 'namespace' AND g.name = ''
 WHERE n.namespace_id = @namespace_id;

-- name: lock_lanes
-- Changes of queues follow each other, and a lane that is just being made is either seen or sees the change.
LOCK TABLE hourhand.lanes IN SHARE ROW EXCLUSIVE MODE;

-- name: lock_live_runs
-- Nobody claims or ends a run while those in somebody's hands are counted: a limit holds from its first moment. Also
-- whoever has chosen runs, with a lock on each, and has not claimed them yet is waited for: they would pass by it.
LOCK TABLE hourhand.live_runs IN EXCLUSIVE MODE;

-- name: pause_queue
-- Pausing again keeps the time and changes who and why.
INSERT INTO hourhand.queues AS q (namespace_id, queue, paused_at, paused_by, pause_reason)
VALUES (@namespace_id, @queue, clock_timestamp(), @paused_by, @reason)
ON CONFLICT (namespace_id, queue) DO UPDATE
   SET paused_at = coalesce(q.paused_at, excluded.paused_at), paused_by = excluded.paused_by,
       pause_reason = excluded.pause_reason;

-- name: resume_queue
UPDATE hourhand.queues SET paused_at = NULL, paused_by = NULL, pause_reason = NULL
 WHERE namespace_id = @namespace_id AND queue = @queue;

-- name: hold_lanes
UPDATE hourhand.lanes SET held = @held WHERE namespace_id = @namespace_id AND queue = @queue AND held <> @held;

-- name: get_gate
SELECT capacity, rate_count, rate_seconds FROM hourhand.gates
 WHERE namespace_id = @namespace_id AND kind = @kind AND name = @name;

-- name: put_gate
-- Starts are counted in parts of the stretch of time, so another stretch begins to count anew.
INSERT INTO hourhand.gates AS g (namespace_id, kind, name, capacity, rate_count, rate_seconds)
VALUES (@namespace_id, @kind, @name, @capacity, @rate_count, @rate_seconds)
ON CONFLICT (namespace_id, kind, name) DO UPDATE
   SET capacity = excluded.capacity, rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds,
       rate_bucket = CASE WHEN g.rate_seconds = excluded.rate_seconds THEN g.rate_bucket END,
       rate_starts = CASE WHEN g.rate_seconds = excluded.rate_seconds THEN g.rate_starts END
RETURNING gate_id;

-- name: drop_gate
DELETE FROM hourhand.gates WHERE namespace_id = @namespace_id AND kind = @kind AND name = @name RETURNING gate_id;

-- name: drop_slots
DELETE FROM hourhand.gate_slots WHERE gate_id = @gate_id;

-- name: refresh_lane_gates
-- A lane has the gates of its queue and of its namespace, or none.
UPDATE hourhand.lanes l
   SET gate_ids = (SELECT array_agg(g.gate_id ORDER BY g.gate_id) FROM hourhand.gates g
                    WHERE g.namespace_id = l.namespace_id
                      AND (g.kind = 'namespace' OR (g.kind = 'queue' AND g.name = l.queue)))
 WHERE l.namespace_id = @namespace_id AND (@queue::text IS NULL OR l.queue = @queue);

-- name: count_executing
-- Runs that were claimed before their lane had these gates take their places now, so that they count; and they remember
-- it, so that they give them back.
WITH counted AS (
    UPDATE hourhand.live_runs r
       SET gate_ids = r.gate_ids || ARRAY(SELECT g FROM unnest(l.gate_ids) AS g
                                           WHERE g <> ALL (coalesce(r.gate_ids, '{}')))
      FROM hourhand.lanes l
     WHERE l.lane_id = r.lane_id AND l.namespace_id = @namespace_id AND (@queue::text IS NULL OR l.queue = @queue)
       AND l.gate_ids IS NOT NULL AND r.state IN (2, 3, 4) AND NOT l.gate_ids <@ coalesce(r.gate_ids, '{}')
    RETURNING r.run_id, l.gate_ids
)
INSERT INTO hourhand.gate_slots (run_id, gate_id)
SELECT run_id, unnest(gate_ids) FROM counted
ON CONFLICT DO NOTHING;

-- name: release_waiting
-- Those that wait on a gate that is no more, and those that its rate gave a later time.
UPDATE hourhand.live_runs
   SET state = 0, waits_on = NULL, ready_at = least(ready_at, clock_timestamp())
 WHERE waits_on = @gate_id AND state IN (0, 1);

-- name: release_delayed
-- Those that a rate gave a later time are judged by the new one.
UPDATE hourhand.live_runs SET waits_on = NULL, ready_at = clock_timestamp()
 WHERE waits_on = @gate_id AND state = 0 AND ready_at > clock_timestamp();

-- name: set_weight
UPDATE hourhand.namespaces SET weight = @weight WHERE namespace_id = @namespace_id;
