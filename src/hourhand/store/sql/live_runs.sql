-- Plans are kept, and tables fill and empty within seconds. So these statements leave no choice to a plan that was made
-- while a table was empty: sessions of nodes take an index wherever there is one (see `Database`), and no statement offers
-- a join that would read a whole table through it. What is read is read row by row (`LATERAL`, `OFFSET 0`); what is
-- written is found by its place, or by `= ANY (ARRAY[x])`: that is equality which cannot be hashed or merged.

-- name: peek_ready
-- The oldest queued run of every (lane, priority) that has one: a walk over the index that touches one entry each.
WITH RECURSIVE heads AS (
    (SELECT lane_id, priority, ready_at FROM hourhand.live_runs
      WHERE state = 0 ORDER BY lane_id, priority DESC, ready_at LIMIT 1)
    UNION ALL
    SELECT n.lane_id, n.priority, n.ready_at
      FROM heads h
     CROSS JOIN LATERAL (
        (SELECT lane_id, priority, ready_at FROM hourhand.live_runs
          WHERE state = 0 AND lane_id = h.lane_id AND priority < h.priority ORDER BY priority DESC, ready_at LIMIT 1)
        UNION ALL
        (SELECT lane_id, priority, ready_at FROM hourhand.live_runs
          WHERE state = 0 AND lane_id > h.lane_id ORDER BY lane_id, priority DESC, ready_at LIMIT 1)
        LIMIT 1
     ) n
)
SELECT lane_id, priority, ready_at, clock_timestamp() AS now FROM heads WHERE lane_id = ANY (@lanes::int[]);

-- name: peek_known
-- The same for those (lane, priority) that are known to have runs, each from a time on. Finds nothing older, but does
-- not walk over what is finished and cannot be cleared away yet either.
SELECT h.lane_id, h.priority, r.ready_at, clock_timestamp() AS now
  FROM unnest(@lanes::int[], @priorities::smallint[], @since::timestamptz[]) AS h(lane_id, priority, since)
 CROSS JOIN LATERAL (
    SELECT r.ready_at FROM hourhand.live_runs r
     WHERE r.state = 0 AND r.lane_id = h.lane_id AND r.priority = h.priority AND r.ready_at >= h.since
     ORDER BY r.ready_at
     LIMIT 1
 ) r;

-- name: is_crowd
-- Whether so many queued runs of a lane and priority become ready within a moment. Reads no more entries than that.
SELECT EXISTS (
    SELECT FROM hourhand.live_runs r
     WHERE r.state = 0 AND r.lane_id = @lane_id AND r.priority = @priority AND r.ready_at BETWEEN @since AND @until
     ORDER BY r.ready_at
    OFFSET @count::int - 1
) AS is_crowd;

-- name: claim_runs
-- Claims due runs of plain lanes, in the order of the heads, up to a share for each namespace. The heads come from
-- peek_ready. The fence number drawn here ends the right of every earlier attempt of these runs. A recurring run that
-- an earlier one of its job stands in the way of is not claimed: once due, it waits to be judged by the job's overlap
-- policy. In the answer such rows have no fence.
--
-- An earlier run can also be made while somebody claims a later one and cannot see it yet. So whoever claims the earlier
-- one takes those that follow out of the ready index, where the other's lock or its own finds them. If it cannot, because
-- one of them is just being claimed, it steps back. They are looked for by their job: `state < 1` means queued, like
-- `state = 0`, but cannot lead a plan made for few runs to walk over the whole ready index for each of them.
--
-- What is picked is locked and stays in its place (`ctid`): it is written there, and not looked up by its id once more.
WITH heads AS (
    SELECT h.* FROM unnest(@lanes::int[], @priorities::smallint[], @since::timestamptz[], @shares::int[], @limits::int[])
                    WITH ORDINALITY AS h(lane_id, priority, since, share, most, place)
      JOIN hourhand.lanes l USING (lane_id)
     WHERE NOT l.held AND NOT l.gated AND l.gate_ids IS NULL      -- as it is now, whatever the executor knows
       AND NOT EXISTS (SELECT FROM hourhand.nodes n WHERE n.node_id = @executor_id AND n.ended_at IS NOT NULL)
), picked AS MATERIALIZED (
    SELECT c.run_id, c.place, c.job_id, c.namespace_id, c.overlaps, c.followers, s.share
      FROM (SELECT share, max(most) AS most FROM heads GROUP BY share) s
     CROSS JOIN LATERAL (
        SELECT p.*
          FROM (SELECT lane_id, priority, since FROM heads WHERE share = s.share ORDER BY place) h
         CROSS JOIN LATERAL (
            SELECT q.run_id, q.place, q.job_id, q.namespace_id,
                   CASE WHEN q.behind IS NULL THEN false ELSE (
                       (q.behind AND q.attempt = 0) OR EXISTS (
                           SELECT FROM hourhand.live_runs e
                            WHERE e.job_id = q.job_id AND e.cause <> 0
                              -- Ids sort by due time, those of runs asked for by when they were. What runs already is in
                              -- the way whatever it stands for, unless it was let run beside this one.
                              AND (e.run_id < q.run_id OR (q.attempt = 0 AND e.state IN (2, 3, 4)))
                       )
                   ) AND hourhand.overlap_policy(q.namespace_id, q.job_id, q.run_id) <> 'allow' END AS overlaps,
                   CASE WHEN q.behind IS FALSE AND q.attempt = 0 AND NOT EXISTS (    -- of a crowd of one job only the first
                       SELECT FROM hourhand.live_runs e
                        WHERE e.job_id = q.job_id AND e.cause <> 0 AND (e.run_id < q.run_id OR e.state IN (2, 3, 4))
                   ) THEN (
                       SELECT count(*) FROM hourhand.live_runs e
                        WHERE e.job_id = q.job_id AND e.cause <> 0 AND e.run_id > q.run_id AND e.state < 1
                          AND e.ready_at <= @others_until::timestamptz     -- which others may be claiming
                          AND hourhand.overlap_policy(e.namespace_id, e.job_id, e.run_id) <> 'allow'
                   ) ELSE 0 END AS followers
              FROM (
                SELECT r.run_id, r.ctid AS place, r.job_id, r.namespace_id, r.attempt,
                       -- Whether it stands behind any other run of its job that matters, whichever is found first. Nearly
                       -- always there is none, which one look tells: then the questions above are not asked.
                       CASE WHEN r.cause <> 0 THEN (
                           SELECT e.run_id < r.run_id OR e.state IN (2, 3, 4)
                             FROM hourhand.live_runs e
                            WHERE e.job_id = r.job_id AND e.cause <> 0
                              AND (e.run_id < r.run_id OR e.state IN (2, 3, 4)
                                   OR (e.run_id > r.run_id AND e.ready_at <= @others_until::timestamptz))
                            LIMIT 1
                       ) END AS behind
                  FROM hourhand.live_runs r
                 WHERE r.state = 0 AND r.lane_id = h.lane_id AND r.priority = h.priority
                   AND r.ready_at BETWEEN h.since AND @until    -- older ones there were none when peek_ready looked
                 ORDER BY r.ready_at
                 LIMIT s.most
                   FOR UPDATE SKIP LOCKED
              ) q
         ) p
         LIMIT s.most
     ) c
), followed AS MATERIALIZED (
    SELECT p.run_id, p.job_id, p.followers FROM picked p
     WHERE p.followers > 0 AND NOT p.overlaps
       AND hourhand.overlap_policy(p.namespace_id, p.job_id, p.run_id) <> 'allow'
), followers AS MATERIALIZED (
    SELECT f.run_id AS first_id, e.run_id
      FROM followed f
     CROSS JOIN LATERAL (
        SELECT e.run_id FROM hourhand.live_runs e
         WHERE e.job_id = f.job_id AND e.cause <> 0 AND e.run_id > f.run_id AND e.state < 1
           AND e.ready_at <= @others_until::timestamptz
           AND hourhand.overlap_policy(e.namespace_id, e.job_id, e.run_id) <> 'allow'
           FOR UPDATE SKIP LOCKED
     ) e
), contested AS MATERIALIZED (
    SELECT f.run_id FROM followed f
     WHERE f.followers > (SELECT count(*) FROM followers w WHERE w.first_id = f.run_id)
), claimed AS (
    UPDATE hourhand.live_runs r
       SET state = 2, executor_id = @executor_id, attempt = r.attempt + 1, fence = nextval('hourhand.fence')
      FROM picked
     WHERE r.ctid = picked.place AND r.run_id = ANY (ARRAY[picked.run_id])
       AND NOT picked.overlaps AND picked.run_id NOT IN (SELECT run_id FROM contested)
    RETURNING r.run_id, r.job_id, r.namespace_id, r.lane_id, r.scheduled_for, r.ready_at, r.fence, r.attempt,
              r.failures, r.losses, r.cause, picked.share
), parked AS (
    UPDATE hourhand.live_runs r SET state = 1, waits_on = 0
      FROM (SELECT run_id, false AS follows FROM picked WHERE picked.overlaps
             UNION SELECT run_id, false FROM contested
             UNION SELECT run_id, true FROM followers) p
     WHERE r.run_id = ANY (ARRAY[p.run_id]) AND (p.follows OR r.ready_at <= @now)
    RETURNING r.run_id
)
SELECT c.run_id, c.job_id, c.namespace_id, c.lane_id,
       date_part('epoch', c.scheduled_for) AS due,            -- as a number: see instants.py
       nullif(c.ready_at, c.scheduled_for) AS ready_at,       -- only where they differ
       c.fence, c.attempt, c.failures, c.losses, j.name, j.kind, j.max_retries, j.retry, j.timeout_seconds,
       CASE WHEN c.cause = 2
            THEN coalesce((SELECT q.payload FROM hourhand.run_requests q WHERE q.run_id = c.run_id), j.payload)
            ELSE j.payload END AS payload,
       j.policy, c.share
  FROM claimed c
 CROSS JOIN LATERAL (
    SELECT j.name, j.kind, j.max_retries, j.retry, j.timeout_seconds, j.payload, j.policy
      FROM hourhand.jobs j WHERE j.namespace_id = c.namespace_id AND j.job_id = c.job_id
    OFFSET 0
 ) j
 UNION ALL
SELECT run_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM parked;

-- name: careful_candidates
-- Due runs of lanes with gates, for each share in the order of its heads, locked until the gates have been asked. Those
-- that follow one of them are taken out of the ready index, for the reason that claim_runs gives.
WITH heads AS (
    SELECT h.*, l.gate_ids
      FROM unnest(@lanes::int[], @priorities::smallint[], @since::timestamptz[], @shares::int[])
           WITH ORDINALITY AS h(lane_id, priority, since, share, place)
      JOIN hourhand.lanes l USING (lane_id)
     WHERE NOT l.held
       AND NOT EXISTS (SELECT FROM hourhand.nodes n WHERE n.node_id = @executor_id AND n.ended_at IS NOT NULL)
), picked AS MATERIALIZED (
    SELECT c.*, s.share, s.place
      FROM (SELECT share, min(place) AS place FROM heads GROUP BY share) s
     CROSS JOIN LATERAL (
        SELECT p.*, h.place AS head
          FROM (SELECT lane_id, priority, since, gate_ids, place FROM heads WHERE share = s.share ORDER BY place) h
         CROSS JOIN LATERAL (
            SELECT r.run_id, r.job_id, r.namespace_id, r.ready_at, r.gate_ids || h.gate_ids AS gate_ids, r.waits_on,
                   CASE WHEN r.cause <> 0 THEN EXISTS (
                       SELECT FROM hourhand.live_runs e
                        WHERE e.job_id = r.job_id AND e.cause <> 0
                          AND (e.run_id < r.run_id OR (r.attempt = 0 AND e.state IN (2, 3, 4)))
                   ) AND hourhand.overlap_policy(r.namespace_id, r.job_id, r.run_id) <> 'allow'
                   ELSE false END AS overlaps,
                   CASE WHEN r.cause <> 0 AND r.attempt = 0 AND NOT EXISTS (    -- of a crowd of one job only the first
                       SELECT FROM hourhand.live_runs e
                        WHERE e.job_id = r.job_id AND e.cause <> 0 AND (e.run_id < r.run_id OR e.state IN (2, 3, 4))
                   ) THEN (
                       SELECT count(*) FROM hourhand.live_runs e
                        WHERE e.job_id = r.job_id AND e.cause <> 0 AND e.run_id > r.run_id AND e.state < 1
                          AND e.ready_at <= @now::timestamptz + interval '250 milliseconds'
                          AND hourhand.overlap_policy(e.namespace_id, e.job_id, e.run_id) <> 'allow'
                   ) ELSE 0 END AS followers
              FROM hourhand.live_runs r
             WHERE r.state = 0 AND r.lane_id = h.lane_id AND r.priority = h.priority
               AND r.ready_at BETWEEN h.since AND @now
             ORDER BY r.ready_at
             LIMIT @limit
               FOR UPDATE SKIP LOCKED
         ) p
         LIMIT @limit
     ) c
), followed AS MATERIALIZED (
    SELECT p.run_id, p.job_id, p.followers FROM picked p
     WHERE p.followers > 0 AND NOT p.overlaps
       AND hourhand.overlap_policy(p.namespace_id, p.job_id, p.run_id) <> 'allow'
), followers AS MATERIALIZED (
    SELECT f.run_id AS first_id, e.run_id
      FROM followed f
     CROSS JOIN LATERAL (
        SELECT e.run_id FROM hourhand.live_runs e
         WHERE e.job_id = f.job_id AND e.cause <> 0 AND e.run_id > f.run_id AND e.state < 1
           AND e.ready_at <= @now::timestamptz + interval '250 milliseconds'
           AND hourhand.overlap_policy(e.namespace_id, e.job_id, e.run_id) <> 'allow'
           FOR UPDATE SKIP LOCKED
     ) e
), parked AS (
    UPDATE hourhand.live_runs r SET state = 1, waits_on = 0 WHERE r.run_id = ANY (ARRAY(SELECT run_id FROM followers))
)
SELECT p.run_id, p.gate_ids, p.waits_on, p.share,
       p.overlaps OR EXISTS (
           SELECT FROM followed f
            WHERE f.run_id = p.run_id
              AND f.followers > (SELECT count(*) FROM followers w WHERE w.first_id = f.run_id)
       ) AS overlaps
  FROM picked p
 ORDER BY p.place, p.head, p.ready_at;

-- name: lock_gates
-- In order of their numbers, so that two who need the same ones never wait for each other.
SELECT gate_id, capacity, rate_count, rate_seconds, rate_bucket, rate_starts FROM hourhand.gates
 WHERE gate_id = ANY (@gate_ids::int[])
 ORDER BY gate_id
   FOR UPDATE;

-- name: count_slots
-- After lock_gates, in a statement of its own: only then it sees what the last holder of the lock has written. And with a
-- row each the runs that were promised a place a moment ago, because it was their turn.
SELECT gate_id, NULL::uuid AS run_id, count(*) AS held
  FROM hourhand.gate_slots WHERE gate_id = ANY (@gate_ids::int[]) GROUP BY gate_id
 UNION ALL
SELECT gate_id, run_id, 0 FROM hourhand.gate_promises
 WHERE gate_id = ANY (@gate_ids) AND promised_at > statement_timestamp() - interval '2 seconds';

-- name: settle_promises
DELETE FROM hourhand.gate_promises WHERE run_id = ANY (@run_ids::uuid[]);

-- name: claim_admitted
-- Claims runs that the gates have let through, with a place in each of them. The start of a run that may run at most
-- once is written here, before anything of it happens.
WITH admitted AS (
    SELECT x.run_id, x.gate_ids::int[] AS gate_ids, j.*
      FROM unnest(@run_ids::uuid[], @gate_ids::text[]) AS x(run_id, gate_ids)
     CROSS JOIN LATERAL (
        SELECT o.namespace_id, o.job_id FROM hourhand.live_runs o WHERE o.run_id = x.run_id OFFSET 0
     ) o
     CROSS JOIN LATERAL (
        SELECT j.name, j.kind, j.max_retries, j.retry, j.timeout_seconds, j.payload, j.policy
          FROM hourhand.jobs j WHERE j.namespace_id = o.namespace_id AND j.job_id = o.job_id
        OFFSET 0
     ) j
), claimed AS (
    UPDATE hourhand.live_runs r
       SET state = CASE WHEN (a.policy ->> 'at_most_once')::boolean THEN 3 ELSE 2 END,
           started_at = CASE WHEN (a.policy ->> 'at_most_once')::boolean THEN clock_timestamp() END,
           executor_id = @executor_id, attempt = r.attempt + 1, fence = nextval('hourhand.fence'), waits_on = NULL,
           gate_ids = coalesce(nullif(a.gate_ids, '{}'), r.gate_ids)   -- an empty list is a mark: see completion_delays
      FROM admitted a
     WHERE r.run_id = ANY (ARRAY[a.run_id])
    RETURNING r.run_id, r.job_id, r.namespace_id, r.lane_id, r.scheduled_for, r.ready_at, r.fence, r.attempt,
              r.failures, r.losses, r.cause, a.name, a.kind, a.max_retries, a.retry, a.timeout_seconds, a.payload, a.policy
), taken AS (
    INSERT INTO hourhand.gate_slots (run_id, gate_id) SELECT a.run_id, unnest(a.gate_ids) FROM admitted a
    ON CONFLICT DO NOTHING
)
SELECT c.run_id, c.job_id, c.namespace_id, c.lane_id, date_part('epoch', c.scheduled_for) AS due,
       nullif(c.ready_at, c.scheduled_for) AS ready_at, c.fence, c.attempt, c.failures, c.losses, c.name,
       c.kind, c.max_retries, c.retry, c.timeout_seconds,
       CASE WHEN c.cause = 2
            THEN coalesce((SELECT q.payload FROM hourhand.run_requests q WHERE q.run_id = c.run_id), c.payload)
            ELSE c.payload END AS payload,
       c.policy, NULL::int AS share
  FROM claimed c;

-- name: park_runs
-- Takes runs out of the ready index until somebody lets them go on.
UPDATE hourhand.live_runs r SET state = 1, waits_on = x.waits_on
  FROM unnest(@run_ids::uuid[], @waits_on::int[]) AS x(run_id, waits_on)
 WHERE r.run_id = ANY (ARRAY[x.run_id]) AND r.state < 1;

-- name: delay_runs
-- A rate lets them start later; nobody has to wake them.
UPDATE hourhand.live_runs r SET ready_at = x.ready_at, waits_on = x.waits_on
  FROM unnest(@run_ids::uuid[], @waits_on::int[], @ready::timestamptz[]) AS x(run_id, waits_on, ready_at)
 WHERE r.run_id = ANY (ARRAY[x.run_id]) AND r.state < 1;

-- name: pass_on
-- Places that runs were let go on for and that they cannot use: as many others that wait for them go on instead.
WITH next AS MATERIALIZED (
    SELECT c.run_id
      FROM unnest(@gate_ids::int[], @places::int[]) AS g(gate_id, places)
     CROSS JOIN LATERAL hourhand.next_in_line(g.gate_id, g.places::int, @priority_wait) AS c(run_id)
)
UPDATE hourhand.live_runs w SET state = 0 WHERE w.run_id = ANY (ARRAY(SELECT run_id FROM next))
RETURNING w.run_id;

-- name: put_starts
UPDATE hourhand.gates g SET rate_bucket = x.bucket, rate_starts = x.starts::int[]
  FROM unnest(@gate_ids::int[], @buckets::bigint[], @starts::text[]) AS x(gate_id, bucket, starts)
 WHERE g.gate_id = x.gate_id;

-- name: start_runs
-- Marks runs as running that have not ended by the time of the flush; short ones never pass through here.
UPDATE hourhand.live_runs r SET state = 3, started_at = x.started_at
  FROM unnest(@run_ids::uuid[], @fences::bigint[], @started::timestamptz[]) AS x(run_id, fence, started_at)
 WHERE r.run_id = ANY (ARRAY[x.run_id]) AND r.fence = x.fence AND r.state = 2
RETURNING r.run_id;

-- name: finish_plain
-- The shortest road for what happens most: runs without gates that have succeeded and said nothing. Answers how many it
-- has finished, and which where others were left alone; those take the long road, finish_runs. So do all of them when one
-- is in history already, which is refused here: to ask for each before it is written costs a third more.
WITH finished AS (
    DELETE FROM hourhand.live_runs r
     USING unnest(@run_ids::uuid[], @fences::bigint[], @started::float8[], @ended::float8[])
           AS x(run_id, fence, started, ended)                  -- seconds: see instants.py
     WHERE r.run_id = ANY (ARRAY[x.run_id]) AND r.fence = x.fence
       AND r.state = ANY (@from_states::smallint[]) AND r.gate_ids IS NULL
    RETURNING r.run_id, r.job_id, r.scheduled_for, coalesce(to_timestamp(x.started), r.started_at) AS started_at,
              to_timestamp(x.ended) AS ended_at,
              r.namespace_id, r.executor_id, r.version, r.cause, r.attempt
), kept AS (
    INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version,
                               state, cause, attempt)
    SELECT run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version, 10, cause, attempt
      FROM finished
    RETURNING run_id
)
SELECT count(*) AS kept, CASE WHEN count(*) < cardinality(@run_ids) THEN array_agg(run_id) END AS run_ids FROM kept;

-- name: finish_runs
-- Moves finished runs into history. A run missing from the answer was late: its fence had passed to someone else. Once
-- cancel was acknowledged (state 4) nothing but cancelled is recorded. Places in gates are given back, and as many of
-- those who wait for them are let go on.
WITH finished AS (
    DELETE FROM hourhand.live_runs r
     USING unnest(@run_ids::uuid[], @fences::bigint[], @states::smallint[], @started::timestamptz[],
                  @ended::timestamptz[], @reasons::text[], @errors::text[], @results::jsonb[], @usages::jsonb[])
           AS x(run_id, fence, state, started_at, ended_at, reason, error, result, usage)
     WHERE r.run_id = ANY (ARRAY[x.run_id])
       AND r.fence = x.fence              -- only the newest attempt may speak
       AND r.state = ANY (@from_states::smallint[])
    RETURNING r.run_id, r.job_id, r.scheduled_for, r.namespace_id, r.executor_id, r.version, r.cause, r.attempt,
              r.gate_ids, r.state AS was, x.state, coalesce(x.started_at, r.started_at) AS started_at, x.ended_at, x.reason, x.error,
              x.result, x.usage
), freed AS (
    DELETE FROM hourhand.gate_slots s USING finished f
     WHERE f.gate_ids IS NOT NULL AND s.run_id = ANY (ARRAY[f.run_id])
    RETURNING s.gate_id
), next AS MATERIALIZED (                 -- once: chosen anew for every row of the update, more would be let go
    SELECT c.run_id
      FROM (SELECT gate_id, count(*) AS places FROM freed GROUP BY gate_id ORDER BY gate_id) g
     CROSS JOIN LATERAL hourhand.next_in_line(g.gate_id, g.places::int, @priority_wait) AS c(run_id)
), let_go AS (
    UPDATE hourhand.live_runs w SET state = 0 WHERE w.run_id = ANY (ARRAY(SELECT run_id FROM next))
    RETURNING w.run_id
), rested AS (                            -- locked, so that it is seen as a change that was just made has left it
    SELECT d.*, f.ended_at + d.delay AS next_fire
      FROM finished f JOIN hourhand.completion_delays d ON d.job_id = f.job_id
     WHERE f.gate_ids IS NOT NULL AND f.cause = 1
       AND d.job_id = ANY (ARRAY(SELECT job_id FROM finished WHERE gate_ids IS NOT NULL AND cause = 1))  -- by the index
       FOR SHARE OF d
), due_again AS (                         -- jobs that fall due a while after each end get their next due time with it
    INSERT INTO hourhand.timetable (job_id, next_fire, namespace_id, lane_id, version, shard, priority, recurring, gate_ids,
                                    expires_after, exclusive)
    SELECT job_id, next_fire, namespace_id, lane_id, version, shard, priority, true, gate_ids, expires_after, exclusive
      FROM rested
     WHERE (SELECT b.runs_left FROM hourhand.run_budgets b WHERE b.job_id = rested.job_id) IS DISTINCT FROM 0
    ON CONFLICT (job_id) DO NOTHING
)
INSERT INTO hourhand.runs (run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version, state,
                           cause, attempt, reason, error, result, usage)
SELECT run_id, job_id, scheduled_for, started_at, ended_at, namespace_id, executor_id, version,
       CASE was WHEN 4 THEN 14 ELSE state END, cause, attempt,
       CASE was WHEN 4 THEN 'cancelled' ELSE reason END, error, CASE was WHEN 4 THEN NULL ELSE result END, usage
  FROM finished
ON CONFLICT DO NOTHING                    -- one run that is final already must not hold up the others
RETURNING run_id, state, (SELECT count(*) FROM let_go) AS let_go,
          (SELECT sum(cardinality(gate_ids)) FROM finished) > (SELECT count(*) FROM freed) AS places_left;

-- name: requeue_runs
-- Brings runs back to the queue after a failure, a loss or a hand-back, and keeps the attempt. Runs that are being
-- cancelled are left alone: the caller finishes those.
WITH job AS MATERIALIZED (                -- waits for a change of the job that is under way, and sees what it became
    SELECT j.*
      FROM (SELECT DISTINCT namespace_id, job_id FROM hourhand.live_runs WHERE run_id = ANY (@run_ids::uuid[])
             ORDER BY namespace_id, job_id) o
     CROSS JOIN LATERAL (
        SELECT j.namespace_id, j.job_id, j.lane_id, j.priority, j.version, j.policy
          FROM hourhand.jobs j WHERE j.namespace_id = o.namespace_id AND j.job_id = o.job_id
           FOR SHARE
     ) j
), returned AS (
    UPDATE hourhand.live_runs r
       SET state = 0, executor_id = NULL, started_at = NULL,
           ready_at = greatest(x.ready_at, r.ready_at),  -- what was claimed ahead of its time may come back before it
           failures = r.failures + x.failed, losses = r.losses + x.lost,
           -- The job may have changed meanwhile: the next attempt belongs where it belongs now. A part stays among parts.
           lane_id = CASE WHEN hourhand.is_part(r.run_id) THEN r.lane_id ELSE coalesce(j.lane_id, r.lane_id) END,
           priority = coalesce(j.priority, r.priority),
           version = coalesce(j.version, r.version),
           -- The time to wait for a first start is over, unless there was none; a deadline stays.
           expires_at = CASE
               WHEN x.failed + x.lost = 0 AND coalesce(x.started_at, r.started_at) IS NULL THEN r.expires_at
               WHEN r.expires_at IS NOT NULL THEN
               greatest(r.scheduled_for, (SELECT q.requested_at FROM hourhand.run_requests q WHERE q.run_id = r.run_id))
               + make_interval(secs => (j.policy ->> 'deadline_seconds')::float8) END
      FROM unnest(@run_ids::uuid[], @fences::bigint[], @ready::timestamptz[], @failed::smallint[], @lost::smallint[],
                  @started::timestamptz[]) AS x(run_id, fence, ready_at, failed, lost, started_at)
     CROSS JOIN LATERAL (                  -- the row as it was: RETURNING shows it as it has become
        SELECT o.namespace_id, o.job_id, o.executor_id, o.started_at
          FROM hourhand.live_runs o WHERE o.run_id = x.run_id
        OFFSET 0
     ) o
      LEFT JOIN job j ON j.namespace_id = o.namespace_id AND j.job_id = o.job_id
     WHERE r.run_id = ANY (ARRAY[x.run_id]) AND r.fence = x.fence AND r.state = ANY (@from_states::smallint[])
    RETURNING r.run_id, r.fence, r.attempt, r.gate_ids, o.executor_id, o.started_at
), freed AS (
    DELETE FROM hourhand.gate_slots s USING returned f
     WHERE f.gate_ids IS NOT NULL AND s.run_id = ANY (ARRAY[f.run_id])
    RETURNING s.gate_id
), next AS MATERIALIZED (                 -- once: chosen anew for every row of the update, more would be let go
    SELECT c.run_id
      FROM (SELECT gate_id, count(*) AS places FROM freed GROUP BY gate_id ORDER BY gate_id) g
     CROSS JOIN LATERAL hourhand.next_in_line(g.gate_id, g.places::int, @priority_wait) AS c(run_id)
), let_go AS (
    UPDATE hourhand.live_runs w SET state = 0 WHERE w.run_id = ANY (ARRAY(SELECT run_id FROM next))
    RETURNING w.run_id
), kept AS (
    INSERT INTO hourhand.attempts (run_id, attempt, state, executor_id, fence, started_at, ended_at, reason, error, usage)
    SELECT r.run_id, r.attempt, x.state, r.executor_id, r.fence, coalesce(x.started_at, r.started_at), x.ended_at,
           x.reason, x.error, x.usage
      FROM unnest(@run_ids::uuid[], @fences::bigint[], @states::smallint[], @started::timestamptz[], @ended::timestamptz[],
                  @reasons::text[], @errors::text[], @usages::jsonb[])
           AS x(run_id, fence, state, started_at, ended_at, reason, error, usage)
      JOIN returned r USING (run_id, fence)     -- an older attempt of the run may have its late word in the same batch
    ON CONFLICT DO NOTHING
)
SELECT run_id, (SELECT count(*) FROM let_go) AS let_go,
       (SELECT sum(cardinality(gate_ids)) FROM returned) > (SELECT count(*) FROM freed) AS places_left
  FROM returned;

-- name: find_strays
-- Places of runs that are not in anybody's hands: of the given ones, or of all. Whoever takes places from a run that is
-- just ending may leave some: its end does not see them yet. With all of them, promises that nobody came for go too.
WITH forgotten AS (
    DELETE FROM hourhand.gate_promises
     WHERE @run_ids::uuid[] IS NULL AND promised_at < statement_timestamp() - interval '5 minutes'
)
SELECT s.run_id, s.gate_id FROM hourhand.gate_slots s
 WHERE (@run_ids::uuid[] IS NULL OR s.run_id = ANY (@run_ids))
   AND (SELECT r.state IN (2, 3, 4) FROM hourhand.live_runs r WHERE r.run_id = s.run_id) IS NOT TRUE;

-- name: drop_strays
-- After lock_gates, in a statement of its own: who takes places holds the gates, so nobody has taken these again unseen.
DELETE FROM hourhand.gate_slots s
 USING unnest(@run_ids::uuid[], @gate_ids::int[]) AS x(run_id, gate_id)
 WHERE s.run_id = ANY (ARRAY[x.run_id]) AND s.gate_id = ANY (ARRAY[x.gate_id])
   AND (SELECT r.state IN (2, 3, 4) FROM hourhand.live_runs r WHERE r.run_id = s.run_id) IS NOT TRUE
RETURNING s.run_id;

-- name: insert_manual_run
-- Waits for a change of the job that is under way; a cancelled job gets no run, and none is made of an older version,
-- whose lane and gates it would have.
WITH job AS (
    SELECT FROM hourhand.jobs
     WHERE namespace_id = @namespace_id AND job_id = @job_id AND version = @version::int AND status <> 2
       FOR SHARE
), asked AS (
    INSERT INTO hourhand.run_requests (run_id, requested_by, requested_at, note, payload, overlap)
    SELECT @run_id::uuid, @requested_by::text, @now::timestamptz, @note::text, @payload::jsonb, @overlap::text FROM job
)
INSERT INTO hourhand.live_runs (run_id, job_id, scheduled_for, ready_at, namespace_id, lane_id, version, state, priority,
                                cause, gate_ids, waits_on, expires_at)
SELECT @run_id, @job_id, @now, @now, @namespace_id, @lane_id::int, @version::int, @state::smallint, @priority::smallint, 2,
       @gate_ids::int[], @waits_on::int, @expires_at::timestamptz
  FROM job
RETURNING run_id;

-- name: cancel_waiting
-- Ends runs that nobody holds, at once.
WITH gone AS (
    DELETE FROM hourhand.live_runs r
     WHERE r.run_id = ANY (@run_ids::uuid[]) AND r.state IN (0, 1)
       AND r.namespace_id = @namespace_id
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
SELECT run_id, job_id, scheduled_for, NULL, @now, namespace_id, NULL, version, 14, cause, attempt, @reason FROM gone
ON CONFLICT DO NOTHING
RETURNING run_id;

-- name: request_cancel
-- Asks the executor to end runs it holds; from here on they can end as cancelled only.
UPDATE hourhand.live_runs SET state = 4
 WHERE run_id = ANY (@run_ids::uuid[]) AND state IN (2, 3, 4) AND namespace_id = @namespace_id
RETURNING run_id, executor_id;

-- name: lock_runs
-- In one order, and before anybody asks for their state: none can pass from one sort to the other in between.
SELECT run_id FROM hourhand.live_runs WHERE run_id = ANY (@run_ids::uuid[]) ORDER BY run_id FOR UPDATE;

-- name: cancelling_runs
SELECT run_id, fence FROM hourhand.live_runs WHERE state = 4 AND executor_id = @executor_id;

-- name: held_by
-- Runs in the hands of executors. A walk over the whole table: asked for seldom, and an index by executor would cost
-- every claim.
SELECT r.run_id, r.fence, r.failures, r.losses, r.state, r.started_at, r.executor_id,
       coalesce(cardinality(r.gate_ids), 0) > 0 AS gated,
       coalesce((SELECT (j.policy ->> 'at_most_once')::boolean FROM hourhand.jobs j
                  WHERE j.namespace_id = r.namespace_id AND j.job_id = r.job_id), false) AS at_most_once
  FROM hourhand.live_runs r
 WHERE r.executor_id = ANY (@executor_ids::int[]) AND r.state IN (2, 3, 4)
 LIMIT @limit;

-- name: count_losses
-- How often runs were lost with their executor since a time. An executor's orderly stop is no loss.
SELECT run_id, count(*) AS losses FROM hourhand.attempts
 WHERE run_id = ANY (@run_ids::uuid[]) AND reason = 'executor_lost' AND ended_at > @since
 GROUP BY run_id;

-- name: note_late
-- Keeps what attempts said after their right to speak had passed. Those that are recorded already, because only the answer
-- to their first write was lost, are not late; they are known by the very instant of their end.
WITH said AS (
    SELECT * FROM unnest(@run_ids::uuid[], @fences::bigint[], @states::smallint[], @ended::timestamptz[])
                  AS x(run_id, fence, state, ended_at)
), recorded AS (
    SELECT x.run_id
      FROM said x
     CROSS JOIN hourhand.namespaces n         -- the key of the history begins with it
     CROSS JOIN LATERAL (
        SELECT FROM hourhand.runs r
         WHERE r.namespace_id = n.namespace_id AND r.run_id = x.run_id AND r.ended_at = x.ended_at
        OFFSET 0
     ) r
     UNION ALL
    SELECT x.run_id
      FROM said x
     CROSS JOIN LATERAL (
        SELECT FROM hourhand.attempts a WHERE a.run_id = x.run_id AND a.fence = x.fence AND a.ended_at = x.ended_at
        OFFSET 0
     ) a
), noted AS (
    UPDATE hourhand.attempts a SET late_state = x.state, late_at = x.ended_at
      FROM said x
     WHERE a.run_id = ANY (ARRAY(SELECT run_id FROM said))      -- by the index
       AND a.run_id = x.run_id AND a.fence = x.fence AND a.ended_at <> x.ended_at
)
SELECT run_id FROM said WHERE run_id NOT IN (SELECT run_id FROM recorded);
