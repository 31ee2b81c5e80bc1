-- name: open_callback
INSERT INTO hourhand.run_callbacks (token_digest, run_id, fence, expires_at)
VALUES (@token_digest, @run_id, @fence, now() + make_interval(secs => @seconds::float8));

-- name: answer_callback
-- Once, in time, and only while the attempt has the run: a word of an older attempt changes nothing.
UPDATE hourhand.run_callbacks c
   SET said_at = now(), said_digest = @said_digest, said = @said::jsonb
 WHERE c.token_digest = @token_digest AND c.run_id = @run_id
   AND c.said_at IS NULL AND c.expires_at > now()
   AND EXISTS (SELECT FROM hourhand.live_runs r
                WHERE r.run_id = c.run_id AND r.fence = c.fence AND r.state = ANY (@states::smallint[]))
RETURNING c.fence;

-- name: find_callback
SELECT c.fence, c.said_digest,
       c.expires_at > now()
       AND EXISTS (SELECT FROM hourhand.live_runs r
                    WHERE r.run_id = c.run_id AND r.fence = c.fence AND r.state = ANY (@states::smallint[])) AS current
  FROM hourhand.run_callbacks c
 WHERE c.token_digest = @token_digest AND c.run_id = @run_id;

-- name: said_callbacks
SELECT c.run_id, c.fence, c.said
  FROM unnest(@run_ids::uuid[], @fences::bigint[]) AS x(run_id, fence)
  JOIN hourhand.run_callbacks c ON c.run_id = x.run_id AND c.fence = x.fence
 WHERE c.said_at IS NOT NULL;

-- name: sweep_callbacks
DELETE FROM hourhand.run_callbacks WHERE expires_at < @before;
