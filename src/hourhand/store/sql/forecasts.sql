-- name: count_recurring
SELECT count(*) AS jobs FROM (SELECT FROM hourhand.timetable WHERE recurring LIMIT @most) counted;

-- name: forecast_jobs
-- Jobs of the first shards that fall due by then; to a shard a job belongs by chance. Those of other namespaces count
-- and are not named. Those that a pause of many holds stand at the end of time and come back when it is over.
SELECT t.job_id, t.next_fire, j.timing, l.needs, CASE WHEN t.namespace_id = @namespace_id THEN j.name END AS name,
       j.timing ? 'calendars' AS has_calendars, b.runs_left,
       CASE WHEN EXISTS (SELECT FROM hourhand.pauses WHERE ended_at IS NULL) THEN
           (SELECT max(coalesce(p.until, @never)) FROM hourhand.pauses p
             WHERE p.ended_at IS NULL AND (p.until IS NULL OR p.until > @now)
               AND hourhand.pause_covers(p, t.namespace_id, t.lane_id, t.job_id, true)) END AS paused_until
  FROM ((SELECT job_id, namespace_id, lane_id, next_fire FROM hourhand.timetable
          WHERE recurring AND next_fire < @until AND shard < @shards
          LIMIT @limit)
         UNION ALL
        (SELECT t.job_id, t.namespace_id, t.lane_id, r.next_fire
           FROM hourhand.resting r JOIN hourhand.timetable t ON t.job_id = r.job_id
          WHERE r.pause_id IS NOT NULL AND t.recurring AND t.shard < @shards
          LIMIT @limit)) t
  JOIN hourhand.jobs j ON j.namespace_id = t.namespace_id AND j.job_id = t.job_id
  JOIN hourhand.lanes l ON l.lane_id = t.lane_id
  LEFT JOIN hourhand.run_budgets b ON b.job_id = t.job_id
 WHERE j.timing IS NOT NULL;

-- name: count_next_fires
-- From the index alone: of a million cursors none is read.
SELECT greatest(date_trunc('minute', next_fire, 'UTC'), @since::timestamptz) AS minute, count(*) AS jobs
  FROM hourhand.timetable
 WHERE recurring AND next_fire < @until AND shard < @shards
 GROUP BY 1;

-- name: count_next_fires_once
SELECT greatest(date_trunc('minute', next_fire, 'UTC'), @since::timestamptz) AS minute, count(*) AS jobs
  FROM hourhand.timetable
 WHERE NOT recurring AND next_fire < @until AND shard < @shards
 GROUP BY 1;

-- name: learned_seconds
SELECT r.job_id, avg(extract(epoch FROM r.ended_at - r.started_at))::float8 AS seconds, count(*) AS runs
  FROM (SELECT namespace_id FROM hourhand.namespaces ORDER BY namespace_id LIMIT @namespaces) n
 CROSS JOIN LATERAL (
    SELECT x.job_id, x.started_at, x.ended_at FROM hourhand.runs x
     WHERE x.namespace_id = n.namespace_id AND x.state = 10 AND x.started_at IS NOT NULL
     ORDER BY x.run_id DESC
     LIMIT @runs
 ) r
 GROUP BY r.job_id;
