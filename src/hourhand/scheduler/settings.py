"""What can be set about a scheduler."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    lease_seconds: float = 9.0
    """How long a scheduler that stopped answering keeps its shards, and a leader its lead."""
    heartbeat_seconds: float = 3.0
    """How often leases are renewed. At most a third of the lease, so that one lost renewal does no harm."""
    horizon_seconds: float = 2.0
    """How far ahead runs are created. Longer: a scheduler's death is felt later; changes touch more runs."""
    tick_seconds: float = 1.0
    """How often a scheduler looks for what there is to do. Well below the horizon, so that no run is created late."""
    tick_seconds_min: float = 0.05
    """How long it sleeps at least when much is due: longer ticks make larger, cheaper batches."""
    batch_max: int = 2000
    """Cursors moved per statement."""
    sweep_seconds: float = 1.0
    """How often the leader looks again at a node that seems dead while nobody may be held for dead. Otherwise it looks
    at the moment when the first lease can be over."""
    keep_runs_days: int = 30
    """How long finished runs, their attempts and logs are kept."""
    prune_seconds: float = 3600.0
    """How often partitions are made and dropped."""
