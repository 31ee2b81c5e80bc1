-- name: list_partitions
SELECT parent.relname AS parent, child.relname AS name, pg_get_expr(child.relpartbound, child.oid) AS bounds
  FROM pg_inherits i
  JOIN pg_class parent ON parent.oid = i.inhparent
  JOIN pg_class child ON child.oid = i.inhrelid
  JOIN pg_namespace n ON n.oid = parent.relnamespace
 WHERE n.nspname = @schema
 ORDER BY 1, 2;

-- name: prune_run_requests
DELETE FROM hourhand.run_requests WHERE run_id < @before_id;

-- name: prune_ledger_ranges
DELETE FROM hourhand.ledger_ranges WHERE last_due < @before;

-- name: prune_nodes
-- Runs name their executor by its row, so it is kept as long as they are.
DELETE FROM hourhand.nodes WHERE ended_at < @before AND returned;

-- name: prune_tokens
DELETE FROM hourhand.tokens WHERE revoked_at < @before OR expires_at < @before;
