"""The job of an ordinary day: it takes its time, logs as programs do, and now and then it fails.

What its log takes up on disk depends on what stands in it. Random letters cannot be stored in less room and no program
prints them; one line again and again takes none at all. These lines have what logs have: times, levels, modules,
sentences that recur, with numbers, paths and ids in them that do not.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from hourhand.job_kinds.handlers import Context, job
from hourhand.job_kinds.samples import noop

HANDLER: Final = "bench.day"

_TABLES: Final = ("orders", "invoices", "customers", "payments", "shipments", "returns", "sessions", "prices")
_MODULES: Final = ("extract", "transform", "load", "http.client", "db.pool", "report.render", "mail", "storage.s3")
_LEVELS: Final = ("INFO ", "INFO ", "INFO ", "INFO ", "DEBUG", "DEBUG", "WARN ")
_SENTENCES: Final[Sequence[str]] = (
    "read {count} rows from {table} in {ms} ms",
    "batch {small} of {small}: {count} rows written, {small} skipped, {small} updated",
    "GET https://api.example.com/v2/{table}/{count}?page={small} answered 200 in {ms} ms, {count} bytes",
    "POST https://api.example.com/v2/{table} answered 429, trying again in {small} s (request {id})",
    "uploaded s3://reports/{table}/part-{count}.parquet, {count} bytes, etag {id}{id}",
    "connection {small} returned to the pool after {ms} ms, {small} in use",
    "row {count} of {table} has no customer; kept as {id}",
    "checkpoint {id} at offset {count}, lag {ms} ms",
    "rendered page {small} of report {id} with {count} cells",
    "memory {count} kB, {small} threads, {small} open files",
    "sent the report to user-{count}@example.com as message {id}",
    "cache: {count} hits, {count} misses, {small} evicted",
)


@job(HANDLER)
async def day(ctx: Context, seconds: float = 0.0, log_bytes: int = 0, fails: bool = False, note: str = "") -> None:
    await noop(ctx)  # its witness
    await asyncio.sleep(seconds)
    for line in log_lines(random.Random(ctx.run_id.int), log_bytes, datetime.now(UTC)):  # noqa: S311 - no secret
        ctx.log(line)
    if fails:
        raise RuntimeError("this job was told to fail")


def log_lines(chance: random.Random, size: int, began: datetime) -> Iterator[str]:
    """Lines of so many bytes together, their ends counted, within a few minutes."""
    at = began
    while size > 0:
        at += timedelta(milliseconds=chance.expovariate(1 / 4000))
        told = _sentence(chance)
        stamp = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
        line = f"{stamp} {chance.choice(_LEVELS)} [{chance.choice(_MODULES)}] {told}"[: max(size - 1, 1)]
        size -= len(line) + 1
        yield line


def note_of(number: int, size: int) -> str:
    """What a user writes into a job, of so many characters: sentences of the same sort, without times."""
    chance = random.Random(number)  # noqa: S311 - the same text every time
    text = ""
    while len(text) < size:
        text += f"{_sentence(chance)}; "
    return text[:size]


def _sentence(chance: random.Random) -> str:
    told = chance.choice(_SENTENCES)
    while "{" in told:
        for word, value in (
            ("{count}", str(int(chance.lognormvariate(7, 2)))),
            ("{small}", str(chance.randrange(1, 100))),
            ("{ms}", f"{chance.lognormvariate(3, 1):.1f}"),
            ("{table}", chance.choice(_TABLES)),
            ("{id}", f"{chance.getrandbits(32):08x}"),
        ):
            told = told.replace(word, value, 1)
    return told
