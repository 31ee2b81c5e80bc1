-- name: look
-- What a scheduler must know each second, in one statement because an idle one does nothing else: which shards it owns,
-- when the next job of any shard falls due, and whether anything waits. Looks at the heads of indexes that are mostly
-- empty; each asks for an order: to know that there is one at all, PostgreSQL would rather read the table until it
-- meets it.
SELECT s.owned, s.epoch,
       least((SELECT min(next_fire) FROM hourhand.timetable WHERE NOT recurring),
             (SELECT min(next_fire) FROM hourhand.timetable WHERE recurring)) AS next_fire,
       (SELECT waits_on FROM hourhand.live_runs WHERE state = 1 AND waits_on = 0
         ORDER BY priority DESC, ready_at LIMIT 1) IS NOT NULL AS turns,
       (SELECT waits_on FROM hourhand.live_runs WHERE state = 1 AND waits_on > 0
         ORDER BY waits_on LIMIT 1) IS NOT NULL AS gates,
       coalesce((SELECT expires_at FROM hourhand.live_runs WHERE state IN (0, 1) AND expires_at IS NOT NULL
                  ORDER BY expires_at LIMIT 1) <= @now, false) AS expired,
       (SELECT pause_id FROM hourhand.pauses WHERE NOT settled ORDER BY pause_id LIMIT 1) IS NOT NULL
       OR coalesce((SELECT until FROM hourhand.resting WHERE until IS NOT NULL ORDER BY until LIMIT 1) <= @now, false)
       AS pauses
  FROM (SELECT count(*) FILTER (WHERE owner_id = @node_id) AS owned, coalesce(max(epoch), 0) AS epoch
          FROM hourhand.shards) AS s;

-- name: waiting_turns
-- Runs of own shards that wait behind an earlier one of their job, those due first, one page, with that job's policy. Of
-- those that were asked for in the order of a queue without end only the first is of interest: nothing becomes of the
-- others as long as it waits, and there may be thousands. Likewise of those that were caught up together, which is when
-- runs for several due times are ready at the very same instant, where they run one after the other; with queue_one of the
-- first two: the first may be the one that waits, and then the second says whether there may be more.
WITH waiting AS MATERIALIZED (
    SELECT x.run_id, x.job_id, x.namespace_id, x.scheduled_for, x.ready_at, x.cause, x.attempt,
           x.cause = 2 AND row_number() OVER line > 1 AS later,
           x.cause = 1 AND x.attempt = 0 AND x.ready_at > x.scheduled_for
           AND coalesce(lag(x.ready_at) OVER line = x.ready_at, false) AS caught_up_later,
           coalesce(lag(x.ready_at, 2) OVER line = x.ready_at, false) AS third
      FROM hourhand.live_runs x
     WHERE x.waits_on = 0 AND x.state = 1
    WINDOW line AS (PARTITION BY x.job_id ORDER BY x.run_id)
)
SELECT w.run_id, w.job_id, w.scheduled_for, w.ready_at, j.policy,
       hourhand.overlap_policy(w.namespace_id, w.job_id, w.run_id) AS overlap, w.cause = 2 AS asked_for,
       hourhand.scheduled_run_id(j.due_at, j.job_id) AS once_run_id, w.cause = 1 AND w.attempt = 0 AS untried,
       j.timing ->> 'jitter' AS jitter
  FROM waiting w
 CROSS JOIN LATERAL (
    SELECT j.job_id, j.policy, j.due_at, j.timing
      FROM hourhand.jobs j WHERE j.namespace_id = w.namespace_id AND j.job_id = w.job_id
    OFFSET 0
 ) j
 WHERE (SELECT s.owner_id FROM hourhand.shards s
         WHERE s.shard = ((get_byte(uuid_send(w.job_id), 14) & 3) << 8) | get_byte(uuid_send(w.job_id), 15)) = @node_id
   AND (w.later AND (SELECT q.overlap FROM hourhand.run_requests q WHERE q.run_id = w.run_id) = 'queue_all') IS NOT TRUE
   AND NOT (w.caught_up_later AND CASE coalesce(j.policy ->> 'overlap', 'skip')
                                  WHEN 'skip' THEN true WHEN 'queue_one' THEN w.third ELSE false END)
   AND (@after_ready::timestamptz IS NULL OR (w.ready_at, w.run_id) > (@after_ready, @after_id::uuid))
 ORDER BY w.ready_at, w.run_id
 LIMIT @limit;

-- name: unfinished_of_jobs
-- The unfinished runs of the given jobs that are in the way of some up to a last one, also the single one of a job that
-- runs once: those before it, and what is in somebody's hands.
SELECT r.job_id, r.run_id, r.state, r.scheduled_for, r.ready_at, r.state = 0 AND r.attempt > 0 AS retrying,
       r.state = 1 AND r.waits_on = 0 AS held_back, r.cause = 1 AND r.attempt = 0 AS untried,
       r.cause = 1 AND r.attempt <= 1 AND NOT (r.state = 0 AND r.attempt > 0) AS first_try
  FROM hourhand.live_runs r
 WHERE r.run_id = ANY (@once_run_ids::uuid[])
 UNION
SELECT r.job_id, r.run_id, r.state, r.scheduled_for, r.ready_at, r.state = 0 AND r.attempt > 0,
       r.state = 1 AND r.waits_on = 0, r.cause = 1 AND r.attempt = 0,
       r.cause = 1 AND r.attempt <= 1 AND NOT (r.state = 0 AND r.attempt > 0)
  FROM unnest(@job_ids::uuid[], @last_ids::uuid[]) AS x(job_id, last_id)
 CROSS JOIN LATERAL (
    SELECT * FROM hourhand.live_runs r
     WHERE r.job_id = x.job_id AND r.cause <> 0 AND (r.run_id <= x.last_id OR r.state IN (2, 3, 4))
    OFFSET 0
 ) r
 ORDER BY scheduled_for, run_id;

-- name: let_turns_go
UPDATE hourhand.live_runs SET state = 0, waits_on = NULL
 WHERE run_id = ANY (@run_ids::uuid[]) AND state = 1 AND waits_on = 0
RETURNING run_id;

-- name: skip_runs
-- Ends runs that nobody holds as skipped: those that were not to overlap, and those whose place a later one took.
WITH gone AS (
    DELETE FROM hourhand.live_runs r
     USING unnest(@run_ids::uuid[], @reasons::text[]) AS x(run_id, reason)
     WHERE r.run_id = ANY (ARRAY[x.run_id]) AND r.state IN (0, 1)
    RETURNING r.*, x.reason
), rested AS (
    SELECT d.*, @now::timestamptz + d.delay AS next_fire
      FROM gone g JOIN hourhand.completion_delays d ON d.job_id = g.job_id
     WHERE g.gate_ids IS NOT NULL AND g.cause = 1
       AND d.job_id = ANY (ARRAY(SELECT job_id FROM gone WHERE gate_ids IS NOT NULL AND cause = 1))  -- by the index
       FOR SHARE OF d
), due_again AS (                         -- as in finish_runs
    INSERT INTO hourhand.timetable (job_id, next_fire, namespace_id, lane_id, version, shard, priority, recurring, gate_ids,
                                    expires_after, exclusive)
    SELECT job_id, next_fire, namespace_id, lane_id, version, shard, priority, true, gate_ids, expires_after, exclusive
      FROM rested
     WHERE (SELECT b.runs_left FROM hourhand.run_budgets b WHERE b.job_id = rested.job_id) IS DISTINCT FROM 0
    ON CONFLICT (job_id) DO NOTHING
)
INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version, state,
                           cause, attempt, reason)
SELECT run_id, job_id, scheduled_for, NULL, @now, namespace_id, NULL, version, 15, cause, attempt, reason FROM gone
ON CONFLICT DO NOTHING
RETURNING run_id;

-- name: ask_to_end
-- Asks the executors of runs to end them, because their job wants the newest one to run.
UPDATE hourhand.live_runs SET state = 4 WHERE run_id = ANY (@run_ids::uuid[]) AND state IN (2, 3)
RETURNING run_id;

-- name: expire_runs
-- Ends runs that waited too long: past the job's deadline, or for a start that did not come in time.
WITH expired AS MATERIALIZED (
    SELECT run_id FROM hourhand.live_runs
     WHERE state IN (0, 1) AND expires_at IS NOT NULL AND expires_at <= @now
     ORDER BY expires_at
     LIMIT @limit
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM hourhand.live_runs r WHERE r.run_id = ANY (ARRAY(SELECT run_id FROM expired))
    RETURNING r.*
), rested AS (
    SELECT d.*, @now::timestamptz + d.delay AS next_fire
      FROM gone g JOIN hourhand.completion_delays d ON d.job_id = g.job_id
     WHERE g.gate_ids IS NOT NULL AND g.cause = 1
       AND d.job_id = ANY (ARRAY(SELECT job_id FROM gone WHERE gate_ids IS NOT NULL AND cause = 1))  -- by the index
       FOR SHARE OF d
), due_again AS (                         -- as in finish_runs
    INSERT INTO hourhand.timetable (job_id, next_fire, namespace_id, lane_id, version, shard, priority, recurring, gate_ids,
                                    expires_after, exclusive)
    SELECT job_id, next_fire, namespace_id, lane_id, version, shard, priority, true, gate_ids, expires_after, exclusive
      FROM rested
     WHERE (SELECT b.runs_left FROM hourhand.run_budgets b WHERE b.job_id = rested.job_id) IS DISTINCT FROM 0
    ON CONFLICT (job_id) DO NOTHING
)
INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version, state,
                           cause, attempt, reason)
SELECT g.run_id, g.job_id, g.scheduled_for, NULL, @now, g.namespace_id, NULL, g.version,
       CASE WHEN d.passed THEN 12 ELSE 16 END, g.cause, g.attempt,
       CASE WHEN d.passed THEN 'deadline' ELSE 'queue_timeout' END
  FROM gone g
 CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(greatest(g.scheduled_for,
                                     (SELECT q.requested_at FROM hourhand.run_requests q WHERE q.run_id = g.run_id))
                            + make_interval(secs => (j.policy ->> 'deadline_seconds')::float8) <= @now), false) AS passed
      FROM hourhand.jobs j WHERE j.namespace_id = g.namespace_id AND j.job_id = g.job_id
 ) d
ON CONFLICT DO NOTHING
RETURNING run_id;

-- name: let_go_on
-- The healing sweep: wherever a gate has room that nobody was told of, as many of its waiting runs go on. Those that
-- were told already and have not been claimed yet count as told. When that is all there is room for, and they are still
-- not claimed, nobody may be there to take them: then runs of other lanes go on. Should there not be room for all of
-- them after all, the last ones wait again.
WITH RECURSIVE awaited AS (
    (SELECT waits_on FROM hourhand.live_runs WHERE state = 1 AND waits_on > 0 ORDER BY waits_on LIMIT 1)
    UNION ALL
    SELECT (SELECT r.waits_on FROM hourhand.live_runs r
             WHERE r.state = 1 AND r.waits_on > a.waits_on ORDER BY r.waits_on LIMIT 1)
      FROM awaited a WHERE a.waits_on IS NOT NULL
), room AS (
    SELECT a.waits_on,
           coalesce(g.capacity - (SELECT count(*) FROM hourhand.gate_slots s WHERE s.gate_id = a.waits_on), @limit) AS free
      FROM awaited a LEFT JOIN hourhand.gates g ON g.gate_id = a.waits_on
     WHERE a.waits_on IS NOT NULL
), next AS MATERIALIZED (
    SELECT c.run_id FROM room
     CROSS JOIN LATERAL (
        SELECT count(*) AS told, coalesce(array_agg(DISTINCT r.lane_id), '{}') AS lanes
          FROM hourhand.live_runs r
         WHERE r.state IN (0, 1) AND r.state = (SELECT 0::smallint)  -- not plainly 0, lest all that are ready are read
           AND r.waits_on = room.waits_on
     ) t
     CROSS JOIN LATERAL (
        SELECT x.run_id FROM hourhand.live_runs x
         WHERE x.state = 1 AND x.waits_on = room.waits_on
           AND (t.told < room.free OR x.lane_id <> ALL (t.lanes))
           AND x.lane_id <> ALL (ARRAY(SELECT lane_id FROM hourhand.lanes WHERE held))
         ORDER BY x.priority DESC, x.ready_at
         LIMIT least(CASE WHEN t.told < room.free THEN room.free - t.told ELSE room.free END, @limit)
           FOR UPDATE SKIP LOCKED
     ) c
     WHERE room.free > 0
)
UPDATE hourhand.live_runs w SET state = 0 WHERE w.run_id = ANY (ARRAY(SELECT run_id FROM next)) AND w.state = 1
RETURNING w.run_id;
