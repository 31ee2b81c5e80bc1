"""A process that we started, followed to its end together with everything it started itself.

Started with `subprocess.Popen` and followed through a pidfd, not with asyncio's own subprocess calls: uvloop
refuses `user=` and `group=`, and asyncio would reap the process the moment it ends. Unreaped, its number
stays reserved, so that its process group can be killed without any risk of meeting a stranger's.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from hourhand.job_kinds.leftovers import Leftovers

_LOOK_SECONDS_MAX = 0.5
_Value = TypeVar("_Value")


class Child:
    """Leads a session of its own. It must be brought to its end by `end` or `clear_up`, once."""

    def __init__(self, process: "subprocess.Popen[bytes]", marks: Collection[bytes]) -> None:
        self.pid = process.pid
        self._process = process
        self._leftovers = Leftovers(process.pid, marks)
        self._exited = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._handle = os.pidfd_open(process.pid)
        self._loop.add_reader(self._handle, self._note_exit)

    @property
    def has_exited(self) -> bool:
        return self._exited.is_set()

    async def exited(self) -> None:
        """Returns when the process itself has ended; what it started may go on."""
        await self._exited.wait()

    async def end(self, grace_seconds: float, hurry: asyncio.Event) -> int:
        """Asks the whole tree to end, kills what is left after the grace, and returns the exit code.

        `hurry` cuts the grace short.
        """
        self._signal_group(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await first_of(self._gone(), hurry.wait())
        except TimeoutError:
            pass
        self._signal_group(signal.SIGKILL)
        await self._exited.wait()
        return await self.clear_up()

    async def clear_up(self) -> int:
        """Kills what the ended process left behind, reaps it and returns its exit code. Returns when all is gone."""
        assert self._exited.is_set()
        self._signal_group(signal.SIGKILL)
        pause = 0.002
        while await asyncio.to_thread(self._leftovers.kill):
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LOOK_SECONDS_MAX)
        return self._process.wait()

    async def _gone(self) -> None:
        """Returns when nothing of the tree is alive. Children may need their grace longer than the first process."""
        await asyncio.to_thread(self._leftovers.ask_outside_group)
        await self._exited.wait()
        pause = 0.01
        while await asyncio.to_thread(self._leftovers.look):
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LOOK_SECONDS_MAX)

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # the leader is unreaped: the group's number is ours
            os.killpg(self.pid, number)

    def _note_exit(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self._exited.set()


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Returns when one of them has ended; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def to_the_end(work: Callable[[asyncio.Event], Coroutine[Any, Any, _Value]]) -> _Value:
    """Does work that must not be left half done, however often the caller is cancelled meanwhile.

    A cancellation sets the event that the work was given, so that it may hurry, and is raised when the work
    is done.
    """
    hurry = asyncio.Event()
    task = asyncio.ensure_future(work(hurry))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            hurry.set()
    value = task.result()
    if cancelled is not None:
        raise cancelled
    return value
