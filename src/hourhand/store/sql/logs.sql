-- name: append_logs
INSERT INTO hourhand.log_chunks (run_id, attempt, first_line, at, stream, lines)
VALUES (@run_id, @attempt, @first_line, @at, @stream, @lines)
ON CONFLICT DO NOTHING;

-- name: read_logs
SELECT attempt, first_line, at, stream, lines FROM hourhand.log_chunks
 WHERE run_id = @run_id AND (attempt, first_line + cardinality(lines) - 1) > (@after_attempt, @after_line)
 ORDER BY attempt, first_line
 LIMIT @limit;
