-- name: find_gates
SELECT g.gate_id, g.namespace_id, g.kind, g.name, g.capacity, g.rate_count, g.rate_seconds
  FROM unnest(@namespace_ids::int[], @kinds::text[], @names::text[]) AS w(namespace_id, kind, name)
  JOIN hourhand.gates g ON g.namespace_id = w.namespace_id AND g.kind = w.kind AND g.name = w.name;

-- name: put_gates
-- Makes gates, or gives them their newest limits. Those that exist are locked first, in the order of their numbers, as by
-- those who claim: in another one each might wait for the other.
WITH held AS MATERIALIZED (
    SELECT g.gate_id
      FROM unnest(@namespace_ids::int[], @kinds::text[], @names::text[]) AS w(namespace_id, kind, name)
      JOIN hourhand.gates g ON g.namespace_id = w.namespace_id AND g.kind = w.kind AND g.name = w.name
     ORDER BY g.gate_id
       FOR UPDATE OF g
)
INSERT INTO hourhand.gates AS g (namespace_id, kind, name, capacity, rate_count, rate_seconds)
SELECT w.namespace_id, w.kind, w.name, w.capacity, w.rate_count, w.rate_seconds
  FROM (SELECT count(*) FROM held) AS first,
       unnest(@namespace_ids::int[], @kinds::text[], @names::text[], @capacities::int[], @rate_counts::int[],
              @rate_seconds::float8[]) AS w(namespace_id, kind, name, capacity, rate_count, rate_seconds)
 ORDER BY w.namespace_id, w.kind, w.name
ON CONFLICT (namespace_id, kind, name) DO UPDATE
   SET capacity = excluded.capacity, rate_count = excluded.rate_count, rate_seconds = excluded.rate_seconds,
       rate_bucket = CASE WHEN g.rate_seconds IS NOT DISTINCT FROM excluded.rate_seconds THEN g.rate_bucket END,
       rate_starts = CASE WHEN g.rate_seconds IS NOT DISTINCT FROM excluded.rate_seconds THEN g.rate_starts END
RETURNING gate_id, namespace_id, kind, name;
