-- name: usage_of_job
-- What the last runs of a job have taken, newest first. However many runs it has, no more than some are looked at.
SELECT usage, extract(epoch FROM ended_at - started_at)::float8 AS seconds
  FROM (SELECT run_id, usage, started_at, ended_at FROM hourhand.runs
         WHERE namespace_id = @namespace_id AND job_id = @job_id
         ORDER BY run_id DESC LIMIT @look) r
 WHERE usage IS NOT NULL AND started_at IS NOT NULL
 ORDER BY run_id DESC
 LIMIT @limit;
