-- name: register_node
INSERT INTO hourhand.nodes (role, name, started_at, lease_until, facts, orders)
VALUES (@role, @name, clock_timestamp(), clock_timestamp() + make_interval(secs => @lease_seconds), @facts, @orders)
RETURNING node_id;

-- name: renew_node
-- Renews a node's lease by the database's clock, and tells what is wanted of it. No row: the node was found dead; it must
-- stop acting and start anew.
UPDATE hourhand.nodes
   SET lease_until = clock_timestamp() + make_interval(secs => @lease_seconds), facts = @facts
 WHERE node_id = @node_id AND ended_at IS NULL
RETURNING clock_timestamp() AS now, orders;

-- name: end_node
-- One instant for both: it tells those who left from those who were found dead.
UPDATE hourhand.nodes SET ended_at = now(), lease_until = now()
 WHERE node_id = @node_id AND ended_at IS NULL;

-- name: present_nodes
SELECT node_id, role, name, started_at, lease_until, facts, clock_timestamp() AS now
  FROM hourhand.nodes WHERE ended_at IS NULL
 ORDER BY node_id;

-- name: sweep_nodes
-- What a leader needs to know all the time: who is there, whose lease is over, whose runs are still to be returned.
SELECT node_id, role, ended_at IS NOT NULL AS ended, lease_until < clock_timestamp() AS expired, orders,
       extract(epoch FROM lease_until - clock_timestamp())::float8 AS seconds_left
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
-- Takes or renews a lease by the database's clock. The epoch grows whenever the holder changes. Who was found dead, or
-- declared lost, gets none.
INSERT INTO hourhand.leases AS l (name, node_id, epoch, lease_until)
SELECT @name, n.node_id, 1, clock_timestamp() + make_interval(secs => @lease_seconds)
  FROM hourhand.nodes n WHERE n.node_id = @node_id AND n.ended_at IS NULL
ON CONFLICT (name) DO UPDATE
   SET node_id = excluded.node_id, lease_until = excluded.lease_until,
       epoch = l.epoch + CASE WHEN l.node_id = excluded.node_id THEN 0 ELSE 1 END
 WHERE l.node_id = excluded.node_id OR l.lease_until < clock_timestamp()
RETURNING epoch;

-- name: drop_lease
UPDATE hourhand.leases SET lease_until = clock_timestamp() WHERE name = @name AND node_id = @node_id;

-- name: get_lease
SELECT l.name, l.node_id, n.name AS node_name, l.epoch, l.lease_until, l.lease_until > clock_timestamp() AS held,
       extract(epoch FROM l.lease_until - clock_timestamp())::float8 AS seconds_left
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

-- name: database_times
SELECT clock_timestamp() AS now, pg_postmaster_start_time() AS started_at;

-- name: list_nodes
-- Every node that is present or has ended lately, or one of them however long ago it ended.
SELECT n.node_id, n.role, n.name, n.started_at, n.lease_until, n.ended_at, n.orders, n.facts, clock_timestamp() AS now,
       (SELECT count(*) FROM hourhand.shards s WHERE s.owner_id = n.node_id) AS shards,
       EXISTS (SELECT FROM hourhand.leases l WHERE l.name = 'leader' AND l.node_id = n.node_id
                  AND l.lease_until > clock_timestamp()) AS leads
  FROM hourhand.nodes n
 WHERE CASE WHEN @node_id::int IS NOT NULL THEN n.node_id = @node_id
            ELSE n.ended_at IS NULL OR n.ended_at > clock_timestamp() - make_interval(secs => @recent_seconds) END
 ORDER BY n.node_id;

-- name: give_orders
UPDATE hourhand.nodes SET orders = @orders WHERE node_id = @node_id AND ended_at IS NULL
RETURNING node_id;

-- name: mark_lost
-- The lease is left as it was: this is no leaving in order. A leader loses the lead at once.
WITH lost AS (
    UPDATE hourhand.nodes SET ended_at = clock_timestamp() WHERE node_id = @node_id AND ended_at IS NULL
    RETURNING node_id
), freed AS (
    UPDATE hourhand.leases l SET lease_until = clock_timestamp() FROM lost
     WHERE l.node_id = lost.node_id AND l.lease_until > clock_timestamp()
)
SELECT node_id FROM lost;

-- name: list_shards
SELECT s.shard, s.owner_id, n.name AS owner, s.epoch
  FROM hourhand.shards s LEFT JOIN hourhand.nodes n ON n.node_id = s.owner_id
 ORDER BY s.shard;
