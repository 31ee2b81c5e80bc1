-- name: still_held
-- Whether the attempt still has its run. A transaction that is just recording its end has locked the row and is waited for.
SELECT run_id FROM hourhand.live_runs WHERE run_id = @run_id AND fence = @fence FOR UPDATE;

-- name: is_recorded
-- Whether exactly this end is in history.
SELECT r.run_id
  FROM hourhand.namespaces n                  -- the key of the history begins with it
  JOIN hourhand.runs r ON r.namespace_id = n.namespace_id
 WHERE r.run_id = @run_id AND r.state = @state AND r.ended_at = @ended_at;
