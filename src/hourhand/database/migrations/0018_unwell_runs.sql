-- Finished runs that did not succeed: asked for most, and few. Who looks for them need not walk over all the others. Runs
-- that succeeded are not in it, so what ends well costs nothing more.
CREATE INDEX runs_unwell ON hourhand.runs (namespace_id, run_id) WHERE state <> 10;
