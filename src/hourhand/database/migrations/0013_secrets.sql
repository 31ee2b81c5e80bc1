-- Secrets, which jobs refer to them, and the audit of what people and nodes have done. New tables only.

-- The current value of each secret, sealed: by a key of its own, which is sealed by a master key that is never here. Both
-- seals are bound to namespace, name and version, so a row put in the place of another cannot be opened.
CREATE TABLE hourhand.secrets (
    namespace_id int NOT NULL,
    name         text NOT NULL CHECK (name ~ '^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$'),
    version      int NOT NULL CHECK (version > 0),
    key_id       text NOT NULL,           -- which master key it takes
    wrapped_key  bytea NOT NULL,
    sealed       bytea NOT NULL,
    description  text NOT NULL,
    grants       jsonb,                   -- NULL: every job of the namespace may use it
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,    -- when the value was written
    updated_by   text NOT NULL,
    PRIMARY KEY (namespace_id, name)
);

-- Which jobs refer to a secret. Jobs without references have no row. No foreign key: a secret that was deleted by force
-- and made anew is the same one for the jobs that name it.
CREATE TABLE hourhand.secret_jobs (
    namespace_id int NOT NULL,
    secret       text NOT NULL,
    job_id       uuid NOT NULL,
    PRIMARY KEY (job_id, secret)
);
CREATE INDEX secret_jobs_by_secret ON hourhand.secret_jobs (namespace_id, secret, job_id);

-- Who has done what. Only ever added to; old rows go with the retention.
CREATE TABLE hourhand.audit (
    audit_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    namespace_id int,                     -- NULL: it was about the cluster
    actor        text NOT NULL,           -- the name of a token, or `executor NAME`
    action       text NOT NULL,           -- secret.use, secret.write, ...
    subject      text NOT NULL,           -- secret/NAME
    details      jsonb NOT NULL
);
CREATE INDEX audit_by_subject ON hourhand.audit (namespace_id, subject, audit_id);
