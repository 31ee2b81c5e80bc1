"""Handlers for `hourhand demo` and for the benchmarks: small, and each shows one thing."""

import asyncio
import os
import time

from hourhand.job_kinds.handlers import Context, job

_witness: int | None = None


@job("demo.hello")
async def hello(ctx: Context, name: str = "world") -> dict[str, str]:
    """An asynchronous handler: it logs, and what it returns is the run's result."""
    ctx.log(f"saying hello to {name}")
    await asyncio.sleep(0.05)
    return {"greeting": f"Hello, {name}!", "scheduled_time": ctx.scheduled_time.isoformat()}


@job("demo.flaky")
async def flaky(ctx: Context, fails: int = 1) -> dict[str, int]:
    """Fails on its first attempts, so that retries can be watched."""
    if ctx.attempt <= fails:
        raise ConnectionError(f"attempt {ctx.attempt} of {ctx.job_name} could not reach the moon")
    return {"attempts": ctx.attempt}


@job("demo.crunch")
def crunch(ctx: Context, seconds: float = 1.0) -> dict[str, int]:
    """A synchronous handler: it keeps a processor busy, prints what it found and says how far it is."""
    began = time.monotonic()
    limit, primes, announced = 2, 0, 0
    while (passed := time.monotonic() - began) < seconds:
        if all(limit % divisor for divisor in range(2, int(limit**0.5) + 1)):
            primes += 1
        limit += 1
        if passed * 10 >= (announced + 1) * seconds:
            announced += 1
            print(f"{announced * 10} %: {primes} primes below {limit}")
            ctx.progress(announced * 10, f"{primes} primes")
    return {"primes": primes, "below": limit}


@job("bench.noop")
async def noop(ctx: Context) -> None:
    """Does nothing but leave a witness of each call in the file named by HOURHAND_BENCH_WITNESS, if any."""
    witness = _witness if _witness is not None else _open_witness()
    if witness >= 0:
        # One write each, past every buffer of ours: when the handler returns, the line survives our death.
        os.write(witness, b"%s %d %d\n" % (str(ctx.run_id).encode(), ctx.attempt, time.time_ns() // 1000))


@job("bench.sync")
def sync() -> None:
    """Does nothing, in a worker process."""


@job("bench.wait")
async def wait(ctx: Context, seconds: float = 1.0) -> None:
    """Waits. Leaves a witness when it begins, and one with the word `end` when it ends."""
    _testify(ctx)
    await asyncio.sleep(seconds)
    _testify(ctx, b" end")


def _testify(ctx: Context, more: bytes = b"") -> None:
    witness = _witness if _witness is not None else _open_witness()
    if witness >= 0:
        os.write(witness, b"%s %d %d%s\n" % (str(ctx.run_id).encode(), ctx.attempt, time.time_ns() // 1000, more))


def _open_witness() -> int:
    global _witness  # noqa: PLW0603 - opened once per process, by the first call
    path = os.environ.get("HOURHAND_BENCH_WITNESS")
    _witness = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644) if path else -1
    return _witness
