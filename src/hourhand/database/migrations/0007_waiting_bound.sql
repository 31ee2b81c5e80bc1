-- Nothing waits for ever because of its priority, also before a gate with a single place, however many more urgent runs
-- arrive: by turns that are counted, and by places that are kept for those whose turn it is.

-- How many places became free while somebody waited for them longer than the bound.
ALTER TABLE hourhand.gates ADD COLUMN turn bigint NOT NULL DEFAULT 0;

-- Places that were promised to runs because it was their turn. For a moment only: should nobody be there to start such a
-- run, the place is anybody's, and for a minute no place is kept for others of its lane. A promise that was kept is
-- deleted. Written by whoever holds the run's row locked.
CREATE TABLE hourhand.gate_promises (
    run_id      uuid PRIMARY KEY,
    gate_id     int NOT NULL,
    lane_id     int NOT NULL,
    promised_at timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX gate_promises_of_gate ON hourhand.gate_promises (gate_id, promised_at);

-- Who goes on when places of a gate become free: the highest priority first. But every fourth place goes to those who
-- have waited longer than a bound, whatever their priority, the oldest first, and is promised to them: else a more urgent
-- run that has just arrived takes it. Runs of paused queues could not use a place. Rows that somebody else is just choosing
-- are left to him; those that are chosen are locked, so the caller need not ask again whether they wait (and must not: it
-- may see them as they were). Gates are locked here only when somebody has waited too long: whoever asks for several asks
-- in the order of their numbers.
CREATE FUNCTION hourhand.next_in_line(of_gate int, places int, wait_max interval) RETURNS SETOF uuid
LANGUAGE sql VOLATILE STRICT AS $$
    WITH late AS MATERIALIZED (
        SELECT c.run_id, c.ready_at
          FROM generate_series(0, 9) AS p(priority)
         CROSS JOIN LATERAL (
            SELECT x.run_id, x.ready_at FROM hourhand.live_runs x
             WHERE x.state = 1 AND x.waits_on = of_gate AND x.priority = p.priority
               AND x.ready_at < now() - wait_max
               AND x.lane_id <> ALL (ARRAY(SELECT lane_id FROM hourhand.lanes WHERE held))
               AND x.lane_id <> ALL (ARRAY(SELECT lane_id FROM hourhand.gate_promises
                                            WHERE gate_id = of_gate AND promised_at > now() - interval '1 minute'))
             ORDER BY x.ready_at
             LIMIT places
         ) c
    ), turn AS MATERIALIZED (
        UPDATE hourhand.gates g SET turn = g.turn + places
         WHERE g.gate_id = of_gate AND EXISTS (SELECT FROM late)
        RETURNING floor(g.turn / 4.0) - floor((g.turn - places) / 4.0) AS old
    ), old AS MATERIALIZED (
        SELECT o.run_id, o.lane_id
          FROM hourhand.live_runs o
         WHERE o.run_id = ANY (ARRAY(SELECT run_id FROM late ORDER BY ready_at LIMIT (SELECT old FROM turn)))
           AND o.state = 1 AND o.waits_on = of_gate
           FOR UPDATE SKIP LOCKED
    ), usual AS MATERIALIZED (
        SELECT x.run_id
          FROM hourhand.live_runs x
         WHERE x.state = 1 AND x.waits_on = of_gate
           AND x.lane_id <> ALL (ARRAY(SELECT lane_id FROM hourhand.lanes WHERE held))
           AND x.run_id <> ALL (ARRAY(SELECT run_id FROM old))
         ORDER BY x.priority DESC, x.ready_at
         LIMIT (SELECT places - count(*) FROM old)
           FOR UPDATE SKIP LOCKED
    ), promised AS (
        INSERT INTO hourhand.gate_promises (run_id, gate_id, lane_id, promised_at)
        SELECT run_id, of_gate, lane_id, clock_timestamp() FROM old
        ON CONFLICT (run_id) DO UPDATE SET gate_id = excluded.gate_id, promised_at = excluded.promised_at
    )
    SELECT run_id FROM old UNION ALL SELECT run_id FROM usual
$$;
