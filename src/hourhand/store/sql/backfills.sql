-- name: lock_backfills
-- One at a time in a namespace: the next one sees what the one before has stored.
SELECT pg_advisory_xact_lock(hashtext('hourhand.backfills'), @namespace_id);

-- name: rival_backfill
-- What may stand in the way of a new one: the job as it is by now, one that is not over and shares due times with it, and
-- how many are open at all.
SELECT j.version,
       (SELECT b.backfill_id FROM hourhand.backfills b
         WHERE b.job_id = j.job_id AND b.open AND b.first_due <= @last_due AND b.last_due >= @first_due
         ORDER BY b.backfill_id LIMIT 1) AS rival,
       (SELECT count(*) FROM hourhand.backfills b WHERE b.open AND b.namespace_id = j.namespace_id) AS open
  FROM hourhand.jobs j
 WHERE j.namespace_id = @namespace_id AND j.job_id = @job_id AND j.status <> 2
   FOR SHARE OF j;

-- name: insert_backfill
INSERT INTO hourhand.backfills (backfill_id, namespace_id, job_id, timing, from_time, to_time, first_due, last_due, total,
                                next_due, existing, parallelism, rate_count, rate_seconds, overlap, reason, note, state,
                                created_at, created_by, changed_at, changed_by)
VALUES (@backfill_id, @namespace_id, @job_id, @timing, @from_time, @to_time, @first_due, @last_due, @total,
        @first_due, @existing, @parallelism, @rate_count, @rate_seconds, @overlap, @reason, @note, 'running',
        @now, @created_by, @now, @created_by);

-- name: get_backfill
SELECT b.*, coalesce(j.name, '') AS job_name,
       (SELECT count(*) FROM hourhand.backfill_runs r WHERE r.backfill_id = b.backfill_id AND r.state IS NULL) AS live
  FROM hourhand.backfills b
  LEFT JOIN hourhand.jobs j ON j.namespace_id = b.namespace_id AND j.job_id = b.job_id
 WHERE b.namespace_id = @namespace_id AND b.backfill_id = @backfill_id;

-- name: list_backfills
SELECT b.*, coalesce(j.name, '') AS job_name,
       (SELECT count(*) FROM hourhand.backfill_runs r WHERE r.backfill_id = b.backfill_id AND r.state IS NULL) AS live
  FROM hourhand.backfills b
  LEFT JOIN hourhand.jobs j ON j.namespace_id = b.namespace_id AND j.job_id = b.job_id
 WHERE b.namespace_id = @namespace_id
   AND (@job_id::uuid IS NULL OR b.job_id = @job_id)
   AND b.state = ANY (@states::text[])
   AND (@before::uuid IS NULL OR b.backfill_id < @before)
 ORDER BY b.backfill_id DESC
 LIMIT @limit;

-- name: set_backfill_state
-- Whoever releases runs holds the same row: what is acknowledged here comes before or after it, never in between. Who
-- pauses once more and says no reason leaves the one that was said.
UPDATE hourhand.backfills
   SET state = @state, state_reason = CASE WHEN state = @state THEN coalesce(@reason::text, state_reason) ELSE @reason END,
       changed_at = @now, changed_by = @changed_by
 WHERE namespace_id = @namespace_id AND backfill_id = @backfill_id AND state IN ('running', 'paused')
RETURNING backfill_id;

-- name: unfinished_runs
SELECT run_id FROM hourhand.backfill_runs WHERE backfill_id = @backfill_id AND state IS NULL ORDER BY run_id;

-- name: runs_of_dues
-- The runs that due times have: those that were scheduled, whose ids can be computed; those that somebody asked for to
-- repeat them, and to repeat these; those of backfills.
WITH RECURSIVE wanted AS (
    SELECT x.due, x.run_id FROM unnest(@dues::timestamptz[], @run_ids::uuid[]) AS x(due, run_id)
), family AS (
    SELECT due, run_id FROM wanted
    UNION ALL
    SELECT b.due, b.run_id FROM wanted w JOIN hourhand.backfill_runs b ON b.job_id = @job_id AND b.due = w.due
    UNION ALL
    SELECT f.due, q.run_id FROM family f JOIN hourhand.run_requests q ON q.retry_of = f.run_id
)
SELECT f.due, r.state FROM family f JOIN hourhand.live_runs r ON r.run_id = f.run_id
 UNION ALL
SELECT f.due, r.state FROM family f JOIN hourhand.runs r ON r.namespace_id = @namespace_id AND r.run_id = f.run_id;

-- name: usual_seconds
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM n.ended_at - n.started_at))::float8 AS seconds
  FROM (SELECT r.started_at, r.ended_at FROM hourhand.runs r
         WHERE r.job_id = @job_id AND r.state = 10 AND r.started_at IS NOT NULL
         ORDER BY r.run_id DESC LIMIT @runs) n;

-- name: settle_backfills
-- What has ended meanwhile is counted, once: the state that is written says that it was. A run leaves the live ones and
-- enters history in one statement, so it is seen in one of them; one that is in neither has been lost with its history.
WITH leader AS MATERIALIZED (
    SELECT FROM hourhand.leases WHERE name = 'leader' AND node_id = @node_id AND epoch = @epoch
       AND lease_until > clock_timestamp() FOR SHARE
), ended AS (
    UPDATE hourhand.backfill_runs r
       SET state = coalesce((SELECT h.state FROM hourhand.runs h
                              WHERE h.namespace_id = b.namespace_id AND h.run_id = r.run_id), 13)
      FROM hourhand.backfills b, leader
     WHERE b.open AND r.backfill_id = b.backfill_id AND r.state IS NULL
       AND NOT EXISTS (SELECT FROM hourhand.live_runs l WHERE l.run_id = r.run_id)
    RETURNING r.backfill_id, r.state
), counted AS (
    SELECT backfill_id, count(*) FILTER (WHERE state = 10) AS succeeded,
           count(*) FILTER (WHERE state IN (11, 12, 13)) AS failed,
           count(*) FILTER (WHERE state = 14) AS cancelled,
           count(*) FILTER (WHERE state IN (15, 16)) AS skipped, count(*) AS runs
      FROM ended GROUP BY backfill_id
), written AS (
    UPDATE hourhand.backfills b
       SET succeeded = b.succeeded + c.succeeded, failed = b.failed + c.failed, cancelled = b.cancelled + c.cancelled,
           skipped = b.skipped + c.skipped
      FROM counted c WHERE b.backfill_id = c.backfill_id
)
SELECT coalesce(sum(runs), 0)::int AS runs FROM counted;

-- name: end_backfills
-- Those of which nothing is left to release and nothing is under way.
WITH leader AS MATERIALIZED (
    SELECT FROM hourhand.leases WHERE name = 'leader' AND node_id = @node_id AND epoch = @epoch
       AND lease_until > clock_timestamp() FOR SHARE
)
UPDATE hourhand.backfills b
   SET open = false, ended_at = @now, state = CASE WHEN b.state = 'cancelled' THEN b.state ELSE 'completed' END
  FROM leader
 WHERE b.open AND (b.next_due IS NULL OR b.state = 'cancelled')
   AND NOT EXISTS (SELECT FROM hourhand.backfill_runs r WHERE r.backfill_id = b.backfill_id AND r.state IS NULL);

-- name: open_backfills
SELECT b.*, j.name AS job_name, j.version, j.policy, j.due_at IS NULL AS recurring, j.status = 2 AS job_cancelled,
       CASE WHEN j.policy ? 'concurrency_key' THEN j.payload END AS payload,
       (SELECT count(*) FROM hourhand.backfill_runs r WHERE r.backfill_id = b.backfill_id AND r.state IS NULL) AS live,
       (SELECT count(*) FROM (SELECT FROM hourhand.backfill_runs r
                               WHERE r.backfill_id = b.backfill_id
                                 AND r.released_at > @now::timestamptz - make_interval(secs => b.rate_seconds)
                               LIMIT b.rate_count) lately) AS lately
  FROM hourhand.backfills b
  JOIN hourhand.jobs j ON j.namespace_id = b.namespace_id AND j.job_id = b.job_id
 WHERE b.open
 ORDER BY b.backfill_id
 LIMIT @limit;

-- name: release_runs
-- Moves a backfill on from the due time that it is expected to stand at, and makes the runs in between: of the job as it
-- is now. One that was paused, cancelled or moved on meanwhile does not move, nor does one whose job was changed: its
-- runs would have the wrong lane and gates. Whatever else stands in the way makes all of it fail: to pass over a due time
-- would be to lose it.
WITH leader AS MATERIALIZED (
    SELECT FROM hourhand.leases WHERE name = 'leader' AND node_id = @node_id AND epoch = @epoch
       AND lease_until > clock_timestamp() FOR SHARE
), job AS MATERIALIZED (
    SELECT j.job_id, j.lane_id, j.version, j.priority
      FROM hourhand.jobs j, leader
     WHERE j.namespace_id = @namespace_id AND j.job_id = @job_id AND j.version = @version::int AND j.status <> 2
       FOR SHARE OF j
), moved AS (
    UPDATE hourhand.backfills b SET next_due = @next_due, left_out = b.left_out + @left_out
      FROM job
     WHERE b.backfill_id = @backfill_id AND b.next_due = @expected AND b.state = 'running'
    RETURNING b.backfill_id, b.created_by, b.note, b.reason
), made AS (
    INSERT INTO hourhand.backfill_runs (backfill_id, due, job_id, run_id, released_at)
    SELECT m.backfill_id, x.due, @job_id, x.run_id, @now
      FROM moved m, unnest(@run_ids::uuid[], @dues::timestamptz[]) AS x(run_id, due)
    RETURNING run_id, due
), asked AS (
    INSERT INTO hourhand.run_requests (run_id, requested_by, requested_at, note, overlap, backfill_id)
    SELECT made.run_id, m.created_by, @now, coalesce(m.note, m.reason), @overlap::text, m.backfill_id FROM made, moved m
), released AS (
    INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state,
                                    priority, cause, gate_ids, expires_at)
    SELECT made.run_id, job.job_id, made.due, @now, @namespace_id, job.lane_id, job.version, 0, job.priority, 2,
           @gate_ids::int[], @expires_at::timestamptz
      FROM made, job
    RETURNING run_id
)
SELECT (SELECT array_agg(run_id) FROM released) AS run_ids FROM moved;

-- name: end_with_job
WITH leader AS MATERIALIZED (
    SELECT FROM hourhand.leases WHERE name = 'leader' AND node_id = @node_id AND epoch = @epoch
       AND lease_until > clock_timestamp() FOR SHARE
)
UPDATE hourhand.backfills b SET state = 'cancelled', state_reason = 'job_cancelled', changed_at = @now
  FROM leader WHERE b.backfill_id = @backfill_id AND b.state IN ('running', 'paused');

-- name: forget_runs
DELETE FROM hourhand.backfill_runs r
 WHERE (r.backfill_id, r.due) IN (SELECT o.backfill_id, o.due
                                    FROM hourhand.backfills b JOIN hourhand.backfill_runs o USING (backfill_id)
                                   WHERE NOT b.open AND b.ended_at < @before
                                   LIMIT @limit)
RETURNING r.run_id;
