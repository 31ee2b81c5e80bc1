"""What can be set about an executor."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    queues: tuple[str, ...] = ("default",)
    """The queues this executor takes runs from. `*` means every queue."""
    slots_inline: int = 2000
    """Attempts that may run at once inside the executor: async Python handlers and HTTP calls."""
    slots_process: int = 32
    """Attempts that may run at once as processes: commands and sync Python handlers."""
    claim_ahead_seconds: float = 0.05
    """How early a run may be claimed; a change that comes later than that is too late for it."""
    claim_max: int = 1000
    """Runs claimed per statement; larger batches are cheaper but hold more runs when the executor dies."""
    poll_seconds: float = 0.5
    """How long new work can go unseen when its wake-up is lost."""
    heartbeat_seconds: float = 4.0
    """How often the lease is renewed."""
    lease_seconds: float = 15.0
    """How long after its last heartbeat an executor is held for dead, and its runs are given to others."""
    stop_seconds: float = 30.0
    """How long running attempts may go on when the executor stops; then they are interrupted and given back."""
    log_lines_max: int = 20_000
    """Lines kept per attempt; beyond that the middle is left out and marked."""
