-- name: add_run_files
-- Inside the transaction that ends their attempts. The same end may be written twice.
INSERT INTO hourhand.run_files (run_id, fence, number, attempt, name, size, digest)
SELECT * FROM unnest(@run_ids::uuid[], @fences::bigint[], @numbers::int[], @attempts::smallint[], @names::text[],
                     @sizes::bigint[], @digests::bytea[])
ON CONFLICT DO NOTHING;

-- name: run_files
-- What one attempt of a run has left.
SELECT number, name, size, encode(digest, 'hex') AS digest, attempt, fence
  FROM hourhand.run_files
 WHERE run_id = @run_id AND attempt = @attempt
 ORDER BY name
 LIMIT @limit;

-- name: find_run_file
SELECT number, name, size, encode(digest, 'hex') AS digest, attempt, fence
  FROM hourhand.run_files
 WHERE run_id = @run_id AND attempt = @attempt AND name = @name;

-- name: unneeded_blobs
-- Of blobs of runs, by their position in the list, those that no row names and no row ever will: an outcome is recorded
-- only while its run is live with the same fence. All in one statement, because the end of an attempt takes the run from
-- the live ones and names its blobs in one transaction.
SELECT x.position
  FROM unnest(@run_ids::uuid[], @fences::bigint[], @numbers::int[]) WITH ORDINALITY AS x(run_id, fence, number, position)
 WHERE NOT EXISTS (SELECT FROM hourhand.live_runs l WHERE l.run_id = x.run_id AND l.fence = x.fence)
   AND CASE WHEN x.number IS NULL
            THEN NOT EXISTS (SELECT FROM hourhand.namespaces n          -- the key of the history begins with it
                               JOIN hourhand.runs r ON r.namespace_id = n.namespace_id AND r.run_id = x.run_id
                              WHERE (r.result -> '$blob' ->> 'fence')::bigint = x.fence)
            ELSE NOT EXISTS (SELECT FROM hourhand.run_files f
                              WHERE f.run_id = x.run_id AND f.fence = x.fence AND f.number = x.number)
       END;

-- name: days_with_rows
-- The days of which history is still there: those of the partitions that were not dropped.
SELECT DISTINCT right(c.relname, 8) AS day
  FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
  JOIN pg_class p ON p.oid = i.inhparent
  JOIN pg_namespace s ON s.oid = p.relnamespace
 WHERE s.nspname = @schema AND p.relname IN ('runs', 'run_files') AND c.relname ~ '_[0-9]{8}$';
