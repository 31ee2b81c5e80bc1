-- name: get_live_run
SELECT r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, r.ready_at, r.started_at,
       NULL::timestamptz AS ended_at, r.attempt, n.name AS executor, r.version, NULL::text AS reason, NULL::text AS error,
       NULL::jsonb AS result, q.requested_by, q.note
  FROM hourhand.live_runs r
  JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
 WHERE r.namespace_id = @namespace_id AND r.run_id = @run_id;

-- name: get_finished_run
SELECT r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, NULL::timestamptz AS ready_at,
       r.started_at, r.ended_at, r.attempt, n.name AS executor, r.version, r.reason, r.error, r.result, q.requested_by,
       q.note
  FROM hourhand.runs r
  LEFT JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
 WHERE r.namespace_id = @namespace_id AND r.run_id = @run_id;

-- name: list_live_runs
-- Newest first. Live runs are few: never more than the backlog.
SELECT r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, r.ready_at, r.started_at,
       NULL::timestamptz AS ended_at, r.attempt, n.name AS executor, r.version, NULL::text AS reason, NULL::text AS error,
       NULL::jsonb AS result, q.requested_by, q.note
  FROM (SELECT * FROM hourhand.live_runs x
         WHERE x.namespace_id = @namespace_id
           AND x.state = ANY (@states::smallint[])
           AND (@before::uuid IS NULL OR x.run_id < @before)
         ORDER BY x.run_id DESC LIMIT @limit) r
  JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
 ORDER BY r.run_id DESC;

-- name: list_live_runs_of_job
SELECT r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, r.ready_at, r.started_at,
       NULL::timestamptz AS ended_at, r.attempt, n.name AS executor, r.version, NULL::text AS reason, NULL::text AS error,
       NULL::jsonb AS result, q.requested_by, q.note
  FROM (SELECT * FROM hourhand.live_runs x
         WHERE x.namespace_id = @namespace_id
           AND ((x.job_id = @job_id AND x.cause <> 0) OR x.run_id = @once_run_id::uuid)
           AND x.state = ANY (@states::smallint[])
           AND (@before::uuid IS NULL OR x.run_id < @before)
         ORDER BY x.run_id DESC LIMIT @limit) r
  JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
 ORDER BY r.run_id DESC;

-- name: list_finished_runs
SELECT r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, NULL::timestamptz AS ready_at,
       r.started_at, r.ended_at, r.attempt, n.name AS executor, r.version, r.reason, r.error, r.result, q.requested_by,
       q.note
  FROM (SELECT * FROM hourhand.runs x
         WHERE x.namespace_id = @namespace_id
           AND x.state = ANY (@states::smallint[])
           AND x.run_id < @before::uuid
         ORDER BY x.run_id DESC LIMIT @limit) r
  LEFT JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
 ORDER BY r.run_id DESC;

-- name: list_finished_runs_of_job
SELECT r.run_id, r.job_id, j.name AS job_name, r.state, r.cause, r.scheduled_for, NULL::timestamptz AS ready_at,
       r.started_at, r.ended_at, r.attempt, n.name AS executor, r.version, r.reason, r.error, r.result, q.requested_by,
       q.note
  FROM (SELECT * FROM hourhand.runs x
         WHERE x.namespace_id = @namespace_id AND x.job_id = @job_id
           AND x.state = ANY (@states::smallint[])
           AND x.run_id < @before::uuid
         ORDER BY x.run_id DESC LIMIT @limit) r
  LEFT JOIN hourhand.jobs j ON j.namespace_id = r.namespace_id AND j.job_id = r.job_id
  LEFT JOIN hourhand.nodes n ON n.node_id = r.executor_id
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id
 ORDER BY r.run_id DESC;

-- name: list_attempts
SELECT a.attempt, a.state, a.reason, a.error, n.name AS executor, a.started_at, a.ended_at
  FROM hourhand.attempts a
  LEFT JOIN hourhand.nodes n ON n.node_id = a.executor_id
 WHERE a.run_id = @run_id
 ORDER BY a.attempt;

-- name: count_live
SELECT state, count(*) AS count FROM hourhand.live_runs WHERE namespace_id = @namespace_id GROUP BY state;

-- name: count_finished_since
SELECT state, count(*) AS count FROM hourhand.runs
 WHERE namespace_id = @namespace_id AND run_id >= @since::uuid GROUP BY state;
