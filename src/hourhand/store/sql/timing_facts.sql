-- name: lock_budget
SELECT runs_left FROM hourhand.run_budgets WHERE job_id = @job_id FOR UPDATE;

-- name: put_budget
INSERT INTO hourhand.run_budgets (job_id, runs_left) VALUES (@job_id, @runs_left)
ON CONFLICT (job_id) DO UPDATE SET runs_left = excluded.runs_left;

-- name: drop_budget
DELETE FROM hourhand.run_budgets WHERE job_id = @job_id;

-- name: budgets_of
SELECT job_id, runs_left FROM hourhand.run_budgets WHERE job_id = ANY (@job_ids::uuid[]);

-- name: put_delay
INSERT INTO hourhand.completion_delays (job_id, delay, namespace_id, lane_id, version, shard, priority, gate_ids,
                                        expires_after, exclusive)
VALUES (@job_id, @delay, @namespace_id, @lane_id, @version, @shard, @priority, @gate_ids::int[], @expires_after::interval,
        @exclusive)
ON CONFLICT (job_id) DO UPDATE
   SET delay = excluded.delay, lane_id = excluded.lane_id, version = excluded.version, priority = excluded.priority,
       gate_ids = excluded.gate_ids, expires_after = excluded.expires_after, exclusive = excluded.exclusive;

-- name: drop_delay
DELETE FROM hourhand.completion_delays WHERE job_id = @job_id;

-- name: mark_runs
-- Unfinished runs of the schedule: their end makes the next cursor. Those that were made before the job had such a
-- schedule get the mark by which that is known.
UPDATE hourhand.live_runs SET gate_ids = coalesce(gate_ids, '{}') WHERE job_id = @job_id AND cause = 1
RETURNING run_id;

-- name: find_cursor
SELECT next_fire FROM hourhand.timetable WHERE job_id = @job_id;

-- name: drop_links
DELETE FROM hourhand.calendar_jobs WHERE job_id = @job_id;

-- name: put_links
INSERT INTO hourhand.calendar_jobs (namespace_id, calendar, job_id)
SELECT @namespace_id, c, @job_id FROM unnest(@calendars::text[]) AS c;

-- name: calendars_of_jobs
-- Which calendars jobs have, with the version that counts now. The rules are read apart: many jobs share one.
SELECT l.job_id, c.namespace_id, c.name, c.version
  FROM hourhand.calendar_jobs l
  JOIN hourhand.calendars c ON c.namespace_id = l.namespace_id AND c.name = l.calendar
 WHERE l.job_id = ANY (@job_ids::uuid[]);

-- name: calendar_rules
SELECT c.namespace_id, c.name, c.version, c.rule
  FROM hourhand.calendars c
  JOIN unnest(@namespace_ids::int[], @names::text[]) AS x(namespace_id, name) USING (namespace_id, name);

-- name: advance_cursors
-- As the statement of this name for plain jobs (timetable.sql), for those of which there is more to say: a start that is
-- later than the due time, a budget of runs, due times that a calendar leaves out.
WITH moves AS (
    SELECT * FROM unnest(@job_ids::uuid[], @expected::timestamptz[], @versions::int[], @next_fires::timestamptz[],
                         @made::int[])
                  AS m(job_id, expected, version, next_fire, made)
), found AS MATERIALIZED (                -- in order of places, as others move them
    SELECT t.place, m.*
      FROM moves m
     CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM hourhand.timetable t
         WHERE t.job_id = m.job_id AND t.next_fire = m.expected AND t.version = m.version
           AND (SELECT s.owner_id = @node_id AND s.epoch <= @epoch FROM hourhand.shards s WHERE s.shard = t.shard)
        OFFSET 0
     ) t
     ORDER BY t.place
), held AS MATERIALIZED (
    SELECT t.*, found.next_fire AS following, found.made
      FROM found
     CROSS JOIN LATERAL (
        SELECT t.job_id, t.namespace_id, t.lane_id, t.version, t.priority, t.gate_ids, t.expires_after, t.exclusive
          FROM hourhand.timetable t
         WHERE t.ctid = found.place AND t.next_fire = found.expected AND t.version = found.version
           FOR UPDATE
     ) t
), moved AS (
    UPDATE hourhand.timetable t SET next_fire = held.following
      FROM held WHERE t.job_id = ANY (ARRAY[held.job_id]) AND held.following IS NOT NULL
), ended AS (
    DELETE FROM hourhand.timetable t USING held
     WHERE t.job_id = ANY (ARRAY[held.job_id]) AND held.following IS NULL
), spent AS (
    UPDATE hourhand.run_budgets b SET runs_left = greatest(b.runs_left - held.made, 0)
      FROM held WHERE b.job_id = ANY (ARRAY[held.job_id]) AND held.made > 0
), missed AS (
    SELECT x.*, held.version
      FROM unnest(@missed_job_ids::uuid[], @missed_first::timestamptz[], @missed_last::timestamptz[],
                  @missed_counts::int[], @missed_reasons::text[], @missed_details::text[], @missed_next::timestamptz[],
                  @missed_recent::timestamptz[], @missed_recent_counts::int[])
           AS x(job_id, first_due, last_due, count, reason, detail, next_due, recent_from, recent_count)
      JOIN held USING (job_id)
), extended AS (                          -- a stretch that an earlier plan could not count to its end goes on
    UPDATE hourhand.ledger_ranges r
       SET last_due = x.last_due, count = r.count + x.count, next_due = x.next_due, recent_from = x.recent_from,
           recent_count = x.recent_count
      FROM missed x
     WHERE r.job_id = ANY (ARRAY[x.job_id]) AND r.next_due = x.first_due AND r.reason = x.reason
       AND r.version = x.version
       AND r.recent_from IS NULL AND r.detail IS NOT DISTINCT FROM x.detail
    RETURNING r.job_id, x.first_due
), kept AS (
    INSERT INTO hourhand.ledger_ranges (job_id, first_due, last_due, count, state, reason, version, detail, next_due,
                                        recent_from, recent_count)
    SELECT x.job_id, x.first_due, x.last_due, x.count, 16, x.reason, x.version, x.detail, x.next_due, x.recent_from,
           x.recent_count
      FROM missed x
     WHERE NOT EXISTS (SELECT FROM extended e WHERE e.job_id = x.job_id AND e.first_due = x.first_due)
    ON CONFLICT (job_id, first_due) DO NOTHING
)
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state, priority,
                                cause, gate_ids, expires_at, waits_on)
SELECT x.run_id, held.job_id, x.due, x.ready, held.namespace_id, held.lane_id, held.version, behind::int, held.priority, 1,
       held.gate_ids, x.ready + held.expires_after, CASE WHEN behind THEN 0 END
  FROM unnest(@run_ids::uuid[], @run_job_ids::uuid[], @run_dues::timestamptz[], @run_ready::timestamptz[])
       AS x(run_id, job_id, due, ready)
  JOIN held USING (job_id)
 CROSS JOIN LATERAL (
    SELECT held.exclusive AND EXISTS (SELECT FROM hourhand.live_runs e
                                       WHERE e.job_id = held.job_id AND e.cause <> 0
                                         AND e.ready_at <= @now::timestamptz - interval '1 second'
                                         AND e.run_id < x.run_id) AS behind
 ) b
ON CONFLICT DO NOTHING
RETURNING ready_at;
