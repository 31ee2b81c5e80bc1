-- Callbacks that are signed. `key_id`: the master key of the executor, from which the key of an attempt follows; never the key.
-- Of words of progress that came signed: the newest second in which one was signed, and which words of that second were heard. An
-- older word, or one of those, was said before, or is a copy, and changes nothing.
ALTER TABLE hourhand.run_callbacks
    ADD COLUMN key_id      text,
    ADD COLUMN told_second bigint,
    ADD COLUMN told_ids    bytea[];
