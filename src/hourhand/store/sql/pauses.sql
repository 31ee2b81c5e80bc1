-- name: put_pause
-- Pausing what is paused keeps its beginning and changes who, why and until when.
INSERT INTO hourhand.pauses AS p (namespace_id, queue, labels, paused_at, paused_by, reason, until)
VALUES (@namespace_id::int, @queue::text, @labels::jsonb, @now, @paused_by, @reason, @until)
ON CONFLICT (coalesce(namespace_id, 0), coalesce(queue, ''), coalesce(labels, '{}'::jsonb)) WHERE ended_at IS NULL
DO UPDATE SET paused_by = excluded.paused_by, reason = excluded.reason, until = excluded.until
RETURNING pause_id;

-- name: end_pause
-- What is due at the very instant of the end still belongs to the pause.
UPDATE hourhand.pauses
   SET ended_at = @now::timestamptz + interval '1 microsecond', ended_by = @ended_by, catch_up = @catch_up
 WHERE ended_at IS NULL AND namespace_id IS NOT DISTINCT FROM @namespace_id::int
   AND queue IS NOT DISTINCT FROM @queue::text AND labels IS NOT DISTINCT FROM @labels::jsonb
RETURNING pause_id;

-- name: end_pauses_over
-- Those whose time is over by themselves.
UPDATE hourhand.pauses SET ended_at = until, catch_up = 'none' WHERE ended_at IS NULL AND until <= @now
RETURNING pause_id, namespace_id, queue;

-- name: list_pauses
-- Those of a namespace and of the cluster: in force, or also such as are over, newest first.
SELECT * FROM hourhand.pauses
 WHERE (namespace_id IS NULL OR namespace_id = @namespace_id)
   AND (@also_over::boolean OR (ended_at IS NULL AND (until IS NULL OR until > @now)))
   AND (@before::bigint IS NULL OR pause_id < @before)
 ORDER BY pause_id DESC
 LIMIT @limit;

-- name: count_covered
-- How many jobs a pause is about that are still to fall due; counted up to a limit.
SELECT count(*) AS jobs FROM (
    SELECT FROM hourhand.timetable t, hourhand.pauses p
     WHERE p.pause_id = @pause_id AND hourhand.pause_covers(p, t.namespace_id, t.lane_id, t.job_id, t.recurring)
     LIMIT @limit) c;

-- name: rest_cursors
-- Takes cursors out of the planners' way that stand at a due time of a pause: those of own shards, or for one pause all.
WITH in_force AS MATERIALIZED (
    SELECT p AS pause, p.pause_id, p.paused_at, p.until FROM hourhand.pauses p
     WHERE p.ended_at IS NULL AND (p.until IS NULL OR p.until > @now)
       AND (@pause_id::bigint IS NULL OR p.pause_id = @pause_id)
), due AS (
    SELECT t.job_id, t.next_fire, t.namespace_id, t.lane_id, t.shard, true AS recurring FROM hourhand.timetable t
     WHERE t.recurring AND t.next_fire <= @horizon
     UNION ALL
    SELECT t.job_id, t.next_fire, t.namespace_id, t.lane_id, t.shard, false FROM hourhand.timetable t
     WHERE NOT t.recurring AND t.next_fire <= @horizon
), held AS MATERIALIZED (
    SELECT d.job_id, d.next_fire, min(f.pause_id) AS pause_id
      FROM due d
      JOIN in_force f ON f.paused_at < d.next_fire AND (f.until IS NULL OR d.next_fire < f.until)
                     AND hourhand.pause_covers(f.pause, d.namespace_id, d.lane_id, d.job_id, d.recurring)
     WHERE @node_id::int IS NULL OR (SELECT s.owner_id = @node_id FROM hourhand.shards s WHERE s.shard = d.shard)
     GROUP BY d.job_id, d.next_fire
     LIMIT @limit
), locked AS MATERIALIZED (               -- in order of places, as planners move them
    SELECT t.job_id, t.next_fire, h.pause_id
      FROM hourhand.timetable t JOIN held h ON h.job_id = t.job_id AND h.next_fire = t.next_fire
     ORDER BY t.ctid
       FOR UPDATE OF t
), moved AS (
    UPDATE hourhand.timetable t SET next_fire = @never FROM locked k WHERE t.job_id = k.job_id
)
INSERT INTO hourhand.resting (job_id, next_fire, pause_id)
SELECT job_id, next_fire, pause_id FROM locked
ON CONFLICT (job_id) DO UPDATE SET next_fire = excluded.next_fire, pause_id = excluded.pause_id, until = NULL
RETURNING job_id;

-- name: withdraw_paused
-- Takes back the runs of due times that fall into a pause and that nobody has claimed: nothing final is written for a due
-- time that has not passed. Their jobs' cursors go back to the first of them, and rest.
WITH gone AS (
    DELETE FROM hourhand.live_runs r
     USING hourhand.pauses p
     WHERE p.pause_id = @pause_id AND r.state IN (0, 1) AND r.attempt = 0 AND r.cause IN (0, 1)
       AND r.scheduled_for > p.paused_at AND r.scheduled_for > @now AND (p.until IS NULL OR r.scheduled_for < p.until)
       AND hourhand.pause_covers(p, r.namespace_id, r.lane_id, r.job_id, r.cause = 1)
    RETURNING r.*
), firsts AS MATERIALIZED (
    SELECT DISTINCT ON (g.job_id) g.*, j.due_at IS NULL AS recurring
      FROM gone g JOIN hourhand.jobs j ON j.namespace_id = g.namespace_id AND j.job_id = g.job_id
     ORDER BY g.job_id, g.scheduled_for
), given_back AS (
    UPDATE hourhand.run_budgets b SET runs_left = b.runs_left + g.runs
      FROM (SELECT job_id, count(*)::int AS runs FROM gone GROUP BY job_id) g WHERE b.job_id = g.job_id
), put AS (
    INSERT INTO hourhand.timetable (job_id, next_fire, namespace_id, lane_id, version, shard, priority, recurring,
                                    gate_ids, expires_after, exclusive)
    SELECT f.job_id, @never, f.namespace_id, f.lane_id, f.version,
           ((get_byte(uuid_send(f.job_id), 14) & 3) << 8) | get_byte(uuid_send(f.job_id), 15), f.priority, f.recurring,
           f.gate_ids, f.expires_at - f.ready_at,
           f.cause = 1 AND hourhand.overlap_policy(f.namespace_id, f.job_id, f.run_id) <> 'allow'
      FROM firsts f
    ON CONFLICT (job_id) DO UPDATE SET next_fire = excluded.next_fire
)
INSERT INTO hourhand.resting AS r (job_id, next_fire, pause_id)
SELECT job_id, scheduled_for, @pause_id FROM firsts
ON CONFLICT (job_id) DO UPDATE SET next_fire = least(r.next_fire, excluded.next_fire)
RETURNING job_id;

-- name: held_beyond
-- Runs of due times of a pause that an executor had already claimed: it came too late for them.
SELECT r.run_id FROM hourhand.live_runs r, hourhand.pauses p
 WHERE p.pause_id = @pause_id AND r.state IN (2, 3, 4) AND r.cause IN (0, 1)
   AND r.scheduled_for > @now AND (p.until IS NULL OR r.scheduled_for < p.until)
   AND hourhand.pause_covers(p, r.namespace_id, r.lane_id, r.job_id, r.cause = 1)
 ORDER BY r.run_id
 LIMIT @limit;

-- name: wake_resting
-- Cursors of pauses that are over go back into the timetable; planners find them there, late. Asked with every plan while
-- there is a pause: each sort goes by its own index, and neither asks for an order, or all that rest would be walked over.
WITH over AS MATERIALIZED (
    SELECT r.job_id FROM hourhand.resting r
     WHERE r.pause_id = ANY (ARRAY(SELECT p.pause_id FROM hourhand.pauses p
                                    WHERE NOT p.settled AND (p.ended_at IS NOT NULL OR p.until <= @now)))
     LIMIT @limit
       FOR UPDATE SKIP LOCKED
), own AS MATERIALIZED (
    SELECT r.job_id FROM hourhand.resting r
     WHERE r.until <= @now
       AND NOT coalesce((SELECT t.recurring FROM hourhand.timetable t WHERE t.job_id = r.job_id), false)
     LIMIT @limit
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM hourhand.resting r USING (SELECT job_id FROM over UNION SELECT job_id FROM own) o
     WHERE r.job_id = ANY (ARRAY[o.job_id]) RETURNING r.job_id, r.next_fire
)
UPDATE hourhand.timetable t SET next_fire = g.next_fire FROM gone g WHERE t.job_id = ANY (ARRAY[g.job_id])
RETURNING t.job_id;

-- name: own_pauses_over
-- Jobs with several schedules that rest until the end of their own pause, which is over.
SELECT t.namespace_id, r.job_id FROM hourhand.resting r JOIN hourhand.timetable t ON t.job_id = r.job_id
 WHERE r.until <= @now AND t.recurring
 ORDER BY r.until
 LIMIT @limit;

-- name: wake_cursor
-- The same for one job, which is about to be changed.
WITH gone AS (
    DELETE FROM hourhand.resting r WHERE r.job_id = @job_id RETURNING r.job_id, r.next_fire
)
UPDATE hourhand.timetable t SET next_fire = g.next_fire FROM gone g WHERE t.job_id = g.job_id;

-- name: rest_own
-- A job with a due time that was asked for by its instant rests until the end of its own pause.
INSERT INTO hourhand.resting (job_id, next_fire, until) VALUES (@job_id, @next_fire, @until)
ON CONFLICT (job_id) DO UPDATE SET next_fire = excluded.next_fire, pause_id = NULL, until = excluded.until;

-- name: settle_pauses
-- Nobody needs to ask for pauses because of one that is over, once no cursor of the timetable stands before its end. Those
-- that other pauses hold come back with these, and are asked about then.
UPDATE hourhand.pauses p SET settled = true
 WHERE NOT p.settled AND p.ended_at < @now
   AND NOT EXISTS (SELECT FROM hourhand.resting r WHERE r.pause_id = p.pause_id)
   AND coalesce((SELECT min(t.next_fire) FROM hourhand.timetable t WHERE t.recurring) >= least(p.until, p.ended_at), true)
   AND coalesce((SELECT min(t.next_fire) FROM hourhand.timetable t WHERE NOT t.recurring) >= least(p.until, p.ended_at),
                true)
RETURNING p.pause_id;

-- name: look_at_pauses
-- Whether any pause of many bears on somebody, whether one of a single job is over, and when the next one is.
SELECT EXISTS (SELECT FROM hourhand.pauses WHERE NOT settled) AS in_force,
       EXISTS (SELECT FROM hourhand.resting WHERE until <= @now) AS over,
       least((SELECT min(until) FROM hourhand.pauses WHERE NOT settled AND until > @now AND ended_at IS NULL),
             (SELECT min(until) FROM hourhand.resting WHERE until > @now)) AS next_end;

-- name: pause_spans
-- The pauses that bear on each of the jobs: those that end behind its cursor, wherever that rests. Also such as are settled: a
-- cursor that another pause holds may stand in them still.
WITH cursors AS MATERIALIZED (
    SELECT t.job_id, t.namespace_id, t.lane_id, t.recurring, coalesce(r.next_fire, t.next_fire) AS next_fire
      FROM hourhand.timetable t
      LEFT JOIN LATERAL (SELECT r.next_fire FROM hourhand.resting r WHERE r.job_id = t.job_id OFFSET 0) r ON true
     WHERE t.job_id = ANY (@job_ids::uuid[])
), near AS MATERIALIZED (                 -- once for all jobs: pauses are kept for weeks, and hardly any bears on somebody
    SELECT p AS pause, least(p.until, p.ended_at, 'infinity') AS over_at FROM hourhand.pauses p
     WHERE least(p.until, p.ended_at, 'infinity') > (SELECT min(next_fire) FROM cursors)
)
SELECT c.job_id, (n.pause).namespace_id, (n.pause).queue, (n.pause).labels, (n.pause).paused_at, (n.pause).paused_by,
       (n.pause).reason, (n.pause).until, (n.pause).ended_at, (n.pause).ended_by, (n.pause).catch_up, (n.pause).pause_id
  FROM cursors c JOIN near n ON n.over_at > c.next_fire
   AND hourhand.pause_covers(n.pause, c.namespace_id, c.lane_id, c.job_id, c.recurring)
 ORDER BY c.job_id, (n.pause).pause_id;

-- name: pause_spans_since
-- The same for one job that may have no cursor, because it is paused by itself: those that ended later than some instant.
SELECT j.job_id, p.namespace_id, p.queue, p.labels, p.paused_at, p.paused_by, p.reason, p.until, p.ended_at, p.ended_by,
       p.catch_up, p.pause_id
  FROM hourhand.jobs j
  JOIN hourhand.pauses p ON least(p.until, p.ended_at, 'infinity') > @since
   AND hourhand.pause_covers(p, j.namespace_id, j.lane_id, j.job_id, j.due_at IS NULL)
 WHERE j.namespace_id = @namespace_id AND j.job_id = @job_id
 ORDER BY p.pause_id;

-- name: pause_failing
-- Pauses jobs that asked for it and of which so many runs in a row have failed, since they were created or resumed. What
-- is due in the pause is counted from their cursor on; runs that are not due yet are taken back by the statement below.
WITH failing AS MATERIALIZED (
    SELECT j.namespace_id, j.job_id, (j.policy ->> 'pause_after_failures')::int AS most
      FROM hourhand.jobs j
     WHERE (j.namespace_id, j.job_id) IN (SELECT r.namespace_id, r.job_id
                                            FROM hourhand.namespaces n
                                            JOIN hourhand.runs r ON r.namespace_id = n.namespace_id
                                           WHERE r.run_id = ANY (@run_ids::uuid[]))
       AND j.policy ? 'pause_after_failures' AND j.status = 0
       AND j.due_at IS NULL
       AND (SELECT count(*) FILTER (WHERE f.state <> 10) = (j.policy ->> 'pause_after_failures')::int
              FROM (SELECT r.state FROM hourhand.runs r
                     WHERE r.job_id = j.job_id AND r.state IN (10, 11, 12, 13) AND NOT hourhand.is_part(r.run_id)
                       AND (j.resumed_at IS NULL OR r.ended_at > j.resumed_at)
                     ORDER BY r.run_id DESC
                     LIMIT (j.policy ->> 'pause_after_failures')::int) f)
     ORDER BY j.namespace_id, j.job_id
       FOR UPDATE OF j
)
UPDATE hourhand.jobs j
   SET status = 1, paused_at = @now, paused_by = 'auto-pause', pause_until = NULL,
       pause_reason = CASE WHEN f.most = 1 THEN 'a run failed' ELSE f.most || ' runs in a row failed' END,
       pause_from = greatest(
           least(@now, coalesce((SELECT r.next_fire FROM hourhand.resting r WHERE r.job_id = j.job_id),
                                (SELECT t.next_fire FROM hourhand.timetable t WHERE t.job_id = j.job_id))
                       - interval '1 microsecond'),
           (SELECT max(r.scheduled_for) FROM hourhand.live_runs r
             WHERE r.job_id = j.job_id AND r.cause = 1 AND r.state IN (2, 3, 4)))
  FROM failing f
 WHERE j.namespace_id = f.namespace_id AND j.job_id = f.job_id
RETURNING j.job_id, j.name, j.pause_reason;

-- name: drop_failing
-- After pause_failing, in its transaction: the cursors, and the runs that are not due yet. No end of a run makes a cursor
-- any more; what is taken back is given back to the budget.
WITH gone AS (
    DELETE FROM hourhand.live_runs
     WHERE job_id = ANY (@job_ids::uuid[]) AND cause = 1 AND state IN (0, 1) AND attempt = 0 AND scheduled_for > @now
    RETURNING job_id
), given_back AS (
    UPDATE hourhand.run_budgets b SET runs_left = b.runs_left + g.runs
      FROM (SELECT job_id, count(*)::int AS runs FROM gone GROUP BY job_id) g WHERE b.job_id = g.job_id
), delays AS (
    DELETE FROM hourhand.completion_delays WHERE job_id = ANY (@job_ids)
), cursors AS (
    DELETE FROM hourhand.timetable WHERE job_id = ANY (@job_ids)
)
DELETE FROM hourhand.resting WHERE job_id = ANY (@job_ids);
