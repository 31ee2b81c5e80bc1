-- name: write_progress
-- The newest word of each attempt. One of an older attempt changes nothing.
INSERT INTO hourhand.run_progress AS p (run_id, fence, percent, message, at)
SELECT x.run_id, x.fence, x.percent, x.message, x.at
  FROM unnest(@run_ids::uuid[], @fences::bigint[], @percents::real[], @messages::text[], @ats::timestamptz[])
       AS x(run_id, fence, percent, message, at)
ON CONFLICT (run_id) DO UPDATE
   SET fence = excluded.fence, percent = excluded.percent, message = excluded.message, at = excluded.at
 WHERE p.fence <= excluded.fence;

-- name: forget_progress
DELETE FROM hourhand.run_progress p
 USING unnest(@run_ids::uuid[], @fences::bigint[]) AS x(run_id, fence)
 WHERE p.run_id = ANY (ARRAY[x.run_id]) AND p.fence = x.fence;

-- name: sweep_progress
-- What attempts have left that could not clear up after themselves.
DELETE FROM hourhand.run_progress p
 WHERE p.at < @before
   AND (SELECT r.fence FROM hourhand.live_runs r WHERE r.run_id = p.run_id) IS DISTINCT FROM p.fence;

-- name: glance_at_runs
-- Live runs only: one that is missing has ended.
SELECT r.run_id, r.state, r.attempt, r.started_at, p.percent, p.message, p.at
  FROM hourhand.live_runs r
  LEFT JOIN LATERAL (
    SELECT p.percent, p.message, p.at FROM hourhand.run_progress p WHERE p.run_id = r.run_id AND p.fence = r.fence
    OFFSET 0
  ) p ON true
 WHERE r.run_id = ANY (@run_ids::uuid[]);
