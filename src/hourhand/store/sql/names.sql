-- name: resolve_lanes
-- The numbers of lanes, made where missing. Nothing is ever deleted, so callers keep the answer for good. A new lane of a
-- queue that is paused or limited is so from its first moment: the locks wait for a change of either that is under way.
WITH wanted AS (
    SELECT DISTINCT namespace_id, queue, needs, gated
      FROM unnest(@namespace_ids::int[], @queues::text[], @needs::text[], @gated::boolean[])
           AS w(namespace_id, queue, needs, gated)
), paused AS (
    SELECT q.namespace_id, q.queue FROM hourhand.queues q JOIN (SELECT DISTINCT namespace_id, queue FROM wanted) w
        ON q.namespace_id = w.namespace_id AND q.queue = w.queue
     WHERE q.paused_at IS NOT NULL
       FOR SHARE OF q
), limited AS (
    SELECT g.gate_id, g.namespace_id, g.kind, g.name FROM hourhand.gates g
     WHERE g.kind IN ('queue', 'namespace') AND g.namespace_id IN (SELECT namespace_id FROM wanted)
       AND (g.capacity IS NOT NULL OR g.rate_count IS NOT NULL)
       FOR SHARE OF g
), made AS (
    INSERT INTO hourhand.lanes (namespace_id, queue, needs, gated, held, gate_ids)
    SELECT w.namespace_id, w.queue, w.needs, w.gated,
           EXISTS (SELECT FROM paused p WHERE p.namespace_id = w.namespace_id AND p.queue = w.queue),
           (SELECT array_agg(l.gate_id ORDER BY l.gate_id) FROM limited l
             WHERE l.namespace_id = w.namespace_id AND (l.kind = 'namespace' OR l.name = w.queue))
      FROM wanted w ORDER BY namespace_id, queue, needs, gated
    ON CONFLICT DO NOTHING RETURNING lane_id, namespace_id, queue, needs, gated
)
SELECT lane_id, namespace_id, queue, needs, gated FROM made
UNION
SELECT l.lane_id, l.namespace_id, l.queue, l.needs, l.gated
  FROM hourhand.lanes l JOIN wanted USING (namespace_id, queue, needs, gated);

-- name: demanding_lanes
-- Of some namespaces. There is a bound to their number, so this is never long.
SELECT namespace_id, queue, needs, gated FROM hourhand.lanes
 WHERE namespace_id = ANY (@namespace_ids::int[]) AND position(' {' IN needs) > 0;

-- name: list_lanes
SELECT l.lane_id, l.namespace_id, l.queue, l.needs, l.gated OR l.gate_ids IS NOT NULL AS careful, l.held, n.weight
  FROM hourhand.lanes l JOIN hourhand.namespaces n USING (namespace_id)
 ORDER BY l.lane_id;

-- name: find_namespace
SELECT namespace_id, name FROM hourhand.namespaces WHERE name = @name;

-- name: create_namespace
INSERT INTO hourhand.namespaces (name) VALUES (@name) ON CONFLICT DO NOTHING;

-- name: list_namespaces
SELECT namespace_id, name FROM hourhand.namespaces ORDER BY name;
