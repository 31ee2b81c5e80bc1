"""Hourhand: a distributed job scheduler on PostgreSQL.

Programs that bring their own Python jobs need `job` and `Context`; programs that talk to a running
Hourhand need `hourhand.client`. Everything else is reached through the `hourhand` command.
"""

from hourhand.job_kinds.handlers import Context, NoRetry, RetryAfter, Snooze, job
from hourhand.model.errors import RunTaken

__all__ = ["Context", "NoRetry", "RetryAfter", "RunTaken", "Snooze", "job"]
