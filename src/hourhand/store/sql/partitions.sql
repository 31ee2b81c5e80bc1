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

-- name: prune_run_parts
DELETE FROM hourhand.run_parts WHERE run_id < @before_id;

-- name: prune_ledger_ranges
DELETE FROM hourhand.ledger_ranges WHERE last_due < @before;

-- name: prune_pauses
-- Not those in which a cursor still stands, because another pause holds it.
DELETE FROM hourhand.pauses
 WHERE settled AND ended_at < @before AND ended_at <= coalesce((SELECT min(next_fire) FROM hourhand.resting), 'infinity');

-- name: prune_nodes
-- Runs name their executor by its row, so it is kept as long as they are.
DELETE FROM hourhand.nodes WHERE ended_at < @before AND returned;

-- name: prune_tokens
DELETE FROM hourhand.tokens WHERE revoked_at < @before OR expires_at < @before;

-- name: prune_audit
-- The oldest first, as their numbers say.
DELETE FROM hourhand.audit a
 USING (SELECT audit_id FROM hourhand.audit ORDER BY audit_id LIMIT @limit) oldest
 WHERE a.audit_id = oldest.audit_id AND a.at < @before
RETURNING 1;

-- name: prune_idempotency_keys
-- Passes over those that somebody is just taking anew.
DELETE FROM hourhand.idempotency_keys k
 USING (SELECT namespace_id, key FROM hourhand.idempotency_keys
         WHERE created_at <= @before
         ORDER BY created_at LIMIT @limit FOR UPDATE SKIP LOCKED) old
 WHERE k.namespace_id = old.namespace_id AND k.key = old.key
RETURNING 1;

-- name: prune_unique_keys
-- Looks at one slice of unique keys, drops those whose job no longer holds them, and answers where the next slice begins.
-- `job_id` is compared once more under the lock: somebody may have taken the key over since, whose job is not seen yet.
WITH slice AS MATERIALIZED (
    SELECT namespace_id, key, job_id, until FROM hourhand.unique_keys
     WHERE (namespace_id, key) > (@namespace_id::int, @key::text)
     ORDER BY namespace_id, key LIMIT @limit
), free AS MATERIALIZED (
    SELECT s.namespace_id, s.key, s.job_id FROM slice s
     WHERE NOT EXISTS (SELECT FROM hourhand.jobs_in_full j
                        WHERE j.namespace_id = s.namespace_id AND j.job_id = s.job_id AND j.status <> 2
                          AND (s.until > @now OR j.alive OR j.paused))
), locked AS (
    SELECT u.namespace_id, u.key FROM hourhand.unique_keys u JOIN free USING (namespace_id, key, job_id)
       FOR UPDATE OF u SKIP LOCKED
), dropped AS (
    DELETE FROM hourhand.unique_keys u USING locked WHERE u.namespace_id = locked.namespace_id AND u.key = locked.key
)
SELECT namespace_id, key FROM slice ORDER BY namespace_id DESC, key DESC LIMIT 1;
