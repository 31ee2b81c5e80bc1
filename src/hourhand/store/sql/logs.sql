-- name: append_logs
INSERT INTO hourhand.log_chunks (run_id, attempt, first_line, at, stream, lines, left_out, is_last)
VALUES (@run_id, @attempt, @first_line, @at, @stream, @lines, @left_out, @is_last)
ON CONFLICT DO NOTHING;

-- name: rows_before
-- Of new rows those that do not follow the row that they say they follow: a database that has lost that one, or has others of it,
-- would make a hole that nobody has declared.
SELECT x.run_id, x.attempt, x.first_line
  FROM unnest(@run_ids::uuid[], @attempts::int[], @first_lines::int[], @after::int[]) AS x(run_id, attempt, first_line, after)
 WHERE x.after IS DISTINCT FROM (SELECT c.first_line FROM hourhand.log_chunks c
                                  WHERE c.run_id = x.run_id AND c.attempt = x.attempt AND c.first_line < x.first_line
                                  ORDER BY c.first_line DESC LIMIT 1)
 LIMIT 1;

-- name: expected_line
-- For a row that was refused: the number that must come next, and whether the run is still under way. The logs of runs that are over
-- may have left the database.
SELECT coalesce((SELECT c.first_line + greatest(cardinality(c.lines), c.left_out) FROM hourhand.log_chunks c
                  WHERE c.run_id = @run_id AND c.attempt = @attempt AND c.first_line < @first_line
                  ORDER BY c.first_line DESC LIMIT 1), 1) AS expected,
       EXISTS (SELECT FROM hourhand.live_runs r WHERE r.run_id = @run_id) AS is_live, now() AS now;

-- name: note_large_logs
INSERT INTO hourhand.large_logs (run_id) SELECT unnest(@run_ids::uuid[]) ON CONFLICT DO NOTHING;

-- name: read_logs
-- Rows from the one on that holds the line behind the given place, or would: found by the index, since how many lines a
-- row has is only known once it is unpacked.
SELECT attempt, first_line, at, stream, lines, left_out FROM hourhand.log_chunks
 WHERE run_id = @run_id
   AND (attempt, first_line) >= (
        SELECT before.attempt, before.first_line FROM (
            (SELECT c.attempt, c.first_line FROM hourhand.log_chunks c
              WHERE c.run_id = @run_id AND (c.attempt, c.first_line) <= (@after_attempt::int, @after_line::int + 1)
              ORDER BY c.attempt DESC, c.first_line DESC LIMIT 1)
            UNION ALL SELECT 0, 0) before
         ORDER BY 1 DESC, 2 DESC LIMIT 1)
 ORDER BY attempt, first_line
 LIMIT @limit;

-- name: search_logs
-- The same rows; those that do not hold the text come without their lines, of which only the number is told.
SELECT attempt, first_line, left_out, cardinality(lines) AS line_count,
       CASE WHEN found THEN at END AS at, CASE WHEN found THEN stream END AS stream, CASE WHEN found THEN lines END AS lines
  FROM (SELECT c.*, CASE WHEN @fold::boolean
                         THEN position(lower(@text::text) IN lower(array_to_string(lines, E'\n'))) > 0
                         ELSE position(@text::text IN array_to_string(lines, E'\n')) > 0 END AS found
          FROM hourhand.log_chunks c
         WHERE run_id = @run_id
           AND (attempt, first_line) >= (
                SELECT before.attempt, before.first_line FROM (
                    (SELECT b.attempt, b.first_line FROM hourhand.log_chunks b
                      WHERE b.run_id = @run_id AND (b.attempt, b.first_line) <= (@after_attempt::int, @after_line::int + 1)
                      ORDER BY b.attempt DESC, b.first_line DESC LIMIT 1)
                    UNION ALL SELECT 0, 0) before
                 ORDER BY 1 DESC, 2 DESC LIMIT 1)
         ORDER BY attempt, first_line
         LIMIT @limit) rows
 ORDER BY attempt, first_line;

-- name: log_ends
-- The last row of each attempt: where its log ends, and whether that is known to be all of it.
SELECT DISTINCT ON (attempt) attempt, first_line, left_out, cardinality(lines) AS line_count, is_last,
       at[cardinality(at)] AS at
  FROM hourhand.log_chunks
 WHERE run_id = @run_id
 ORDER BY attempt, first_line DESC;

-- name: log_tips
-- The last row of each log, found by the end of its index, and where its run stands while it is live.
SELECT x.run_id, tip.attempt, tip.first_line, r.state, r.attempt AS live_attempt
  FROM unnest(@run_ids::uuid[]) AS x(run_id)
  LEFT JOIN LATERAL (SELECT c.attempt, c.first_line FROM hourhand.log_chunks c
                      WHERE c.run_id = x.run_id
                      ORDER BY c.attempt DESC, c.first_line DESC LIMIT 1) tip ON true
  LEFT JOIN hourhand.live_runs r ON r.run_id = x.run_id;
