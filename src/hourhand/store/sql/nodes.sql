-- name: register_node
INSERT INTO hourhand.nodes (role, name, started_at, lease_until, facts)
VALUES (@role, @name, clock_timestamp(), clock_timestamp() + make_interval(secs => @lease_seconds), @facts)
RETURNING node_id;

-- name: renew_node
-- Renews a node's lease by the database's clock. No row: the node was found dead; it must stop acting and start anew.
UPDATE hourhand.nodes
   SET lease_until = clock_timestamp() + make_interval(secs => @lease_seconds), facts = @facts
 WHERE node_id = @node_id AND ended_at IS NULL
RETURNING clock_timestamp() AS now;

-- name: end_node
UPDATE hourhand.nodes SET ended_at = clock_timestamp(), lease_until = clock_timestamp()
 WHERE node_id = @node_id AND ended_at IS NULL;

-- name: present_nodes
SELECT node_id, role, name, started_at, lease_until, facts, clock_timestamp() AS now
  FROM hourhand.nodes WHERE ended_at IS NULL
 ORDER BY node_id;

-- name: sweep_nodes
-- What a leader needs to know each second: who is there, whose lease is over, whose runs are still to be returned.
SELECT node_id, role, ended_at IS NOT NULL AS ended, lease_until < clock_timestamp() AS expired
  FROM hourhand.nodes WHERE ended_at IS NULL OR NOT returned
 ORDER BY node_id;

-- name: bury_nodes
UPDATE hourhand.nodes SET ended_at = clock_timestamp() WHERE node_id = ANY (@node_ids::int[]) AND ended_at IS NULL
   AND lease_until < clock_timestamp()
RETURNING node_id;

-- name: mark_returned
UPDATE hourhand.nodes SET returned = true WHERE node_id = ANY (@node_ids::int[]) AND ended_at IS NOT NULL;

-- name: stray_executors
-- Executors that ended while runs still carry their number: a claim that committed just after its executor was buried.
-- A walk over all live runs, so done seldom.
SELECT DISTINCT r.executor_id FROM hourhand.live_runs r JOIN hourhand.nodes n ON n.node_id = r.executor_id
 WHERE r.state IN (2, 3, 4) AND n.ended_at IS NOT NULL;

-- name: take_lease
-- Takes or renews a lease by the database's clock. The epoch grows whenever the holder changes.
INSERT INTO hourhand.leases AS l (name, node_id, epoch, lease_until)
VALUES (@name, @node_id, 1, clock_timestamp() + make_interval(secs => @lease_seconds))
ON CONFLICT (name) DO UPDATE
   SET node_id = excluded.node_id, lease_until = excluded.lease_until,
       epoch = l.epoch + CASE WHEN l.node_id = excluded.node_id THEN 0 ELSE 1 END
 WHERE l.node_id = excluded.node_id OR l.lease_until < clock_timestamp()
RETURNING epoch;

-- name: drop_lease
UPDATE hourhand.leases SET lease_until = clock_timestamp() WHERE name = @name AND node_id = @node_id;

-- name: get_lease
SELECT l.name, l.node_id, n.name AS node_name, l.epoch, l.lease_until, l.lease_until > clock_timestamp() AS held
  FROM hourhand.leases l LEFT JOIN hourhand.nodes n USING (node_id) WHERE l.name = @name;

-- name: assign_shards
-- Writes new owners under the leader's own lease: one that has lost it assigns nothing. Every change draws a new epoch.
WITH leader AS (
    SELECT FROM hourhand.leases WHERE name = 'leader' AND node_id = @node_id AND epoch = @leader_epoch
       AND lease_until > clock_timestamp() FOR SHARE
)
UPDATE hourhand.shards s
   SET owner_id = x.owner_id, epoch = (SELECT max(epoch) + 1 FROM hourhand.shards)
  FROM unnest(@shards::smallint[], @owners::int[]) AS x(shard, owner_id), leader
 WHERE s.shard = x.shard AND s.owner_id IS DISTINCT FROM x.owner_id
RETURNING s.shard;

-- name: owned_shards
SELECT count(*) FILTER (WHERE owner_id = @node_id) AS owned, coalesce(max(epoch), 0) AS epoch FROM hourhand.shards;
