-- name: lock_same_artifact
SELECT artifact_id FROM hourhand.artifacts
 WHERE namespace_id = @namespace_id AND name = @name AND digest = @digest
   FOR UPDATE;

-- name: put_artifact
-- The same content under the same name is there once; uploaded again it has another id and is the newest of its name
-- again. A signature stays when it is uploaded without one: it is of the same name and content.
INSERT INTO hourhand.artifacts (artifact_id, namespace_id, name, digest, size, form, entries, unpacked_bytes, uploaded_at,
                                uploaded_by, signature, signed_by)
VALUES (@artifact_id, @namespace_id, @name, @digest, @size, @form, @entries, @unpacked_bytes, @uploaded_at, @uploaded_by,
        @signature, @signed_by)
ON CONFLICT (namespace_id, name, digest) DO UPDATE
   SET artifact_id = excluded.artifact_id, uploaded_at = excluded.uploaded_at, uploaded_by = excluded.uploaded_by,
       signature = CASE WHEN excluded.signature IS NULL THEN artifacts.signature ELSE excluded.signature END,
       signed_by = CASE WHEN excluded.signature IS NULL THEN artifacts.signed_by ELSE excluded.signed_by END;

-- name: list_artifacts
-- The newest first.
SELECT a.artifact_id, a.name, a.digest, a.size, a.form, a.entries, a.unpacked_bytes, a.uploaded_at, a.uploaded_by,
       a.signature, a.signed_by
  FROM hourhand.artifacts a
 WHERE a.namespace_id = @namespace_id AND (@name::text IS NULL OR a.name = @name)
   AND (@before::uuid IS NULL OR a.artifact_id < @before)
 ORDER BY a.artifact_id DESC
 LIMIT @limit;

-- name: find_artifact
-- By name, by digest, or both; of several the one uploaded last.
SELECT a.artifact_id, a.name, a.digest, a.size, a.form, a.entries, a.unpacked_bytes, a.uploaded_at, a.uploaded_by,
       a.signature, a.signed_by
  FROM hourhand.artifacts a
 WHERE a.namespace_id = @namespace_id AND (@name::text IS NULL OR a.name = @name)
   AND (@digest::text IS NULL OR a.digest = @digest)
 ORDER BY a.artifact_id DESC
 LIMIT 1;

-- name: find_artifact_in
-- The same by the name of the namespace, for executors.
SELECT a.artifact_id, a.name, a.digest, a.size, a.form, a.entries, a.unpacked_bytes, a.uploaded_at, a.uploaded_by,
       a.signature, a.signed_by
  FROM hourhand.namespaces n
  JOIN hourhand.artifacts a USING (namespace_id)
 WHERE n.name = @namespace AND (@name::text IS NULL OR a.name = @name) AND (@digest::text IS NULL OR a.digest = @digest)
 ORDER BY a.artifact_id DESC
 LIMIT 1;

-- name: lock_artifact
-- The one that is to be deleted, and whether it is the newest of its name and the only one with its content.
SELECT a.artifact_id, a.name, a.digest,
       NOT EXISTS (SELECT FROM hourhand.artifacts b WHERE b.namespace_id = a.namespace_id AND b.name = a.name
                      AND b.artifact_id > a.artifact_id) AS newest,
       NOT EXISTS (SELECT FROM hourhand.artifacts b WHERE b.namespace_id = a.namespace_id AND b.digest = a.digest
                      AND b.artifact_id <> a.artifact_id) AS only
  FROM hourhand.artifacts a
 WHERE a.namespace_id = @namespace_id AND a.artifact_id = @artifact_id
   FOR UPDATE OF a;

-- name: jobs_of_artifact
-- Jobs that have something to run still and refer to it in one of these ways.
SELECT j.job_id, j.name
  FROM hourhand.jobs j
 WHERE j.namespace_id = @namespace_id AND j.kind = 'script' AND j.payload ? 'artifact'
   AND j.payload ->> 'artifact' = ANY (@refs::text[]) AND j.status <> 2
   AND (j.status = 1
        OR EXISTS (SELECT FROM hourhand.timetable t WHERE t.job_id = j.job_id)
        OR EXISTS (SELECT FROM hourhand.live_runs r WHERE r.run_id = j.job_id)
        OR EXISTS (SELECT FROM hourhand.live_runs r WHERE r.job_id = j.job_id AND r.cause <> 0))
 LIMIT @limit;

-- name: delete_artifact
DELETE FROM hourhand.artifacts WHERE namespace_id = @namespace_id AND artifact_id = @artifact_id RETURNING artifact_id;
