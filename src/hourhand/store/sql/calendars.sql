-- name: list_calendars
SELECT c.name, c.rule, c.version, c.created_at, c.updated_at, c.updated_by,
       (SELECT count(*) FROM hourhand.calendar_jobs l WHERE l.namespace_id = c.namespace_id AND l.calendar = c.name) AS jobs
  FROM hourhand.calendars c
 WHERE c.namespace_id = @namespace_id AND (@after::text IS NULL OR c.name > @after) AND (@name::text IS NULL OR c.name = @name)
 ORDER BY c.name
 LIMIT @limit;

-- name: put_calendar
-- Without an expected version whatever is there is replaced; 0 expects that there is none.
INSERT INTO hourhand.calendars AS c (namespace_id, name, rule, version, created_at, updated_at, updated_by)
SELECT @namespace_id, @name, @rule::jsonb, 1, @now, @now, @changed_by
 WHERE @expected::int IS NULL OR @expected = 0
    OR EXISTS (SELECT FROM hourhand.calendars WHERE namespace_id = @namespace_id AND name = @name AND version = @expected)
ON CONFLICT (namespace_id, name) DO UPDATE
   SET rule = excluded.rule, version = c.version + 1, updated_at = excluded.updated_at, updated_by = excluded.updated_by
 WHERE @expected::int IS NULL OR c.version = @expected
RETURNING version;

-- name: delete_calendar
DELETE FROM hourhand.calendars WHERE namespace_id = @namespace_id AND name = @name RETURNING name;

-- name: lock_cursors
-- Of jobs that use the calendar and have runs that are made ahead of time: first the cursors, then the runs, as everybody
-- does it.
SELECT t.job_id FROM hourhand.timetable t
 WHERE t.job_id IN (SELECT r.job_id FROM hourhand.calendar_jobs l
                      JOIN hourhand.live_runs r ON r.job_id = l.job_id AND r.cause = 1
                     WHERE l.namespace_id = @namespace_id AND l.calendar = @name
                       AND r.state IN (0, 1) AND r.attempt = 0 AND r.scheduled_for > @now)
 ORDER BY t.ctid
   FOR UPDATE;

-- name: withdraw_runs
-- Takes back unstarted runs of due times to come and sets the cursors back to them: the calendar as it is now decides.
WITH gone AS (
    DELETE FROM hourhand.live_runs r
     WHERE r.job_id = ANY (@job_ids::uuid[]) AND r.cause = 1
       AND r.state IN (0, 1) AND r.attempt = 0 AND r.scheduled_for > @now
    RETURNING r.job_id, r.scheduled_for
), first AS (
    SELECT job_id, min(scheduled_for) AS due, count(*)::int AS runs FROM gone GROUP BY job_id
), given_back AS (
    UPDATE hourhand.run_budgets b SET runs_left = b.runs_left + f.runs FROM first f WHERE b.job_id = f.job_id
)
UPDATE hourhand.timetable t SET next_fire = least(t.next_fire, f.due) FROM first f WHERE t.job_id = f.job_id
RETURNING t.job_id;

-- name: shifted_cursors
-- Cursors of jobs that wait for the next allowed time, one page. Those that a pause holds stand at the end of time.
SELECT t.job_id, t.next_fire, t.version, j.timing
  FROM hourhand.calendar_jobs l
  JOIN hourhand.timetable t ON t.job_id = l.job_id
  JOIN hourhand.jobs j ON j.namespace_id = l.namespace_id AND j.job_id = l.job_id
 WHERE l.namespace_id = @namespace_id AND l.calendar = @name AND t.next_fire > @now AND t.next_fire < @never
   AND j.timing ->> 'on_excluded' = 'next_allowed' AND (@after::uuid IS NULL OR l.job_id > @after)
 ORDER BY l.job_id
 LIMIT @limit;

-- name: set_cursors_back
UPDATE hourhand.timetable t SET next_fire = x.next_fire
  FROM unnest(@job_ids::uuid[], @expected::timestamptz[], @next_fires::timestamptz[]) AS x(job_id, expected, next_fire)
 WHERE t.job_id = x.job_id AND t.next_fire = x.expected;

-- name: jobs_of_calendar
-- Jobs that use it and go on by themselves, one page: those that have a cursor, and those that are paused.
SELECT j.job_id, j.name, j.timing
  FROM hourhand.calendar_jobs l
  JOIN hourhand.jobs j ON j.namespace_id = l.namespace_id AND j.job_id = l.job_id
 WHERE l.namespace_id = @namespace_id AND l.calendar = @name AND j.timing IS NOT NULL
   AND (j.status = 1 OR (j.status = 0 AND EXISTS (SELECT FROM hourhand.timetable t WHERE t.job_id = j.job_id)))
 ORDER BY l.job_id
 LIMIT @limit;
