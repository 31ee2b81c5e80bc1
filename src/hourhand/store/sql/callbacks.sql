-- name: open_callback
INSERT INTO hourhand.run_callbacks (token_digest, run_id, fence, expires_at, key_id)
VALUES (@token_digest, @run_id, @fence, now() + make_interval(secs => @seconds::float8), @key_id);

-- name: answer_callback
-- Once, in time, and only while the attempt has the run: a word of an older attempt changes nothing.
UPDATE hourhand.run_callbacks c
   SET said_at = now(), said_digest = @said_digest, said = @said::jsonb
 WHERE c.token_digest = @token_digest AND c.run_id = @run_id
   AND c.said_at IS NULL AND c.expires_at > now()
   AND EXISTS (SELECT FROM hourhand.live_runs r
                WHERE r.run_id = c.run_id AND r.fence = c.fence AND r.state = ANY (@states::smallint[]))
RETURNING c.fence;

-- name: tell_callback
-- Progress, for the executor to mask and to show: the newest word is kept until the last one takes its place.
UPDATE hourhand.run_callbacks c
   SET said = @said::jsonb
 WHERE c.token_digest = @token_digest AND c.run_id = @run_id AND c.said_at IS NULL;

-- name: find_callbacks
-- That of one token, or, without one, those of the newest attempts of a run.
SELECT c.token_digest, c.fence, c.key_id, c.said_digest, c.told_second, c.told_ids,
       c.expires_at > now()
       AND EXISTS (SELECT FROM hourhand.live_runs r
                    WHERE r.run_id = c.run_id AND r.fence = c.fence AND r.state = ANY (@states::smallint[])) AS current
  FROM hourhand.run_callbacks c
 WHERE c.run_id = @run_id AND (@token_digest::bytea IS NULL OR c.token_digest = @token_digest)
 ORDER BY c.fence DESC
 LIMIT @most;

-- name: mark_told
-- Ids of one second only, and few of them: what is older than the newest word is known to be old by its time.
UPDATE hourhand.run_callbacks c
   SET told_second = @second,
       told_ids = CASE WHEN c.told_second = @second THEN c.told_ids || @message_id::bytea ELSE ARRAY[@message_id::bytea] END
 WHERE c.token_digest = @token_digest
   AND (c.told_second IS NULL OR c.told_second < @second
        OR (c.told_second = @second AND cardinality(c.told_ids) < @ids_max AND NOT @message_id::bytea = ANY (c.told_ids)));

-- name: said_callbacks
SELECT c.run_id, c.fence, c.said, c.said_at IS NOT NULL AS is_last
  FROM unnest(@run_ids::uuid[], @fences::bigint[]) AS x(run_id, fence)
  JOIN hourhand.run_callbacks c ON c.run_id = x.run_id AND c.fence = x.fence
 WHERE c.said IS NOT NULL;

-- name: sweep_callbacks
DELETE FROM hourhand.run_callbacks WHERE expires_at < @before;
