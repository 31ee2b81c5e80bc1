"""The handler of jobs that run while clocks are stepped: it says when it was called, by a clock that nobody steps."""

import os
import time

from hourhand import Context, job

_file: int | None = None


@job("clock.witness")
async def witness(ctx: Context) -> None:
    """One write each, past every buffer: job, due time, run, attempt, and nanoseconds of the monotonic clock."""
    global _file  # noqa: PLW0603 - opened once per process, by the first call
    now = time.monotonic_ns()
    if _file is None:
        _file = os.open(os.environ["CLOCK_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    line = f"{ctx.job_id} {ctx.scheduled_time.isoformat()} {ctx.run_id} {ctx.attempt} {now}\n"
    os.write(_file, line.encode())
