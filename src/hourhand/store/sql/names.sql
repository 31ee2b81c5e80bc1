-- name: resolve_lanes
-- The numbers of lanes, made where missing. Nothing is ever deleted, so callers keep the answer for good.
WITH wanted AS (
    SELECT DISTINCT queue, needs FROM unnest(@queues::text[], @needs::text[]) AS w(queue, needs)
), made AS (
    INSERT INTO hourhand.lanes (queue, needs) SELECT queue, needs FROM wanted ORDER BY queue, needs
    ON CONFLICT DO NOTHING RETURNING lane_id, queue, needs
)
SELECT lane_id, queue, needs FROM made
UNION
SELECT l.lane_id, l.queue, l.needs FROM hourhand.lanes l JOIN wanted USING (queue, needs);

-- name: list_lanes
SELECT lane_id, queue, needs FROM hourhand.lanes WHERE lane_id > @after ORDER BY lane_id;

-- name: find_namespace
SELECT namespace_id, name FROM hourhand.namespaces WHERE name = @name;

-- name: create_namespace
INSERT INTO hourhand.namespaces (name) VALUES (@name) ON CONFLICT DO NOTHING;

-- name: list_namespaces
SELECT namespace_id, name FROM hourhand.namespaces ORDER BY name;
