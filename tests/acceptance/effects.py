"""Handlers that leave a line for everything they do, and what those lines tell."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from harness import job_key

from hourhand.client import Client

GRACE = 2.0
"""How long an attempt may take to end when it is asked to."""

HANDLERS = '''
"""Handlers that leave a line when they begin and when they end, in the file named by HOURHAND_BENCH_EFFECTS."""
import asyncio
import os
import signal
import time
from hourhand import Context, job

FILE = os.open(os.environ["HOURHAND_BENCH_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def note(ctx: Context, what: str) -> None:
    os.write(FILE, f"{ctx.run_id} {ctx.attempt} {what} {time.time()} {os.getpid()}\\n".encode())


@job("tick")
async def tick(ctx: Context) -> None:
    note(ctx, "start")


@job("lasts")
async def lasts(ctx: Context, seconds: float) -> None:
    note(ctx, "start")
    await asyncio.sleep(seconds)
    note(ctx, "end")


@job("blocks")
async def blocks(ctx: Context, seconds: float) -> None:
    note(ctx, "start")
    time.sleep(seconds)  # in the executor's own loop, where it does not belong
    note(ctx, "end")


@job("works")
def works(ctx: Context, seconds: float) -> None:
    note(ctx, "start")
    time.sleep(seconds)
    note(ctx, "end")


@job("kills")
async def kills(ctx: Context) -> None:
    note(ctx, "start")
    os.kill(os.getpid(), signal.SIGKILL)
'''


@dataclass(frozen=True, slots=True)
class Effect:
    """One line that a handler itself has written."""

    run_id: UUID
    attempt: int
    what: str
    at: float
    pid: int

    @property
    def job(self) -> int:
        return job_key(self.run_id)

    @property
    def due(self) -> int:
        """What due time it stands for, in milliseconds: the leading bits of a run's id."""
        return self.run_id.int >> 80


class Effects:
    def __init__(self, folder: Path) -> None:
        (folder / "complaint_handlers.py").write_text(HANDLERS)
        self._path = folder / "effects"
        self._path.touch()
        self.settings = {
            "PYTHONPATH": str(folder),
            "HOURHAND_BENCH_EFFECTS": str(self._path),
            "HOURHAND_KINDS_HANDLER_MODULES": "hourhand.job_kinds.samples,complaint_handlers",
            "HOURHAND_KINDS_GRACE_SECONDS": str(GRACE),
            "HOURHAND_EXECUTOR_STOP_SECONDS": "1",
        }

    def all(self) -> list[Effect]:
        lines = self._path.read_bytes().split(b"\n")[:-1]
        parts = [line.decode().split() for line in lines]
        return [Effect(UUID(run), int(attempt), what, float(at), int(pid)) for run, attempt, what, at, pid in parts]

    def of(self, *job_ids: UUID | str) -> list[Effect]:
        keys = {job_key(job_id) for job_id in job_ids}
        return [effect for effect in self.all() if effect.job in keys]

    def starts_of(self, *job_ids: UUID | str) -> list[Effect]:
        return [effect for effect in self.of(*job_ids) if effect.what == "start"]

    def dues_of(self, job_id: UUID | str) -> list[int]:
        return sorted(effect.due for effect in self.starts_of(job_id))


def every_second(client: Client, count: int) -> list[UUID]:
    """Jobs of which each due time shows. They may overlap: by default those that come late together are skipped."""
    job = {"name": "tick", "payload": {"handler": "tick"}, "schedule": {"every": "1s"}, "overlap": "allow"}
    return client.create_jobs([job] * count)


def assert_no_gap(effects: Effects, job_ids: list[UUID]) -> None:
    for job_id in job_ids:
        dues = effects.dues_of(job_id)
        assert dues == list(range(dues[0], dues[-1] + 1, 1000)), f"each second once: {dues}"


@contextlib.contextmanager
def paused(*pids: int) -> Iterator[None]:
    def tell(number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # some processes of PostgreSQL end by themselves
                os.kill(pid, number)

    tell(signal.SIGSTOP)
    try:
        yield
    finally:
        tell(signal.SIGCONT)
