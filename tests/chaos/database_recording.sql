-- The database's own log of a chaos run: every change of the tables that matter, in the transaction that made it. A
-- transaction that did not commit leaves nothing here either. The product knows nothing of this schema.
CREATE SCHEMA chaos;

CREATE TABLE chaos.events (
    seq        bigint GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    node       text,          -- which node, and which start of it, was writing; NULL: somebody else
    table_name text NOT NULL,
    op         text NOT NULL,
    old        jsonb,
    new        jsonb
);

-- What is worth keeping of a row. Wide and unchanging columns are kept once, with the insert.
CREATE FUNCTION chaos.told(table_name text, op text, given jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_strip_nulls(CASE
        WHEN table_name = 'live_runs' AND op <> 'INSERT'
            THEN given - ARRAY['job_id', 'scheduled_for', 'namespace_id', 'lane_id', 'priority', 'cause', 'gate_ids']
        WHEN table_name IN ('runs', 'attempts') THEN given - ARRAY['result', 'error', 'namespace_id']
        WHEN table_name = 'nodes' THEN given - 'facts'
        WHEN table_name = 'jobs' THEN given - ARRAY['payload', 'labels', 'description', 'owner', 'created_by', 'updated_by']
        ELSE given
    END)
$$;

CREATE FUNCTION chaos.note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_row jsonb;
    new_row jsonb;
    name text := TG_ARGV[0];
BEGIN
    IF TG_OP <> 'INSERT' THEN
        old_row := chaos.told(name, TG_OP, to_jsonb(OLD));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        new_row := chaos.told(name, TG_OP, to_jsonb(NEW));
    END IF;
    IF name = 'live_runs' AND TG_OP = 'INSERT' THEN
        -- Under whom the shard of its job was when the row was written: a stranger must not write into it.
        SELECT new_row || jsonb_build_object('shard', s.shard, 'shard_owner', s.owner_id, 'shard_epoch', s.epoch)
          INTO new_row FROM hourhand.shards s
         WHERE s.shard = ('x' || right(new_row ->> 'job_id', 4))::bit(16)::int & 1023;
    END IF;
    INSERT INTO chaos.events (node, table_name, op, old, new)
    VALUES (nullif(current_setting('chaos.node', true), ''), name, lower(TG_OP), old_row, new_row);
    RETURN NULL;
END
$$;
