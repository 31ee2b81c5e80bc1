-- name: packs_of_run
-- The packs that can hold a run: one of its own, and the last one of many that begins at it or before.
(SELECT pack_id, blob_key, size_bytes, segment_runs, segment_attempts, segment_lines, segment_starts
   FROM hourhand.log_packs
  WHERE first_run = last_run AND first_run = @run_id AND packed_at IS NOT NULL
  ORDER BY packed_at)
UNION ALL
(SELECT m.pack_id, m.blob_key, m.size_bytes, m.segment_runs, m.segment_attempts, m.segment_lines, m.segment_starts
   FROM (SELECT * FROM hourhand.log_packs
          WHERE first_run <> last_run AND first_run <= @run_id AND packed_at IS NOT NULL
          ORDER BY first_run DESC LIMIT 1) m
  WHERE m.last_run >= @run_id);

-- name: large_logs
-- Runs with large logs that are final by now.
SELECT l.run_id FROM hourhand.large_logs l
 WHERE NOT EXISTS (SELECT FROM hourhand.live_runs r WHERE r.run_id = l.run_id)
 ORDER BY l.noted_at LIMIT @limit;

-- name: rows_to_move
-- Rows of final runs in the order of their runs, behind a place.
SELECT c.run_id, c.attempt, c.first_line, c.at, c.stream, c.lines, c.left_out, c.is_last
  FROM hourhand.log_chunks c
 WHERE (c.run_id, c.attempt, c.first_line) > (@run_id::uuid, @attempt::int, @first_line::int)
   AND c.run_id >= @run_id::uuid  -- said again, so that partitions before it are left alone
   AND c.run_id < @before_id::uuid
   AND NOT EXISTS (SELECT FROM hourhand.live_runs r WHERE r.run_id = c.run_id)
 ORDER BY c.run_id, c.attempt, c.first_line
 LIMIT @limit;

-- name: last_packed
SELECT last_run FROM hourhand.log_packs WHERE first_run <> last_run ORDER BY first_run DESC LIMIT 1;

-- name: begin_pack
-- Said before the blob is written: if the writer dies, the next leader knows what to clear away.
WITH leader AS MATERIALIZED (
    SELECT FROM hourhand.leases WHERE name = 'leader' AND node_id = @node_id AND epoch = @epoch
       AND lease_until > clock_timestamp() FOR SHARE
)
INSERT INTO hourhand.log_packs (pack_id, first_run, last_run, blob_key)
SELECT @pack_id, @first_run, @last_run, @blob_key FROM leader
RETURNING pack_id;

-- name: finish_pack
-- The rows leave the database in the same statement in which the pack takes their place.
WITH leader AS MATERIALIZED (
    SELECT FROM hourhand.leases WHERE name = 'leader' AND node_id = @node_id AND epoch = @epoch
       AND lease_until > clock_timestamp() FOR SHARE
), packed AS (
    UPDATE hourhand.log_packs
       SET size_bytes = @size_bytes, line_count = @line_count, packed_at = now(), segment_runs = @segment_runs,
           segment_attempts = @segment_attempts, segment_lines = @segment_lines, segment_starts = @segment_starts
      FROM leader
     WHERE pack_id = @pack_id AND packed_at IS NULL
    RETURNING pack_id
), moved AS (
    DELETE FROM hourhand.log_chunks c
     USING unnest(@run_ids::uuid[], @attempts::int[], @first_lines::int[]) AS x(run_id, attempt, first_line), packed
     WHERE c.run_id = x.run_id AND c.attempt = x.attempt AND c.first_line = x.first_line
), noted AS (
    DELETE FROM hourhand.large_logs l USING packed WHERE l.run_id = ANY (@run_ids::uuid[])
)
SELECT pack_id FROM packed;

-- name: forget_large_logs
DELETE FROM hourhand.large_logs WHERE run_id = ANY (@run_ids::uuid[]);

-- name: packs_to_drop
-- Those whose retention is over, and those that a dead writer left unfinished.
SELECT pack_id, blob_key FROM hourhand.log_packs
 WHERE (packed_at IS NOT NULL AND last_run < @before_id::uuid) OR (packed_at IS NULL AND pack_id <> @but::uuid)
 ORDER BY begun_at LIMIT @limit;

-- name: drop_packs
WITH leader AS MATERIALIZED (
    SELECT FROM hourhand.leases WHERE name = 'leader' AND node_id = @node_id AND epoch = @epoch
       AND lease_until > clock_timestamp() FOR SHARE
)
DELETE FROM hourhand.log_packs p USING leader WHERE p.pack_id = ANY (@pack_ids::uuid[]) RETURNING p.pack_id;
