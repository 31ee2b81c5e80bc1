-- When a job was cancelled: from then on nothing of it is due. It was kept in the column of a pause, which nobody who
-- reads that column expects.

ALTER TABLE hourhand.jobs ADD COLUMN cancelled_at timestamptz;

UPDATE hourhand.jobs SET cancelled_at = paused_at, paused_at = NULL WHERE status = 2 AND paused_at IS NOT NULL;
