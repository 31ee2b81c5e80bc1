-- Keys of submissions. Nothing was written to their tables before this.

-- A key stands for a whole request, and a batch makes many jobs.
ALTER TABLE hourhand.idempotency_keys DROP COLUMN job_id, ADD COLUMN job_ids uuid[] NOT NULL;

-- What a job was submitted with. Who has the key now is in unique_keys.
ALTER TABLE hourhand.jobs ADD COLUMN unique_key text;

-- As before, with the column that is new in jobs.
DROP VIEW hourhand.jobs_in_full;
CREATE VIEW hourhand.jobs_in_full AS
SELECT j.*, l.queue, l.needs, t.next_fire, live.next_live, t.job_id IS NOT NULL OR live.runs > 0 AS alive
  FROM hourhand.jobs j
  JOIN hourhand.lanes l USING (lane_id)
  LEFT JOIN hourhand.timetable t USING (job_id)
 CROSS JOIN LATERAL (
    SELECT count(*) AS runs,
           min(r.scheduled_for) FILTER (WHERE r.state IN (0, 1) AND r.attempt = 0 AND r.cause <> 2) AS next_live
      FROM (SELECT state, attempt, cause, scheduled_for FROM hourhand.live_runs WHERE job_id = j.job_id AND cause <> 0
            UNION ALL
            SELECT state, attempt, cause, scheduled_for FROM hourhand.live_runs
             WHERE run_id = hourhand.scheduled_run_id(j.due_at, j.job_id)) r
 ) live;
