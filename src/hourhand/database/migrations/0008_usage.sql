-- What attempts have taken of their executor: processor time, memory, input and output. NULL for kinds that start no
-- program. The last attempt's stands with its run, that of earlier ones with them.

ALTER TABLE hourhand.runs ADD COLUMN usage jsonb;
ALTER TABLE hourhand.attempts ADD COLUMN usage jsonb;
