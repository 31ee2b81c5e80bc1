-- Lines have the numbers of their printing; a mark stands for those that were left out, and the last row of an attempt
-- says that nothing follows. NULL: written before that was said.
ALTER TABLE hourhand.log_chunks
    ADD COLUMN left_out int NOT NULL DEFAULT 0,
    ADD COLUMN is_last boolean;

-- Logs that have moved out of the database: a pack holds the logs of one large run, or of many runs that follow each
-- other. A row without `packed_at` is under way; if whoever wrote it has died, the blob is rubbish.
CREATE TABLE hourhand.log_packs (
    pack_id          uuid PRIMARY KEY,
    first_run        uuid NOT NULL,
    last_run         uuid NOT NULL,
    blob_key         text NOT NULL,
    size_bytes       bigint,
    line_count       bigint,
    begun_at         timestamptz NOT NULL DEFAULT now(),
    packed_at        timestamptz,
    -- Each segment can be read by itself; it begins with this line, at this byte, and ends where the next one begins.
    segment_runs     uuid[],
    segment_attempts smallint[],
    segment_lines    int[],
    segment_starts   bigint[],
    CHECK (first_run <= last_run)
);
-- Packs of many runs never overlap, so that the last one that begins before a run is the only one that can hold it.
CREATE INDEX log_packs_of_many ON hourhand.log_packs (first_run) WHERE first_run <> last_run;
CREATE INDEX log_packs_of_one ON hourhand.log_packs (first_run) WHERE first_run = last_run;
CREATE INDEX log_packs_under_way ON hourhand.log_packs (begun_at) WHERE packed_at IS NULL;

-- Runs whose log is so large that it moves as soon as they are final.
CREATE TABLE hourhand.large_logs (
    run_id   uuid PRIMARY KEY,
    noted_at timestamptz NOT NULL DEFAULT now()
);
