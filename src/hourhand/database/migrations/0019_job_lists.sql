-- Jobs that people look for, found without a walk over all that ran once and are over. Such jobs, which come by the thousand a
-- second, are in none of these indexes, so they cost nothing more.
CREATE INDEX jobs_set_aside ON hourhand.jobs (namespace_id, status, job_id) WHERE status <> 0;   -- paused and cancelled ones
CREATE INDEX jobs_recurring ON hourhand.jobs (namespace_id, job_id) WHERE due_at IS NULL;
CREATE INDEX jobs_recurring_by_name ON hourhand.jobs (namespace_id, name, job_id) WHERE due_at IS NULL;
