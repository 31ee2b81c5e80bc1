-- Runs that go to all executors, or to several: the run itself fans out into parts, each a live run of its own that one
-- executor alone may claim. Parts are known by their ids (a version of UUID that no other run has), so that lists, the
-- ledger and whoever counts runs can leave them out; their run stands for all of them.

CREATE TABLE hourhand.run_parts (
    run_id       uuid PRIMARY KEY,        -- of the part
    parent_id    uuid NOT NULL,
    namespace_id int NOT NULL,
    place        int NOT NULL CHECK (place >= 0),
    total        int NOT NULL CHECK (total > place),
    node_id      int,                     -- the executor that it is for; NULL while there is none
    open         boolean NOT NULL DEFAULT true,
    UNIQUE (parent_id, place)
);
CREATE INDEX run_parts_of_node ON hourhand.run_parts (node_id) WHERE open;
CREATE INDEX run_parts_open ON hourhand.run_parts (parent_id) WHERE open;

CREATE FUNCTION hourhand.is_part(run_id uuid) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT get_byte(uuid_send(run_id), 6) >> 4 = 8 $$;
