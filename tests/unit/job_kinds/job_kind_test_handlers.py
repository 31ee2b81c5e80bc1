"""Handlers that worker processes import in the tests."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hourhand import Context, job
from hourhand.job_kinds.handlers import NoRetry, Snooze


@job("t.add")
def add(a: int, b: int = 1) -> int:
    return a + b


@job("t.noop")
def noop() -> None:
    pass


@job("t.talk")
def talk(ctx: Context, word: str) -> None:
    print(word)
    print("unfinished", word, end="")
    print("to stderr", word, file=sys.stderr)
    ctx.log(f"logged {word}")
    os.write(1, f" raw {word}\n".encode())
    subprocess.run(["echo", "child", word], check=True)


@job("t.pid")
def pid() -> int:
    return os.getpid()


@job("t.facts")
def facts(ctx: Context) -> dict[str, object]:
    return {"run": ctx.idempotency_key, "fence": ctx.fence_token, "at": ctx.scheduled_time, "payload": ctx.payload}


@job("t.raise")
def raise_it() -> None:
    raise ValueError("no such customer")


@job("t.no-retry")
def no_retry() -> None:
    raise NoRetry("the account is closed")


@job("t.transaction")
def transaction(ctx: Context) -> None:
    ctx.transaction()


@job("t.snooze")
def snooze(seconds: float) -> None:
    raise Snooze(seconds, "not yet")


@job("t.exit")
def exit_it() -> None:
    sys.exit(3)


@job("t.interrupt")
def interrupt() -> None:
    raise KeyboardInterrupt


@job("t.os-exit")
def os_exit() -> None:
    print("last words", flush=True)
    os._exit(7)


@job("t.segfault")
def segfault() -> None:
    ctypes.string_at(0)


@job("t.big")
def big(size: int) -> str:
    return "x" * size


@job("t.leaves-file")
def leaves_file(ctx: Context, text: str, dies: bool) -> None:
    (ctx.output_folder / "report.txt").write_text(text)
    if dies:
        os._exit(3)


@job("t.length")
def length(text: str) -> int:
    return len(text)


@job("t.hang")
def hang(marker: str) -> None:
    """Does not end when asked to, and neither do its children."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    same_group = subprocess.Popen(["sleep", "1000"])
    own_session = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path(marker).write_text(f"{os.getpid()} {same_group.pid} {own_session.pid}")
    while True:
        time.sleep(1000)


@job("t.with-finally")
def with_finally(marker: str) -> None:
    Path(marker).write_text("begun")
    try:
        time.sleep(1000)
    finally:
        Path(marker).write_text("cleaned up")


@job("t.watching")
def watching(ctx: Context) -> None:
    marker = Path(ctx.payload["marker"])
    while not ctx.cancelled:
        marker.write_text("begun")
        time.sleep(0.005)
    marker.write_text("ended by itself")


@job("t.wait-for")
def wait_for(path: str) -> int:
    while not os.path.exists(path):
        time.sleep(0.005)
    return os.getpid()


@job("t.progress")
def progress(ctx: Context, steps: int) -> str:
    for step in range(steps):
        ctx.progress(100 * step / steps, f"step {step}")
    time.sleep(0.3)  # so that what was held back is sent
    ctx.progress(None, "nearly")
    return ctx.secret("word")
