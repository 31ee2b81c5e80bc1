-- Uploaded code. What there is and what it is for is here; the bytes are a blob whose key is made of the id. Under one name
-- there may be several contents: the one that was uploaded last is what the name alone means. Ids go with time.
CREATE TABLE hourhand.artifacts (
    artifact_id    uuid PRIMARY KEY,
    namespace_id   int NOT NULL REFERENCES hourhand.namespaces,
    name           text NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
    digest         text NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),      -- SHA-256 of the bytes
    size           bigint NOT NULL CHECK (size >= 0),
    form           text NOT NULL CHECK (form IN ('file', 'tar', 'tar.gz', 'zip')),
    entries        int,                                                  -- of an archive
    unpacked_bytes bigint,
    uploaded_at    timestamptz NOT NULL,
    uploaded_by    text NOT NULL,
    UNIQUE (namespace_id, name, digest)
);
CREATE INDEX artifacts_by_digest ON hourhand.artifacts (namespace_id, digest);
CREATE INDEX artifacts_of_namespace ON hourhand.artifacts (namespace_id, artifact_id);

-- Which jobs run uploaded code: asked for before any of it is deleted. Only such jobs are in it.
CREATE INDEX jobs_of_artifact ON hourhand.jobs (namespace_id, (payload ->> 'artifact'))
 WHERE kind = 'script' AND payload ? 'artifact';
