-- name: find_grants
SELECT name, grants FROM hourhand.secrets WHERE namespace_id = @namespace_id AND name = ANY (@names::text[]);

-- name: list_secrets
SELECT s.name, s.version, s.description, s.grants, s.created_at, s.updated_at, s.updated_by,
       (SELECT count(*) FROM hourhand.secret_jobs l WHERE l.namespace_id = s.namespace_id AND l.secret = s.name) AS jobs,
       u.at AS last_used_at, u.details ->> 'run_id' AS last_used_run
  FROM hourhand.secrets s
  LEFT JOIN LATERAL (
    SELECT a.at, a.details FROM hourhand.audit a
     WHERE a.namespace_id = s.namespace_id AND a.subject = 'secret/' || s.name AND a.action = 'secret.use'
     ORDER BY a.audit_id DESC LIMIT 1
  ) u ON true
 WHERE s.namespace_id = @namespace_id AND (@after::text IS NULL OR s.name > @after) AND (@name::text IS NULL OR s.name = @name)
 ORDER BY s.name
 LIMIT @limit;

-- name: secret_version
SELECT version FROM hourhand.secrets WHERE namespace_id = @namespace_id AND name = @name;

-- name: put_secret
-- Stores a value as the version that it was sealed for, if nobody has stored one meanwhile. The value before is gone.
WITH put AS (
    INSERT INTO hourhand.secrets AS s (namespace_id, name, version, key_id, wrapped_key, sealed, description, grants,
                                       created_at, updated_at, updated_by)
    SELECT @namespace_id, @name, @version, @key_id, @wrapped_key, @sealed, coalesce(@description::text, ''),
           @grants::jsonb, statement_timestamp(), statement_timestamp(), @changed_by
     WHERE @version = 1
        OR EXISTS (SELECT FROM hourhand.secrets WHERE namespace_id = @namespace_id AND name = @name)
    ON CONFLICT (namespace_id, name) DO UPDATE
       SET version = excluded.version, key_id = excluded.key_id, wrapped_key = excluded.wrapped_key,
           sealed = excluded.sealed, updated_at = excluded.updated_at, updated_by = excluded.updated_by,
           description = coalesce(@description::text, s.description),
           grants = CASE WHEN @keep_grants::boolean THEN s.grants ELSE excluded.grants END
     WHERE s.version = excluded.version - 1
    RETURNING s.version
)
INSERT INTO hourhand.audit (namespace_id, actor, action, subject, details)
SELECT @namespace_id, @changed_by, 'secret.write', 'secret/' || @name, jsonb_build_object('version', version) FROM put
RETURNING audit_id;

-- name: change_secret
WITH changed AS (
    UPDATE hourhand.secrets s
       SET description = coalesce(@description::text, s.description),
           grants = CASE WHEN @keep_grants::boolean THEN s.grants ELSE @grants::jsonb END
     WHERE namespace_id = @namespace_id AND name = @name
    RETURNING s.grants
)
INSERT INTO hourhand.audit (namespace_id, actor, action, subject, details)
SELECT @namespace_id, @changed_by, 'secret.change', 'secret/' || @name, jsonb_build_object('grant', grants) FROM changed
RETURNING audit_id;

-- name: lock_secret
SELECT version FROM hourhand.secrets WHERE namespace_id = @namespace_id AND name = @name FOR UPDATE;

-- name: jobs_of_secret
-- Those that may still run.
SELECT j.job_id, j.name
  FROM hourhand.secret_jobs l
  JOIN hourhand.jobs_in_full j ON j.namespace_id = l.namespace_id AND j.job_id = l.job_id
 WHERE l.namespace_id = @namespace_id AND l.secret = @name AND j.status <> 2 AND (j.alive OR j.paused)
 ORDER BY l.job_id DESC
 LIMIT @limit;

-- name: delete_secret
WITH gone AS (
    DELETE FROM hourhand.secrets WHERE namespace_id = @namespace_id AND name = @name RETURNING version
)
INSERT INTO hourhand.audit (namespace_id, actor, action, subject, details)
SELECT @namespace_id, @changed_by, 'secret.delete', 'secret/' || @name,
       jsonb_build_object('version', version, 'forced', @forced::boolean)
  FROM gone
RETURNING audit_id;

-- name: use_secrets
-- The values that attempts need, for those only that this executor holds at this moment: by a lease that is not over, and by
-- the fence of each run. Of these only what the job refers to, and may use by the grants as they are now. Who gets a value is
-- in the audit by the same statement. A secret that is missing or not granted is a row without a version; an attempt that is
-- not this executor's any more has no row.
WITH held AS MATERIALIZED (
    SELECT r.run_id, r.fence, r.namespace_id, r.job_id, r.attempt, x.name, n.name AS executor
      FROM unnest(@run_ids::uuid[], @fences::bigint[], @names::text[]) AS x(run_id, fence, name)
      JOIN hourhand.live_runs r ON r.run_id = x.run_id AND r.fence = x.fence
      JOIN hourhand.nodes n ON n.node_id = r.executor_id
     WHERE r.executor_id = @executor_id AND r.state IN (2, 3)
       AND n.ended_at IS NULL AND n.lease_until > clock_timestamp()
), found AS MATERIALIZED (
    SELECT h.*, s.version, s.key_id, s.wrapped_key, s.sealed
      FROM held h
      JOIN hourhand.jobs j ON j.namespace_id = h.namespace_id AND j.job_id = h.job_id
      JOIN hourhand.secret_jobs l ON l.job_id = h.job_id AND l.secret = h.name
      JOIN hourhand.secrets s ON s.namespace_id = h.namespace_id AND s.name = h.name
     WHERE (s.grants -> 'jobs' IS NULL OR s.grants -> 'jobs' ? j.name OR s.grants -> 'jobs' ? j.job_id::text)
       AND (s.grants -> 'kinds' IS NULL OR s.grants -> 'kinds' ? j.kind)
       AND (s.grants -> 'labels' IS NULL OR j.labels @> (s.grants -> 'labels'))
), told AS (
    INSERT INTO hourhand.audit (namespace_id, actor, action, subject, details)
    SELECT namespace_id, 'executor ' || executor, 'secret.use', 'secret/' || name,
           jsonb_build_object('version', version, 'run_id', run_id, 'job_id', job_id, 'attempt', attempt, 'fence', fence)
      FROM found
)
SELECT h.run_id, h.fence, h.name, h.namespace_id, f.version, f.key_id, f.wrapped_key, f.sealed
  FROM held h
  LEFT JOIN found f ON f.run_id = h.run_id AND f.fence = h.fence AND f.name = h.name;

-- name: key_ids
SELECT DISTINCT key_id FROM hourhand.secrets;

-- name: wrapped_by_others
SELECT namespace_id, name, version, key_id, wrapped_key FROM hourhand.secrets WHERE key_id <> @key_id LIMIT @limit;

-- name: put_wrapped
-- Under the version: a value that was written meanwhile has another key.
UPDATE hourhand.secrets s SET key_id = @key_id, wrapped_key = x.wrapped_key
  FROM unnest(@namespace_ids::int[], @names::text[], @versions::int[], @wrapped::bytea[])
       AS x(namespace_id, name, version, wrapped_key)
 WHERE s.namespace_id = x.namespace_id AND s.name = x.name AND s.version = x.version
RETURNING s.name;
