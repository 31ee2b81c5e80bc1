-- How far running attempts say they have come, and what others say of how attempts ended.

-- The newest word of each attempt that has said any. Not in live_runs, which must stay narrow, and not logged: after a
-- crash of the database it is empty until the attempts say more. Shown only while the fence is the run's.
CREATE UNLOGGED TABLE hourhand.run_progress (
    run_id  uuid PRIMARY KEY,
    fence   bigint NOT NULL,
    percent real,
    message text NOT NULL,
    at      timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Attempts that somebody outside may end, by a token of which only the digest is kept. A row outlives its attempt for a
-- while, so that whoever says the same twice, or says it too late, can be told so.
CREATE TABLE hourhand.run_callbacks (
    token_digest bytea PRIMARY KEY,
    run_id       uuid NOT NULL,
    fence        bigint NOT NULL,
    expires_at   timestamptz NOT NULL,
    said_at      timestamptz,
    said_digest  bytea,
    said         jsonb
);
CREATE INDEX run_callbacks_of_attempt ON hourhand.run_callbacks (run_id, fence);
CREATE INDEX run_callbacks_expiring ON hourhand.run_callbacks (expires_at);
