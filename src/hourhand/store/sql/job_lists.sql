-- Lists of jobs, newest first, one page behind the cursor. Nothing here costs more than `look` says, however many jobs are
-- stored: a walk ends with the row at that place, which is in the answer (`is_last`) even where it does not fit, so that the
-- next page goes on behind it. Only the jobs of the page are looked up elsewhere.
-- Whether a job is alive is asked for by values and not by EXISTS, which may become a scan of all that is alive.

-- name: walk_jobs
WITH looked AS (
    SELECT j.namespace_id, j.job_id, row_number() OVER (ORDER BY j.job_id DESC) AS place,
           (@name::text IS NULL OR j.name = @name)
           AND (@kind::text IS NULL OR j.kind = @kind)
           AND (@owner::text IS NULL OR j.owner = @owner)
           AND (@queue::text IS NULL
                OR j.lane_id = ANY (ARRAY(SELECT l.lane_id FROM hourhand.lanes l
                                           WHERE l.namespace_id = @namespace_id AND l.queue = @queue)))
           AND (@labels::jsonb IS NULL OR j.labels @> @labels)
           AND (@priority::smallint[] IS NULL OR j.priority = ANY (@priority))
           AND (@recurring::boolean IS NULL OR (j.due_at IS NULL) = @recurring)
           AND (@state::text IS NULL OR @state = CASE
                WHEN j.status = 2 THEN 'cancelled'
                WHEN j.status = 1 AND (j.pause_until IS NULL OR j.pause_until > statement_timestamp()) THEN 'paused'
                WHEN coalesce((SELECT true FROM hourhand.timetable t WHERE t.job_id = j.job_id),
                              (SELECT true FROM hourhand.live_runs r
                                WHERE r.run_id = hourhand.scheduled_run_id(j.due_at, j.job_id)),
                              (SELECT true FROM hourhand.live_runs r WHERE r.job_id = j.job_id AND r.cause <> 0 LIMIT 1),
                              false) THEN 'scheduled'
                ELSE 'completed' END) AS fits
      FROM hourhand.jobs j
     WHERE j.namespace_id = @namespace_id AND j.job_id < @before::uuid
     ORDER BY j.job_id DESC
     LIMIT @look
), page AS MATERIALIZED (
    SELECT * FROM looked WHERE fits OR place = @look ORDER BY job_id DESC LIMIT @limit OFFSET @skip
)
SELECT j.*, page.fits, page.place = @look AS is_last
  FROM page JOIN hourhand.jobs_in_full j ON j.namespace_id = page.namespace_id AND j.job_id = page.job_id
 ORDER BY j.job_id DESC;

-- name: walk_recurring
WITH looked AS (
    SELECT j.namespace_id, j.job_id, row_number() OVER (ORDER BY j.job_id DESC) AS place,
           (@name::text IS NULL OR j.name = @name)
           AND (@kind::text IS NULL OR j.kind = @kind)
           AND (@owner::text IS NULL OR j.owner = @owner)
           AND (@queue::text IS NULL
                OR j.lane_id = ANY (ARRAY(SELECT l.lane_id FROM hourhand.lanes l
                                           WHERE l.namespace_id = @namespace_id AND l.queue = @queue)))
           AND (@labels::jsonb IS NULL OR j.labels @> @labels)
           AND (@priority::smallint[] IS NULL OR j.priority = ANY (@priority))
           AND (@recurring::boolean IS NULL OR (j.due_at IS NULL) = @recurring)
           AND (@state::text IS NULL OR @state = CASE
                WHEN j.status = 2 THEN 'cancelled'
                WHEN j.status = 1 AND (j.pause_until IS NULL OR j.pause_until > statement_timestamp()) THEN 'paused'
                WHEN coalesce((SELECT true FROM hourhand.timetable t WHERE t.job_id = j.job_id),
                              (SELECT true FROM hourhand.live_runs r
                                WHERE r.run_id = hourhand.scheduled_run_id(j.due_at, j.job_id)),
                              (SELECT true FROM hourhand.live_runs r WHERE r.job_id = j.job_id AND r.cause <> 0 LIMIT 1),
                              false) THEN 'scheduled'
                ELSE 'completed' END) AS fits
      FROM hourhand.jobs j
     WHERE j.namespace_id = @namespace_id AND j.due_at IS NULL AND j.job_id < @before::uuid
     ORDER BY j.job_id DESC
     LIMIT @look
), page AS MATERIALIZED (
    SELECT * FROM looked WHERE fits OR place = @look ORDER BY job_id DESC LIMIT @limit OFFSET @skip
)
SELECT j.*, page.fits, page.place = @look AS is_last
  FROM page JOIN hourhand.jobs_in_full j ON j.namespace_id = page.namespace_id AND j.job_id = page.job_id
 ORDER BY j.job_id DESC;

-- name: walk_recurring_named
WITH looked AS (
    SELECT j.namespace_id, j.job_id, row_number() OVER (ORDER BY j.job_id DESC) AS place,
           (@name::text IS NULL OR j.name = @name)
           AND (@kind::text IS NULL OR j.kind = @kind)
           AND (@owner::text IS NULL OR j.owner = @owner)
           AND (@queue::text IS NULL
                OR j.lane_id = ANY (ARRAY(SELECT l.lane_id FROM hourhand.lanes l
                                           WHERE l.namespace_id = @namespace_id AND l.queue = @queue)))
           AND (@labels::jsonb IS NULL OR j.labels @> @labels)
           AND (@priority::smallint[] IS NULL OR j.priority = ANY (@priority))
           AND (@recurring::boolean IS NULL OR (j.due_at IS NULL) = @recurring)
           AND (@state::text IS NULL OR @state = CASE
                WHEN j.status = 2 THEN 'cancelled'
                WHEN j.status = 1 AND (j.pause_until IS NULL OR j.pause_until > statement_timestamp()) THEN 'paused'
                WHEN coalesce((SELECT true FROM hourhand.timetable t WHERE t.job_id = j.job_id),
                              (SELECT true FROM hourhand.live_runs r
                                WHERE r.run_id = hourhand.scheduled_run_id(j.due_at, j.job_id)),
                              (SELECT true FROM hourhand.live_runs r WHERE r.job_id = j.job_id AND r.cause <> 0 LIMIT 1),
                              false) THEN 'scheduled'
                ELSE 'completed' END) AS fits
      FROM hourhand.jobs j
     WHERE j.namespace_id = @namespace_id AND j.due_at IS NULL AND j.name = @name AND j.job_id < @before::uuid
     ORDER BY j.job_id DESC
     LIMIT @look
), page AS MATERIALIZED (
    SELECT * FROM looked WHERE fits OR place = @look ORDER BY job_id DESC LIMIT @limit OFFSET @skip
)
SELECT j.*, page.fits, page.place = @look AS is_last
  FROM page JOIN hourhand.jobs_in_full j ON j.namespace_id = page.namespace_id AND j.job_id = page.job_id
 ORDER BY j.job_id DESC;

-- name: walk_set_aside
-- Paused or cancelled ones. A pause that is over is still to be cleared away, and does not count.
WITH looked AS (
    SELECT j.namespace_id, j.job_id, row_number() OVER (ORDER BY j.job_id DESC) AS place,
           (@name::text IS NULL OR j.name = @name)
           AND (@kind::text IS NULL OR j.kind = @kind)
           AND (@owner::text IS NULL OR j.owner = @owner)
           AND (@queue::text IS NULL
                OR j.lane_id = ANY (ARRAY(SELECT l.lane_id FROM hourhand.lanes l
                                           WHERE l.namespace_id = @namespace_id AND l.queue = @queue)))
           AND (@labels::jsonb IS NULL OR j.labels @> @labels)
           AND (@priority::smallint[] IS NULL OR j.priority = ANY (@priority))
           AND (@recurring::boolean IS NULL OR (j.due_at IS NULL) = @recurring)
           AND (j.status = 2 OR j.pause_until IS NULL OR j.pause_until > statement_timestamp()) AS fits
      FROM hourhand.jobs j
     WHERE j.namespace_id = @namespace_id AND j.status <> 0 AND j.status = @status::smallint AND j.job_id < @before::uuid
     ORDER BY j.job_id DESC
     LIMIT @look
), page AS MATERIALIZED (
    SELECT * FROM looked WHERE fits OR place = @look ORDER BY job_id DESC LIMIT @limit OFFSET @skip
)
SELECT j.*, page.fits, page.place = @look AS is_last
  FROM page JOIN hourhand.jobs_in_full j ON j.namespace_id = page.namespace_id AND j.job_id = page.job_id
 ORDER BY j.job_id DESC;

-- name: walk_living
-- From the rows of what is to come and of what is under way. Jobs that run once have no index by job in live_runs, so all of
-- theirs are read: as many as wait, and what vacuum has not cleared away. Whoever sends this sets a limit to its time.
WITH alive AS MATERIALIZED (
    SELECT job_id FROM (
        (SELECT t.job_id FROM hourhand.timetable t
          WHERE t.job_id < @before::uuid AND t.namespace_id = @namespace_id
          ORDER BY t.job_id DESC LIMIT @look)
        UNION
        (SELECT DISTINCT r.job_id FROM hourhand.live_runs r
          WHERE r.cause <> 0 AND r.job_id < @before AND r.namespace_id = @namespace_id
          ORDER BY r.job_id DESC LIMIT @look)
        UNION
        (SELECT r.job_id FROM hourhand.live_runs r
          WHERE r.cause = 0 AND r.job_id < @before AND r.namespace_id = @namespace_id
          ORDER BY r.job_id DESC LIMIT @look)
    ) one
     ORDER BY job_id DESC LIMIT @look
), looked AS (
    SELECT a.job_id, row_number() OVER (ORDER BY a.job_id DESC) AS place,
           coalesce((SELECT
                (@name::text IS NULL OR j.name = @name)
                AND (@kind::text IS NULL OR j.kind = @kind)
                AND (@owner::text IS NULL OR j.owner = @owner)
                AND (@queue::text IS NULL
                     OR j.lane_id = ANY (ARRAY(SELECT l.lane_id FROM hourhand.lanes l
                                                WHERE l.namespace_id = @namespace_id AND l.queue = @queue)))
                AND (@labels::jsonb IS NULL OR j.labels @> @labels)
                AND (@priority::smallint[] IS NULL OR j.priority = ANY (@priority))
                AND (@recurring::boolean IS NULL OR (j.due_at IS NULL) = @recurring)
                AND j.status <> 2
                AND (j.status = 0 OR j.pause_until <= statement_timestamp())
               FROM hourhand.jobs j WHERE j.namespace_id = @namespace_id AND j.job_id = a.job_id), false) AS fits
      FROM alive a
     ORDER BY a.job_id DESC
), page AS MATERIALIZED (
    SELECT * FROM looked WHERE fits OR place = @look ORDER BY job_id DESC LIMIT @limit OFFSET @skip
)
SELECT j.*, page.fits, page.place = @look AS is_last
  FROM page JOIN hourhand.jobs_in_full j ON j.namespace_id = @namespace_id AND j.job_id = page.job_id
 ORDER BY j.job_id DESC;

-- name: recurs
SELECT due_at IS NULL AS recurs FROM hourhand.jobs WHERE namespace_id = @namespace_id AND job_id = @job_id;
