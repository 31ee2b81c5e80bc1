-- name: list_audit
-- The newest first. Callers of one namespace see what is of their namespace.
SELECT a.audit_id, a.at, a.actor, a.action, a.subject, a.details
  FROM hourhand.audit a
 WHERE a.namespace_id = @namespace_id
   AND (@before::bigint IS NULL OR a.audit_id < @before)
   AND (@subject::text IS NULL OR a.subject = @subject)
   AND (@action::text IS NULL OR a.action = @action)
   AND (@actor::text IS NULL OR a.actor = @actor)
   AND (@run_id::text IS NULL OR a.details ->> 'run_id' = @run_id)
   AND (@since::timestamptz IS NULL OR a.at >= @since)
 ORDER BY a.audit_id DESC
 LIMIT @limit;

-- name: append_audit
INSERT INTO hourhand.audit (namespace_id, actor, action, subject, details)
VALUES (@namespace_id, @actor, @action, @subject, @details::jsonb);
