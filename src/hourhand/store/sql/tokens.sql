-- name: insert_token
INSERT INTO hourhand.tokens (token_id, namespace_id, name, digest, purpose, created_at, expires_at)
VALUES (@token_id, @namespace_id, @name, @digest, @purpose, now(), now() + make_interval(secs => @lifetime_seconds));

-- name: find_token
SELECT t.token_id, t.name, t.purpose, t.namespace_id, n.name AS namespace
  FROM hourhand.tokens t LEFT JOIN hourhand.namespaces n USING (namespace_id)
 WHERE t.digest = @digest AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now());

-- name: use_login_code
-- A login link works once.
UPDATE hourhand.tokens SET revoked_at = now()
 WHERE digest = @digest AND purpose = 'login' AND revoked_at IS NULL AND expires_at > now()
RETURNING token_id, name, namespace_id;

-- name: list_tokens
SELECT t.token_id, t.name, n.name AS namespace, t.created_at, t.expires_at
  FROM hourhand.tokens t LEFT JOIN hourhand.namespaces n USING (namespace_id)
 WHERE t.purpose = 'api' AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
 ORDER BY t.created_at;

-- name: revoke_token
UPDATE hourhand.tokens SET revoked_at = now() WHERE token_id = @token_id AND revoked_at IS NULL RETURNING token_id;
