"""What was asked: the jobs of the workload, and how the cluster was configured."""

from typing import Literal

import msgspec
from tests.chaos.line import Line

ScheduleKind = Literal["now", "at", "every", "cron"]


class RetrySpec(Line, frozen=True, kw_only=True):
    """What the job asked for. With `delays` the curve is not used."""

    delays_seconds: tuple[float, ...] = ()
    base_seconds: float = 15.0
    factor: float = 2.0
    max_seconds: float = 3600.0
    jitter: float = 0.2


class JobSpec(Line, frozen=True, kw_only=True):
    """One version of a job as the workload asked for it; an update adds a line with the next version.

    When it was active follows from the client log; the spec says only what was asked. Jobs whose submission was info
    and whose id nobody learned need no line.
    """

    job_id: str
    version: int = 1
    schedule: ScheduleKind = "now"
    at: float | None = None
    """With `at`: the instant."""
    every_seconds: float | None = None
    anchor: float | None = None
    """With `every`: `start_at`, the first due time; the workload always gives one."""
    cron: str | None = None
    """With `cron`: 5 or 6 fields in UTC."""
    end_at: float | None = None
    catchup: Literal["last", "all", "none"] = "last"
    catchup_window_seconds: float = 3600.0
    catchup_max_runs: int = 100
    overlap: Literal["skip", "queue_one", "queue_all", "cancel_running", "allow"] | None = None
    """None: the default, `allow` for one-off jobs and `skip` for recurring ones."""
    gates: dict[str, int] = msgspec.field(default_factory=dict)
    """Limits every run of the job must pass: gate (as in `GateEvent.gate`) -> capacity."""
    max_retries: int = 3
    retry: RetrySpec | None = None
    """None: spacing is not judged (the job asks for its own delays)."""
    retryable: bool = True
    """Its failures may be tried again; false when handlers raise `NoRetry` or the kind refuses."""
    timeout_seconds: float | None = None
    deadline_seconds: float | None = None
    """From the due time."""
    queue_timeout_seconds: float | None = None
    at_most_once: bool = False
    on_disconnect: Literal["continue", "kill"] = "continue"
    completes_itself: bool = False
    """Its handler commits the end of the run in its own transaction, before its effect says `end`."""
    witnessed: bool = True
    """Its effect speaks to the collector."""
    expected_unfinished: bool = False
    """Its runs may be open at the final read: nobody offers its handler, its queue stays paused."""

    @property
    def recurring(self) -> bool:
        return self.schedule in {"every", "cron"}

    @property
    def overlap_policy(self) -> str:
        return self.overlap or ("skip" if self.recurring else "allow")

    @property
    def self_fenced(self) -> bool:
        """Its own executor kills it when the lease cannot be renewed."""
        return bool(self.gates) or self.at_most_once or self.on_disconnect == "kill"


class Settings(Line, frozen=True, kw_only=True):
    """How the cluster was configured, and what was asked of it."""

    started_at: float
    """The workload began."""
    read_at: float
    """The final read of the tables, after healing and settling."""
    seed: int = 0
    title: str = ""
    database_clock_true: bool = True
    lease_seconds: float = 15.0
    self_fence_seconds: float = 10.0
    self_fence_kill_seconds: float = 2.0
    sweep_seconds: float = 1.0
    shard_lease_seconds: float = 9.0
    poll_seconds: float = 0.5
    claim_ahead_seconds: float = 0.4
    """Where many are due at one instant; 0.05 s otherwise."""
    grace_seconds: float = 10.0
    """Between TERM and KILL."""
    catchup_grace_seconds: float = 15.0
    """Due times at most this old all run, whatever the catch-up policy."""
    cancel_bound_seconds: float = 5.0
    """From the acknowledgement of a cancel to the first signal, at the very latest."""
    pickup_seconds: float = 2.0
    recovery_seconds: float = 20.0
    settle_seconds: float = 120.0
    losses_max: int = 3
    slack_seconds: float = 0.0
    """What figures may take longer than promised."""
    rss_bytes_max: int | None = None
    fds_max: int | None = None
    problem_codes: tuple[str, ...] = ()
    """Last parts of the documented problem types; empty: only the form is judged."""
    injections_min: dict[str, int] = msgspec.field(default_factory=dict)
    """Fault kind -> how often it must have been injected for a verdict."""
    invariants_demanded: tuple[int, ...] = ()
    """Invariants that this run must have exercised for a verdict."""
    figures_demanded: bool = False
    """Whether every figure that has a bound must have been measured for a verdict."""
