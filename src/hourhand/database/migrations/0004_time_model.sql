-- Calendars, budgets of runs, and schedules that count from the end of a run. New tables only: what is there is neither
-- rewritten nor locked for longer than it takes to look it up.

CREATE TABLE hourhand.calendars (
    namespace_id int NOT NULL,
    name         text NOT NULL CHECK (name ~ '^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$'),
    rule         jsonb NOT NULL,
    version      int NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    updated_by   text NOT NULL,
    PRIMARY KEY (namespace_id, name)
);

-- Which jobs use a calendar: they are planned anew when it changes, and it cannot be deleted while there are any.
CREATE TABLE hourhand.calendar_jobs (
    namespace_id int NOT NULL,
    calendar     text NOT NULL,
    job_id       uuid NOT NULL,
    PRIMARY KEY (namespace_id, calendar, job_id),
    FOREIGN KEY (namespace_id, calendar) REFERENCES hourhand.calendars (namespace_id, name)
);
CREATE INDEX calendar_jobs_by_job ON hourhand.calendar_jobs (job_id);

-- How many runs the schedule of a job may still make; only jobs with max_runs have a row.
CREATE TABLE hourhand.run_budgets (
    job_id    uuid PRIMARY KEY,
    runs_left int NOT NULL CHECK (runs_left >= 0)
) WITH (fillfactor = 50);

-- Jobs that fall due a while after each run has ended, and what the cursor that the end of a run makes will carry. The runs
-- of such jobs have gates, if none then an empty list of them: by that the statements that end runs know them, and all
-- other runs cost them nothing.
CREATE TABLE hourhand.completion_delays (
    job_id        uuid PRIMARY KEY,
    delay         interval NOT NULL CHECK (delay > interval '0'),
    namespace_id  int NOT NULL,
    lane_id       int NOT NULL,
    version       int NOT NULL,
    shard         smallint NOT NULL,
    priority      smallint NOT NULL,
    gate_ids      int[] NOT NULL,
    expires_after interval,
    exclusive     boolean NOT NULL
) WITH (fillfactor = 70);
