-- name: current_version
SELECT j.*, l.queue FROM hourhand.jobs j JOIN hourhand.lanes l USING (lane_id)
 WHERE j.namespace_id = @namespace_id AND j.job_id = @job_id;

-- name: list_versions
SELECT version, definition, changed_at, changed_by FROM hourhand.job_versions
 WHERE job_id = @job_id AND version < @before ORDER BY version DESC LIMIT @limit;
