"""What the jobs of the chaos runs do: nothing, but they tell the collector when they start, live and end.

The same file is a module of handlers for executors (`HOURHAND_KINDS_HANDLER_MODULES=witness`) and a program for command
jobs (`python -I -S witness.py SOCKET MODE …`). Each line goes out as one datagram the moment it is true, past every
buffer of ours, so that whatever dies next, the collector has heard what happened before.
"""

import json
import os
import random
import signal
import socket
import sys
import time
from typing import Any

SOCKET = "CHAOS_WITNESS"
"""The variable of executors that names the collector's socket."""


class Witness:
    """One attempt's voice. Every process of it numbers its own lines."""

    def __init__(self, path: str, run_id: str, attempt: int, fence: int, kind: str) -> None:
        self._path = path
        self._facts = {"run_id": run_id, "attempt": attempt, "fence": fence, "kind": kind}
        self._seq = 0

    def say(self, phase: str, **more: Any) -> None:
        line = {"phase": phase, **self._facts, "pid": os.getpid(), "seq": self._seq, "sent": time.monotonic(), **more}
        self._seq += 1
        _voice().sendto(json.dumps(line, separators=(",", ":")).encode(), self._path)


_sockets: dict[int, socket.socket] = {}


def _voice() -> socket.socket:
    """This process's own socket: a forked child must not share its parent's."""
    pid = os.getpid()
    if pid not in _sockets:
        _sockets[pid] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    return _sockets[pid]


# --- handlers ---------------------------------------------------------------------------------------------


def _define_handlers() -> None:
    import asyncio

    from hourhand import Context, job
    from hourhand.job_kinds.handlers import RunCancelled

    def witness_of(ctx: Context, kind: str) -> Witness:
        return Witness(os.environ[SOCKET], str(ctx.run_id), ctx.attempt, ctx.fence_token, kind)

    @job("chaos.quick")
    async def quick(ctx: Context) -> None:
        """Starts and ends. Most jobs are like that."""
        witness = witness_of(ctx, "quick")
        witness.say("start")
        witness.say("end")

    @job("chaos.long")
    async def long(ctx: Context, seconds: float = 1.0, seconds_max: float = 0.0, beat: float = 0.5) -> None:
        """Lives for a while in the executor's own loop, and says so. With `seconds_max` chance says how long."""
        witness = witness_of(ctx, "long")
        witness.say("start")
        ends = time.monotonic() + (random.uniform(seconds, seconds_max) if seconds_max else seconds)
        try:
            while (left := ends - time.monotonic()) > 0:
                await asyncio.sleep(min(beat, left))
                witness.say("beat")
        except asyncio.CancelledError:
            witness.say("term")
            raise
        witness.say("end")

    @job("chaos.failing")
    async def failing(ctx: Context, failures: int = 99) -> None:
        """Fails so many times."""
        witness = witness_of(ctx, "failing")
        witness.say("start")
        if ctx.attempt <= failures:
            witness.say("end", failed=True)
            raise ConnectionError(f"attempt {ctx.attempt} fails as asked")
        witness.say("end")

    @job("chaos.sync")
    def sync(ctx: Context, seconds: float = 0.0, beat: float = 0.5) -> None:
        """The same in a worker process, which can be killed."""
        witness = witness_of(ctx, "sync")
        witness.say("start")
        ends = time.monotonic() + seconds
        try:
            while (left := ends - time.monotonic()) > 0:
                time.sleep(min(beat, left))
                witness.say("beat")
        except RunCancelled:
            witness.say("term")
            raise
        witness.say("end")


# --- commands ---------------------------------------------------------------------------------------------


def _command(path: str, mode: str, seconds: float, beat: float) -> None:
    """`plain` ends when asked; `tree` has a child and a grandchild in a session of its own; `stubborn` ignores TERM."""
    environment = os.environ
    witness = Witness(
        path,
        environment["HOURHAND_RUN_ID"],
        int(environment["HOURHAND_ATTEMPT"]),
        int(environment["HOURHAND_FENCE_TOKEN"]),
        mode,
    )

    def hear(_number: int, _frame: object) -> None:
        witness.say("term")
        if mode != "stubborn":
            os._exit(143)

    signal.signal(signal.SIGTERM, hear)
    witness.say("start")
    if mode == "tree" and os.fork() == 0:
        if os.fork() == 0:
            os.setsid()  # out of the group: only a thorough search finds it
            _live(witness, seconds + 30, beat, "grandchild")
        _live(witness, seconds + 30, beat, "child")
    _live(witness, seconds, beat, "leader")
    witness.say("end")


def _live(witness: Witness, seconds: float, beat: float, who: str) -> None:
    if who != "leader":
        witness._seq = 0
        witness.say("beat", who=who)
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(beat, left))
        witness.say("beat", who=who)
    if who != "leader":
        os._exit(0)


if __name__ == "__main__":
    _command(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
else:
    _define_handlers()
