"""Asks the executable of a plugin who it is, within limits of time and size. Blocks: it is for the start of a node."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from hourhand.job_kinds.plugin_protocol import Description, HelloFault, hello_request, read_hello
from hourhand.job_kinds.work_folders import Account

HELLO_SECONDS_MAX: Final = 10.0
HELLO_BYTES_MAX: Final = 256 * 1024


def ask_hello(command: Sequence[str], path: str, account: Account | None) -> Description:
    """Raises HelloFault with what to tell the operator."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": path, "LANG": "C.UTF-8"},
            start_new_session=True,
            user=account.user_id if account else None,
            group=account.group_id if account else None,
            extra_groups=[] if account else None,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise HelloFault(f"{command[0]!r} could not be started: {why.lower()}") from None
    try:
        return read_hello(_answer(process))
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        process.wait()


def _answer(process: "subprocess.Popen[bytes]") -> str:
    """Its first line."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(hello_request().encode())
        process.stdin.close()
    end = time.monotonic() + HELLO_SECONDS_MAX
    read = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\n" not in read:
            if not selector.select(max(0.0, end - time.monotonic())):
                raise HelloFault(f"it did not answer hello within {HELLO_SECONDS_MAX:g} s")
            piece = os.read(process.stdout.fileno(), 65536)
            read += piece
            if not piece:
                break
            if len(read) > HELLO_BYTES_MAX:
                raise HelloFault(f"its answer to hello is longer than {HELLO_BYTES_MAX} bytes")
    if not read.strip():
        raise HelloFault("it ended without an answer to hello")
    return read.decode("utf-8", "replace")
