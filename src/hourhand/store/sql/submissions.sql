-- name: claim_keys
-- Takes each idempotency key that is free or has expired, and answers with what every key stands for now. Rows are locked
-- in one order, so that two callers never wait for each other crosswise; and nobody waits longer than `patience`, which
-- must be set before the first row is touched: hence the join.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', @patience, true))
INSERT INTO hourhand.idempotency_keys AS k (namespace_id, key, digest, job_ids, created_at)
SELECT x.namespace_id, x.key, x.digest, x.job_ids::uuid[], x.created_at
  FROM patience, unnest(@namespace_ids::int[], @keys::text[], @digests::bytea[], @job_ids::text[],
                        @created_at::timestamptz[]) AS x(namespace_id, key, digest, job_ids, created_at)
 ORDER BY x.namespace_id, x.key
ON CONFLICT (namespace_id, key) DO UPDATE
   SET digest = CASE WHEN k.created_at > excluded.created_at - @kept::interval THEN k.digest ELSE excluded.digest END,
       job_ids = CASE WHEN k.created_at > excluded.created_at - @kept::interval THEN k.job_ids ELSE excluded.job_ids END,
       created_at = CASE WHEN k.created_at > excluded.created_at - @kept::interval THEN k.created_at
                    ELSE excluded.created_at END
RETURNING namespace_id, key, digest, job_ids;

-- name: drop_keys
-- Gives back idempotency keys that were claimed in this transaction, for submissions that are not stored after all.
DELETE FROM hourhand.idempotency_keys k
 USING unnest(@namespace_ids::int[], @keys::text[]) AS x(namespace_id, key)
 WHERE k.namespace_id = x.namespace_id AND k.key = x.key;

-- name: find_key
SELECT digest, job_ids FROM hourhand.idempotency_keys
 WHERE namespace_id = @namespace_id AND key = @key AND created_at > @since;

-- name: claim_unique_keys
-- Takes each unique key that nobody has; of the others it locks the row and changes nothing. Order and patience as above.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', @patience, true))
INSERT INTO hourhand.unique_keys (namespace_id, key, job_id, until)
SELECT x.namespace_id, x.key, x.job_id, x.until
  FROM patience, unnest(@namespace_ids::int[], @keys::text[], @job_ids::uuid[], @untils::timestamptz[])
                 AS x(namespace_id, key, job_id, until)
 ORDER BY x.namespace_id, x.key
ON CONFLICT (namespace_id, key) DO UPDATE SET key = excluded.key
RETURNING namespace_id, key, job_id;

-- name: take_over_unique_keys
-- Takes locked keys over from jobs that hold them no longer: cancelled ones, those whose period is over, and, where
-- either side asks for a live job only, those that are not alive. A paused job is. A statement of its own, because it
-- must see the jobs of those whom the one above has waited for.
UPDATE hourhand.unique_keys u
   SET job_id = x.job_id, until = x.until
  FROM unnest(@namespace_ids::int[], @keys::text[], @job_ids::uuid[], @untils::timestamptz[], @nows::timestamptz[])
       AS x(namespace_id, key, job_id, until, now)
 WHERE u.namespace_id = x.namespace_id AND u.key = x.key
   AND NOT EXISTS (SELECT FROM hourhand.jobs_in_full j
                    WHERE j.namespace_id = u.namespace_id AND j.job_id = u.job_id AND j.status <> 2
                      AND (u.until > x.now OR ((u.until IS NULL OR x.until IS NULL) AND (j.alive OR j.paused))))
RETURNING u.namespace_id, u.key;
