-- name: fire_once
-- Turns the cursors of jobs that run once into live runs, up to the horizon. Owner and epoch are part of the
-- statement: whoever lost a shard moves none of its cursors. The deleted row is the proof that nobody else fired it. Rows
-- that are locked stay in their places, so they are deleted by these.
WITH due AS (
    SELECT t.ctid AS place
      FROM hourhand.timetable t
     WHERE NOT t.recurring AND t.next_fire BETWEEN @since AND @until
       -- A value and not EXISTS: that may become a join that searches the timetable once for every shard.
       AND (SELECT s.owner_id = @node_id AND s.epoch <= @epoch FROM hourhand.shards s WHERE s.shard = t.shard)
     ORDER BY t.next_fire
     LIMIT @limit
       FOR UPDATE SKIP LOCKED
), fired AS (
    DELETE FROM hourhand.timetable t WHERE t.ctid = ANY (ARRAY(SELECT place FROM due))
    RETURNING t.job_id, t.next_fire, t.namespace_id, t.lane_id, t.version, t.priority, t.gate_ids, t.expires_after,
              t.exclusive
)
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state, priority,
                                cause, gate_ids, expires_at)
SELECT hourhand.scheduled_run_id(next_fire, job_id), job_id, next_fire, next_fire, namespace_id, lane_id, version, 0,
       priority, exclusive::int, gate_ids, next_fire + expires_after
  FROM fired
ON CONFLICT DO NOTHING
RETURNING date_part('epoch', ready_at) AS ready;                  -- as a number: see instants.py

-- name: due_cursors
-- The recurring jobs of own shards that fall due up to the horizon, in order of times and shards, so that who reads on in a
-- crowd of one instant need not begin with it again. When they fall due is asked for apart: a planner knows it of most.
SELECT t.job_id, date_part('epoch', t.next_fire) AS due, t.version, t.namespace_id
  FROM hourhand.timetable t
 WHERE t.recurring AND (t.next_fire, t.shard) >= (@since, @shard::smallint) AND t.next_fire <= @until
   AND (SELECT s.owner_id = @node_id AND s.epoch <= @epoch FROM hourhand.shards s WHERE s.shard = t.shard)
 ORDER BY t.next_fire, t.shard
 LIMIT @limit;

-- name: read_timings
-- What is needed to compute the next time of jobs. One that was changed meanwhile is left out; its cursor has moved.
SELECT j.job_id, j.version, j.timing, j.catchup
  FROM unnest(@namespace_ids::int[], @job_ids::uuid[], @versions::int[]) AS x(namespace_id, job_id, version)
 CROSS JOIN LATERAL (
    SELECT j.job_id, j.version, j.timing, j.catchup FROM hourhand.jobs j
     WHERE j.namespace_id = x.namespace_id AND j.job_id = x.job_id AND j.version = x.version
    OFFSET 0
 ) j;

-- name: advance_cursors
-- Moves cursors from the expected due time and version to the next one, and inserts the runs in between. A cursor that
-- was changed meanwhile, or whose shard was lost, does not move, and then its runs are not inserted either. Nearly every
-- move makes one run, for the due time at which the cursor stood and ready then: of that comes just the id, with the move.
-- All other runs come as rows of their own.
WITH moves AS (
    SELECT m.job_id, to_timestamp(m.expected) AS expected, m.version, m.next_fire, m.run_id
      FROM unnest(@job_ids::uuid[], @expected::float8[], @versions::int[], @next_fires::timestamptz[], @run_ids::uuid[])
           AS m(job_id, expected, version, next_fire, run_id)
), found AS MATERIALIZED (
    -- One by one, by their index, and then by their places: a plan made otherwise would read the whole table. In order of
    -- places, so that two who move the same ones never wait for each other.
    SELECT t.place, m.expected, m.version, m.next_fire AS following, m.run_id
      FROM moves m
     CROSS JOIN LATERAL (
        SELECT t.ctid AS place FROM hourhand.timetable t
         WHERE t.job_id = m.job_id AND t.next_fire = m.expected AND t.version = m.version
           AND (SELECT s.owner_id = @node_id AND s.epoch <= @epoch FROM hourhand.shards s WHERE s.shard = t.shard)
        OFFSET 0
     ) t
     ORDER BY t.place
), moved AS (
    UPDATE hourhand.timetable t SET next_fire = found.following
      FROM found
     WHERE t.ctid = found.place AND found.following IS NOT NULL
       AND t.next_fire = found.expected AND t.version = found.version
    RETURNING t.job_id, t.namespace_id, t.lane_id, t.version, t.priority, t.gate_ids, t.expires_after, t.exclusive,
              found.run_id, found.expected AS due
), ended AS (
    DELETE FROM hourhand.timetable t
     USING found
     WHERE t.ctid = found.place AND found.following IS NULL
       AND t.next_fire = found.expected AND t.version = found.version
    RETURNING t.job_id, t.namespace_id, t.lane_id, t.version, t.priority, t.gate_ids, t.expires_after, t.exclusive,
              found.run_id, found.expected AS due
), held AS MATERIALIZED (
    SELECT * FROM moved UNION ALL SELECT * FROM ended
), made AS (
    SELECT held.*, held.due AS ready FROM held WHERE held.run_id IS NOT NULL
     UNION ALL
    SELECT held.job_id, held.namespace_id, held.lane_id, held.version, held.priority, held.gate_ids, held.expires_after,
           held.exclusive, u.run_id, to_timestamp(u.due), to_timestamp(u.ready)
      FROM unnest(@other_run_ids::uuid[], @other_job_ids::uuid[], @other_dues::float8[], @other_ready::float8[])
           AS u(run_id, job_id, due, ready)
      JOIN held USING (job_id)
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
SELECT made.run_id, made.job_id, made.due, made.ready, made.namespace_id, made.lane_id, made.version, behind::int,
       made.priority, 1, made.gate_ids, made.ready + made.expires_after, CASE WHEN behind THEN 0 END
  FROM made
 CROSS JOIN LATERAL (
    -- One that is long overdue will hardly be gone in time: the new run waits to be judged, out of the ready index.
    SELECT made.exclusive AND EXISTS (SELECT FROM hourhand.live_runs e
                                       WHERE e.job_id = made.job_id AND e.cause <> 0
                                         AND e.ready_at <= @now::timestamptz - interval '1 second'
                                         AND e.run_id < made.run_id) AS behind
    OFFSET 0                              -- looked for once, although it is used twice
 ) b
ON CONFLICT DO NOTHING
RETURNING date_part('epoch', ready_at) AS ready;

-- name: next_cursor
-- When the next job of any shard falls due: how long a planner may sleep. At the end of time stand those that a pause
-- holds. With what time it is.
SELECT least((SELECT min(next_fire) FROM hourhand.timetable WHERE NOT recurring AND next_fire >= @since),
             (SELECT min(next_fire) FROM hourhand.timetable WHERE recurring AND next_fire >= @since)) AS next_fire,
       clock_timestamp() AS now;
