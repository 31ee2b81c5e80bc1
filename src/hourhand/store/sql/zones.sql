-- name: zone_rules
SELECT zone, digest FROM hourhand.zone_rules;

-- name: put_zone_rules
WITH leader AS MATERIALIZED (
    SELECT FROM hourhand.leases WHERE name = 'leader' AND node_id = @node_id AND epoch = @epoch
       AND lease_until > clock_timestamp() FOR SHARE
), written AS (
    INSERT INTO hourhand.zone_rules AS z (zone, digest, changed_at)
    SELECT x.zone, x.digest, @now FROM unnest(@zones::text[], @digests::text[]) AS x(zone, digest), leader
    ON CONFLICT (zone) DO UPDATE SET digest = excluded.digest, changed_at = excluded.changed_at
     WHERE z.digest <> excluded.digest
)
SELECT count(*) AS leads FROM leader;

-- name: cursors_in_zones
-- One page of all cursors, so that each page takes as long as any other; of those in the zones, what is needed to plan
-- them anew. Those that a pause holds count where they really stand, and none goes back behind the end of a pause of its
-- own. Ids of scheduled runs sort by their due time.
WITH page AS MATERIALIZED (
    SELECT t.job_id, t.namespace_id, coalesce(r.next_fire, t.next_fire) AS next_fire, t.version, t.recurring
      FROM hourhand.timetable t
      LEFT JOIN LATERAL (SELECT r.next_fire FROM hourhand.resting r WHERE r.job_id = t.job_id OFFSET 0) r ON true
     WHERE t.job_id > @last_id::uuid      -- and nothing beside it: a plan that is kept would walk from the first page on
     ORDER BY t.job_id
     LIMIT @limit
), zoned AS MATERIALIZED (
    SELECT p.job_id, j.timing, CASE WHEN j.status = 1 THEN j.pause_until - interval '1 microsecond' END AS paused
      FROM page p
     CROSS JOIN LATERAL (
        SELECT j.timing, j.status, j.pause_until FROM hourhand.jobs j
         WHERE j.namespace_id = p.namespace_id AND j.job_id = p.job_id
        OFFSET 0                          -- row by row: joined otherwise, each page would read all jobs
     ) j
     WHERE p.recurring AND j.timing ->> 'zone' = ANY (@zones::text[])
)
SELECT p.job_id, p.next_fire, p.version, z.timing,
       CASE WHEN z.job_id IS NOT NULL THEN greatest(
           z.paused,
           (SELECT max(l.scheduled_for) FROM hourhand.live_runs l WHERE l.job_id = z.job_id AND l.cause = 1),
           (SELECT r.scheduled_for FROM hourhand.runs r
             WHERE r.job_id = z.job_id AND r.run_id >= @since_id::uuid AND r.cause <> 2
             ORDER BY r.run_id DESC LIMIT 1),
           (SELECT g.last_due FROM hourhand.ledger_ranges g WHERE g.job_id = z.job_id
             ORDER BY g.first_due DESC LIMIT 1)) END AS dealt_with
  FROM page p LEFT JOIN zoned z USING (job_id)
 ORDER BY p.job_id;

-- name: move_cursors
-- In order of places, as planners move them. Of those that a pause holds it is changed where they come back to.
WITH leader AS MATERIALIZED (
    SELECT FROM hourhand.leases WHERE name = 'leader' AND node_id = @node_id AND epoch = @epoch
       AND lease_until > clock_timestamp() FOR SHARE
), held AS MATERIALIZED (
    SELECT t.job_id, x.next_fire, r.job_id IS NOT NULL AS rests
      FROM unnest(@job_ids::uuid[], @expected::timestamptz[], @versions::int[], @next_fires::timestamptz[])
           AS x(job_id, expected, version, next_fire)
      JOIN hourhand.timetable t ON t.job_id = x.job_id AND t.version = x.version
      LEFT JOIN hourhand.resting r ON r.job_id = x.job_id
     CROSS JOIN leader
     WHERE coalesce(r.next_fire, t.next_fire) = x.expected
     ORDER BY t.ctid
       FOR UPDATE OF t
), moved AS (
    UPDATE hourhand.timetable t SET next_fire = held.next_fire FROM held WHERE t.job_id = held.job_id AND NOT held.rests
), put_off AS (
    UPDATE hourhand.resting r SET next_fire = held.next_fire FROM held WHERE r.job_id = held.job_id AND held.rests
)
SELECT job_id FROM held;
