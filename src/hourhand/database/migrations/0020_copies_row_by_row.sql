-- What these defaults say is nothing new: no losses, nobody has changed it, it does not expire. That PostgreSQL cannot know
-- so before it has asked (`random()` is below 2) makes a COPY write each row as it comes, instead of up to a thousand at once.
-- That is quicker: see docs/internals/decisions/0034-copies-row-by-row.md.
ALTER TABLE hourhand.jobs ALTER COLUMN updated_by SET DEFAULT CASE WHEN random() < 2 THEN NULL END;
ALTER TABLE hourhand.live_runs ALTER COLUMN losses SET DEFAULT CASE WHEN random() < 2 THEN 0 END;
ALTER TABLE hourhand.timetable ALTER COLUMN expires_after SET DEFAULT CASE WHEN random() < 2 THEN NULL::interval END;
