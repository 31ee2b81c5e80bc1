-- Files that attempts have left. Their content is in blobs, under a key that is made of run, fence and number. Written in
-- the transaction that records the attempt's end, under its fence: what a late attempt left is in no row.
CREATE TABLE hourhand.run_files (
    run_id  uuid NOT NULL,
    fence   bigint NOT NULL,
    number  int NOT NULL,
    attempt smallint NOT NULL,
    name    text NOT NULL,
    size    bigint NOT NULL CHECK (size >= 0),
    digest  bytea NOT NULL CHECK (length(digest) = 32),
    PRIMARY KEY (run_id, fence, number)
) PARTITION BY RANGE (run_id);
CREATE TABLE hourhand.run_files_rest PARTITION OF hourhand.run_files DEFAULT;
