-- name: ledger_job
-- What follows from the job itself: its schedule, where its cursor really stands, its own pause.
SELECT j.job_id, j.timing, j.due_at, j.created_at, j.updated_at, j.version, j.catchup, j.status, j.paused_at, j.paused_by,
       j.pause_reason, j.pause_until, j.pause_from, coalesce(r.next_fire, t.next_fire) AS next_fire,
       CASE WHEN j.cancelled_at IS NOT NULL THEN j.cancelled_at
            WHEN t.job_id IS NULL AND (j.status = 2 OR b.runs_left = 0) THEN     -- with its last due time
                coalesce(greatest((SELECT max(l.scheduled_for) FROM hourhand.live_runs l
                                    WHERE l.job_id = j.job_id AND l.cause = 1),
                                  (SELECT x.scheduled_for FROM hourhand.runs x
                                    WHERE x.job_id = j.job_id AND x.cause <> 2 ORDER BY x.run_id DESC LIMIT 1)),
                         j.created_at)
       END AS ended_at
  FROM hourhand.jobs j
  LEFT JOIN hourhand.timetable t ON t.job_id = j.job_id
  LEFT JOIN hourhand.resting r ON r.job_id = j.job_id
  LEFT JOIN hourhand.run_budgets b ON b.job_id = j.job_id
 WHERE j.namespace_id = @namespace_id AND j.job_id = @job_id;

-- name: ledger_runs
-- The runs of due times, earliest first. Their ids sort by due time.
(SELECT r.run_id, r.scheduled_for, r.state, r.reason, r.error, r.started_at, r.ended_at
   FROM hourhand.runs r
  WHERE r.namespace_id = @namespace_id AND r.job_id = @job_id AND r.run_id >= @lowest AND r.run_id < @highest
    AND r.cause IN (0, 1) AND NOT hourhand.is_part(r.run_id) AND r.scheduled_for >= @since AND r.scheduled_for <= @until
  ORDER BY r.run_id
  LIMIT @limit)
 UNION ALL
(SELECT r.run_id, r.scheduled_for, r.state, NULL, NULL, r.started_at, NULL
   FROM hourhand.live_runs r
  WHERE ((r.job_id = @job_id AND r.cause = 1) OR r.run_id = @once_run_id::uuid)
    AND r.namespace_id = @namespace_id AND r.scheduled_for >= @since AND r.scheduled_for <= @until
  ORDER BY r.run_id
  LIMIT @limit)
 ORDER BY scheduled_for, run_id
 LIMIT @limit;

-- name: ledger_stretches
SELECT first_due, last_due, count, reason, version, detail, next_due, recent_from, recent_count
  FROM hourhand.ledger_ranges
 WHERE job_id = @job_id AND last_due >= @since AND first_due <= @until
 ORDER BY first_due
 LIMIT @limit;

-- name: ledger_backfills
-- The newest run of a backfill for each due time that has one.
SELECT DISTINCT ON (due) due, run_id
  FROM hourhand.backfill_runs
 WHERE job_id = @job_id AND due >= @since AND due <= @until
 ORDER BY due, released_at DESC
 LIMIT @limit;

-- name: ledger_versions
-- The schedules that the job had, oldest first, each with when the next one began to count.
SELECT v.version, v.definition -> 'timing' AS timing, v.definition ->> 'due_at' AS due_at,
       coalesce(lead(v.changed_at) OVER (ORDER BY v.version), @updated_at) AS replaced_at
  FROM hourhand.job_versions v
 WHERE v.job_id = @job_id
 ORDER BY v.version;
