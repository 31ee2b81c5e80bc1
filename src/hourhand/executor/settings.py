"""What can be set about an executor."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    queues: tuple[str, ...] = ("default",)
    """The queues this executor takes runs from. `*` means every queue."""
    labels: tuple[str, ...] = ()
    """What this executor has: `gpu`, `zone=eu`. Jobs may ask for an executor with certain labels."""
    resources: tuple[str, ...] = ()
    """What this executor has for jobs that declare what they take: `gpu=2`, `license=5`, `cpu=4`, `memory=8GB`. Cores
    are else those of the machine, memory 80 % of it: set both where several executors share one."""
    resource_wait_seconds: float = 30.0
    """A run that has waited so long for room is served first, and room is kept for it: small runs cannot starve it."""
    resource_hold_seconds: float = 600.0
    """How long room is kept for a run that still does not fit; then the others have their turn for as long."""
    slots_inline: int = 8000
    """Attempts that may run at once inside the executor: async Python handlers and HTTP calls."""
    slots_process: int = 32
    """Attempts that may run at once as processes: commands and sync Python handlers."""
    claim_ahead_seconds: float = 0.05
    """How early a run may be claimed; a change that comes later than that is too late for it."""
    claim_ahead_crowded_seconds: float = 0.4
    """The same after a claim that brought `claim_max` runs, or where so many are due at the next instant: claiming
    thousands takes longer than starting them. And at most, for asynchronous work, where claims have lately taken long,
    as on a disk that stalls: then twice the longest of the last minutes."""
    claim_max: int = 1000
    """Runs claimed per statement; larger batches are cheaper but hold more runs when the executor dies."""
    priority_wait_seconds: float = 30.0
    """A run that has waited so long because of its priority gets its turn: a quarter of the places is kept for such."""
    poll_seconds: float = 0.5
    """How long new work, or that work is cancelled, can go unseen when the wake-up is lost."""
    heartbeat_seconds: float = 4.0
    """How often the lease is renewed."""
    lease_seconds: float = 15.0
    """How long after its last heartbeat an executor is held for dead, and its runs are given to others."""
    self_fence_seconds: float = 10.0
    """How long after its last confirmed heartbeat an executor itself ends runs that must not go on without a lease:
    those that are gated, `at_most_once` or `on_disconnect: kill`. All others go on."""
    self_fence_kill_seconds: float = 2.0
    """How long ending them may take. Both together must be shorter than the lease."""
    stop_seconds: float = 30.0
    """How long running attempts may go on when the executor stops; then they are interrupted and given back."""
    log_lines_max: int = 20_000
    """Lines kept per attempt; beyond that the middle is left out and marked."""
    log_bytes_max: int = 8 * 1024 * 1024
    """Bytes kept per attempt, of its lines together; beyond that the middle is left out and marked."""
    journal_folder: Path | None = None
    """Where outcomes are kept while the database is away; the next executor with the same folder delivers what is left
    there. None: `journal` in the home."""
    journal_bytes_max: int = 64 * 1024 * 1024
    """How large the journal may become; outcomes beyond it are lost if the executor dies while the database is away."""
    result_bytes_max: int = 16 * 1024 * 1024
    """How large the JSON of a result may be. Above 256 KiB it is kept in a blob; larger than this it fails the run."""
    output_files_max: int = 1000
    """Files kept per attempt of those in its output folder; the log of the run names what is left out."""
    output_bytes_max: int = 10 * 1024 * 1024 * 1024
    """How large all files of an attempt together may be."""
    transaction_connections: int = 4
    """Connections for `ctx.transaction()`; more handlers than that wait for one."""
