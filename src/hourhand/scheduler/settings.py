"""What can be set about a scheduler."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    lease_seconds: float = 9.0
    """How long a scheduler that stopped answering keeps its shards, and a leader its lead."""
    heartbeat_seconds: float = 3.0
    """How often leases are renewed. At most a third of the lease, so that one lost renewal does no harm."""
    horizon_seconds: float = 1.7
    """How far ahead runs are created. Longer: a scheduler's death is felt later; changes touch more runs. With whole
    seconds, making the runs of one full second would fall on the instant at which those of another start."""
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
    """How long finished runs and their attempts are kept; their logs as `logs.keep_days` says."""
    keep_audit_days: int = 400
    """How long the audit tells who has done what."""
    prune_seconds: float = 3600.0
    """How often partitions are made and dropped."""


@dataclass(frozen=True, slots=True)
class KeptLogSettings:
    keep_days: int = 30
    """How long logs are kept, by the due time of their run."""
    database_days: int = 7
    """Logs older than this move to the storage of blobs, many together; where nodes on several machines have no storage
    that all of them reach (`blobs.url`), they stay in the database."""
    large_bytes: int = 4 * 1024 * 1024
    """A log of this size moves as soon as its run is final."""
    move_seconds: float = 60.0
    """How often the leader looks for logs to move or to drop."""
