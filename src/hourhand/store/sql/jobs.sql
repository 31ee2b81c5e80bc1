-- name: insert_few
-- A few plain jobs that run once, with their runs or cursors, in one round trip; many are copied.
WITH x AS (
    SELECT * FROM unnest(@job_ids::uuid[], @namespace_ids::int[], @lane_ids::int[], @names::text[], @kinds::text[],
                         @payloads::jsonb[], @due::timestamptz[], @priorities::smallint[], @max_retries::smallint[],
                         @owners::text[], @created::timestamptz[], @created_by::text[], @run_ids::uuid[],
                         @next_fires::timestamptz[], @shards::smallint[])
                  AS x(job_id, namespace_id, lane_id, name, kind, payload, due_at, priority, max_retries, owner, created_at,
                       created_by, run_id, next_fire, shard)
), stored AS (
    INSERT INTO hourhand.jobs (job_id, namespace_id, lane_id, name, kind, payload, due_at, priority, max_retries, owner,
                               status, version, created_at, created_by, updated_at)
    SELECT job_id, namespace_id, lane_id, name, kind, payload, due_at, priority, max_retries, owner, 0, 1, created_at,
           created_by, created_at
      FROM x
), cursors AS (
    INSERT INTO hourhand.timetable (job_id, next_fire, namespace_id, lane_id, version, shard, priority, recurring)
    SELECT job_id, next_fire, namespace_id, lane_id, 1, shard, priority, false FROM x WHERE next_fire IS NOT NULL
)
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state, priority,
                                cause)
SELECT run_id, job_id, due_at, due_at, namespace_id, lane_id, 1, 0, priority, 0 FROM x WHERE run_id IS NOT NULL;

-- name: get_jobs
SELECT j.*
  FROM unnest(@namespace_ids::int[], @job_ids::uuid[]) AS x(namespace_id, job_id)
  JOIN hourhand.jobs_in_full j ON j.namespace_id = x.namespace_id AND j.job_id = x.job_id;

-- name: lock_job
-- The row is locked first, so that two changes of one job follow each other.
SELECT j.*, l.queue, l.needs FROM hourhand.jobs j JOIN hourhand.lanes l USING (lane_id)
 WHERE j.namespace_id = @namespace_id AND j.job_id = @job_id
   FOR UPDATE OF j;

-- name: move_cursor
UPDATE hourhand.timetable SET next_fire = @next_fire WHERE job_id = @job_id;

-- name: lock_cursor
-- Waits for a planner that is just moving the cursor: the runs it made are then seen by the statements that follow.
SELECT next_fire FROM hourhand.timetable WHERE job_id = @job_id FOR UPDATE;

-- name: make_overdue
-- Runs of due times that passed while nobody was planning, made before the cursor is set anew. They wait from when they
-- are ready, which is when they are made unless that is hardly later.
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state, priority,
                                cause, gate_ids, expires_at)
SELECT hourhand.scheduled_run_id(x.due, t.job_id), t.job_id, x.due, x.ready, t.namespace_id, t.lane_id, t.version, 0,
       t.priority, CASE WHEN @once::boolean AND NOT t.exclusive THEN 0 ELSE 1 END, t.gate_ids, x.ready + t.expires_after
  FROM hourhand.timetable t, unnest(@dues::timestamptz[], @ready::timestamptz[]) AS x(due, ready)
 WHERE t.job_id = @job_id
ON CONFLICT DO NOTHING;

-- name: keep_missed
-- As in advance_cursors: a stretch that goes on is one row.
WITH missed AS (
    SELECT x.* FROM unnest(@first::timestamptz[], @last::timestamptz[], @counts::int[], @reasons::text[], @details::text[],
                           @next::timestamptz[], @recent::timestamptz[], @recent_counts::int[])
                    AS x(first_due, last_due, count, reason, detail, next_due, recent_from, recent_count)
), extended AS (
    UPDATE hourhand.ledger_ranges r
       SET last_due = x.last_due, count = r.count + x.count, next_due = x.next_due, recent_from = x.recent_from,
           recent_count = x.recent_count
      FROM missed x
     WHERE r.job_id = @job_id AND r.next_due = x.first_due AND r.reason = x.reason AND r.version = @version
       AND r.recent_from IS NULL AND r.detail IS NOT DISTINCT FROM x.detail
    RETURNING x.first_due
)
INSERT INTO hourhand.ledger_ranges (job_id, first_due, last_due, count, state, reason, version, detail, next_due,
                                    recent_from, recent_count)
SELECT @job_id, x.first_due, x.last_due, x.count, 16, x.reason, @version, x.detail, x.next_due, x.recent_from,
       x.recent_count
  FROM missed x
 WHERE NOT EXISTS (SELECT FROM extended e WHERE e.first_due = x.first_due)
ON CONFLICT (job_id, first_due) DO NOTHING;

-- name: update_job
-- And which secrets it refers to from now on.
WITH unlinked AS (
    DELETE FROM hourhand.secret_jobs WHERE job_id = @job_id AND secret <> ALL (@secrets::text[])
), linked AS (
    INSERT INTO hourhand.secret_jobs (namespace_id, secret, job_id)
    SELECT @namespace_id, secret, @job_id FROM unnest(@secrets) AS secret
    ON CONFLICT DO NOTHING
)
UPDATE hourhand.jobs
   SET lane_id = @lane_id, name = @name, kind = @kind, payload = @payload, due_at = @due_at, timing = @timing,
       priority = @priority, max_retries = @max_retries, retry = @retry, catchup = @catchup,
       timeout_seconds = @timeout_seconds, policy = @policy, labels = @labels, description = @description, owner = @owner,
       version = @version, updated_at = @now, updated_by = @changed_by
 WHERE namespace_id = @namespace_id AND job_id = @job_id;

-- name: set_job_status
UPDATE hourhand.jobs
   SET status = @status, cancelled_at = @cancelled_at,
       pause_reason = @pause_reason, paused_at = @paused_at, paused_by = @paused_by,
       pause_until = @pause_until, pause_from = @pause_from, resumed_at = coalesce(@resumed_at, resumed_at)
 WHERE namespace_id = @namespace_id AND job_id = @job_id;

-- name: count_pause_from
-- What fell into the pause until then is in the ledger.
UPDATE hourhand.jobs SET pause_from = @pause_from WHERE namespace_id = @namespace_id AND job_id = @job_id;

-- name: keep_version
INSERT INTO hourhand.job_versions (job_id, version, definition, changed_at, changed_by)
VALUES (@job_id, @version, @definition, @changed_at, @changed_by);

-- name: put_cursor
INSERT INTO hourhand.timetable (job_id, next_fire, namespace_id, lane_id, version, shard, priority, recurring, gate_ids,
                                expires_after, exclusive)
VALUES (@job_id, @next_fire, @namespace_id, @lane_id, @version, @shard, @priority, @recurring, @gate_ids::int[],
        @expires_after::interval, @exclusive)
ON CONFLICT (job_id) DO UPDATE
   SET next_fire = excluded.next_fire, lane_id = excluded.lane_id, version = excluded.version,
       priority = excluded.priority, recurring = excluded.recurring, gate_ids = excluded.gate_ids,
       expires_after = excluded.expires_after, exclusive = excluded.exclusive;

-- name: drop_cursor
DELETE FROM hourhand.timetable WHERE job_id = @job_id;

-- name: withdraw_runs
-- Takes back the scheduled runs of a job that are not due yet and nobody has claimed: nothing final is written for a
-- due time that has not passed. A run that is claimed meanwhile is not in the answer.
DELETE FROM hourhand.live_runs
 WHERE (run_id = @once_run_id::uuid OR (job_id = @job_id AND cause = 1))
   AND state IN (0, 1) AND attempt = 0 AND scheduled_for > @now
RETURNING run_id, scheduled_for;

-- name: refresh_lane_of_runs
-- Runs of a changed job that are due but not claimed go where the new definition belongs, and ask its gates anew: also
-- those that a rate gave a later time.
UPDATE hourhand.live_runs
   SET lane_id = @lane_id, priority = @priority, version = @version, gate_ids = @gate_ids::int[],
       ready_at = CASE WHEN waits_on > 0 AND state = 0 THEN least(ready_at, @now) ELSE ready_at END,
       state = CASE WHEN waits_on = 0 THEN state ELSE 0 END, waits_on = CASE WHEN waits_on = 0 THEN 0 END
 WHERE (run_id = @once_run_id::uuid OR (job_id = @job_id AND cause <> 0)) AND state IN (0, 1);

-- name: runs_apart
-- Runs of a job whose gates do not follow from its definition alone: those with a payload of their own, and those in
-- somebody's hands, which run with the payload they were claimed with.
SELECT r.run_id, r.state IN (2, 3, 4) AS executing, q.payload
  FROM hourhand.live_runs r
  LEFT JOIN hourhand.run_requests q ON q.run_id = r.run_id AND r.cause = 2
 WHERE r.job_id = @job_id AND r.cause <> 0 AND (r.state IN (2, 3, 4) OR q.payload IS NOT NULL);

-- name: set_gates
UPDATE hourhand.live_runs r SET gate_ids = x.gate_ids::int[]
  FROM unnest(@run_ids::uuid[], @gate_ids::text[]) AS x(run_id, gate_ids)
 WHERE r.run_id = x.run_id AND r.state IN (0, 1);

-- name: take_places
-- Runs that were claimed before their job had these gates take their places now, so that they count against a new limit;
-- and they remember it, so that they give them back.
WITH taken AS (
    UPDATE hourhand.live_runs r
       SET gate_ids = ARRAY(SELECT DISTINCT g FROM unnest(r.gate_ids || x.gate_ids::int[]) AS g ORDER BY g)
      FROM unnest(@run_ids::uuid[], @gate_ids::text[]) AS x(run_id, gate_ids)
     WHERE r.run_id = x.run_id AND r.state IN (2, 3, 4) AND NOT x.gate_ids::int[] <@ coalesce(r.gate_ids, '{}')
    RETURNING r.run_id, x.gate_ids::int[] AS gate_ids
)
INSERT INTO hourhand.gate_slots (run_id, gate_id) SELECT run_id, unnest(gate_ids) FROM taken ON CONFLICT DO NOTHING;

-- name: keep_findable
-- The single run of a job is found by its due time; when the job gets another one, by the index instead.
UPDATE hourhand.live_runs SET cause = 1 WHERE run_id = @once_run_id::uuid AND cause = 0;

-- name: latest_made
-- The latest due time of the job, later than now, that is dealt with: its run is made and stays, held by an executor or
-- final already; or the ledger has it, because a calendar leaves it out.
SELECT max(scheduled_for) AS latest FROM (
    SELECT scheduled_for FROM hourhand.live_runs
     WHERE (run_id = @once_run_id::uuid OR (job_id = @job_id AND cause = 1)) AND scheduled_for > @now
    UNION ALL
    SELECT scheduled_for FROM hourhand.runs
     WHERE job_id = @job_id AND run_id >= @now_id AND cause <> 2 AND scheduled_for > @now
    UNION ALL
    SELECT last_due FROM hourhand.ledger_ranges WHERE job_id = @job_id AND last_due > @now
) made;

-- name: last_due
-- The latest due time of the job that made a run.
SELECT greatest((SELECT max(l.scheduled_for) FROM hourhand.live_runs l WHERE l.job_id = @job_id AND l.cause = 1),
                (SELECT r.scheduled_for FROM hourhand.runs r
                  WHERE r.job_id = @job_id AND r.cause <> 2 ORDER BY r.run_id DESC LIMIT 1)) AS due;

-- name: runs_to_come
-- What is left of the job's budget of runs, and the runs that are made of due times that have not come yet.
SELECT b.runs_left + (SELECT count(*) FROM hourhand.live_runs r
                       WHERE r.job_id = b.job_id AND r.cause = 1 AND r.scheduled_for > @now)::int AS runs
  FROM hourhand.run_budgets b WHERE b.job_id = @job_id;

-- name: job_live_runs
SELECT run_id, state, scheduled_for FROM hourhand.live_runs
 WHERE run_id = @once_run_id::uuid OR (job_id = @job_id AND cause <> 0)
 ORDER BY run_id;
