"""Runs programs of the machine for the kinds that need one, and leaves nothing of them behind.

Each attempt has a session of its own, a private folder that is removed afterwards, and an environment built
from nothing. What a program prints is text for the log; it can never change what is recorded. At the end
of an attempt, whichever way it ended, everything the program started is ended too.
"""

import asyncio
import errno
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import BinaryIO, Final

from hourhand.job_kinds.child import Child, signal_name, to_the_end
from hourhand.job_kinds.lines import LineReader, many_of
from hourhand.job_kinds.work_folders import Account, WorkFolders, account_for, remove
from hourhand.model.outcome import Failed, Outcome, Succeeded, clipped
from hourhand.model.retry import exit_tags, signal_tags
from hourhand.model.states import Reason
from hourhand.ports.job_kind import Task

OUTPUT_FOLDER: Final = "output"
"""Inside the work folder; files that a program leaves there are kept. It is named in HOURHAND_OUTPUT_DIR."""
_DRAIN_SECONDS_MAX: Final = 2.0
"""How long the pipes may stay open once every process that we know is dead."""
_TAIL_LINES: Final = 10
_TAIL_CHARS: Final = 300
_PASSING_ERRORS: Final = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.ENOSPC}
)
"""Reasons not to start a program that are the machine's and may pass, unlike a program that does not exist."""


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    grace_seconds: float = 10.0
    """How long a cancelled program may take to end by itself before it is killed."""
    run_as: str | None = "nobody"
    """The user that programs run as when the executor is root; None keeps root, with all that follows."""
    work_root: str | None = None
    """Where attempts get their private folders; None makes a new folder in the system's place for such files."""
    path: str | None = None
    """The PATH that programs are found in and started with; None passes the executor's own on."""


@dataclass(frozen=True, slots=True)
class Program:
    """What one attempt starts. Everything in it is passed on literally: nothing is ever handed to a shell."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    """A folder inside the attempt's own, made for it."""
    stdin: str | None = None
    ok_exit_codes: Collection[int] = (0,)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Written into the attempt's folder before the start, readable and executable by its user alone."""
    prepare: Callable[[Path], None] | None = None
    """Puts further things into the attempt's folder before the start, in a thread. An OSError is why nothing starts."""


class ProgramRunner:
    """One for all kinds of an executor. Used between `open` and `close`, which each of them calls."""

    def __init__(self, settings: ProgramSettings | None = None) -> None:
        self._settings = settings or ProgramSettings()
        self.path = self._settings.path or os.environ.get("PATH") or os.defpath
        self._account: Account | None = None
        self._folders: WorkFolders | None = None
        self._users = 0

    async def open(self) -> None:
        if self._folders is None:
            self._account = account_for(self._settings.run_as)
            self._folders = WorkFolders(self._settings.work_root, self._account)
            self._folders.open()
        self._users += 1

    async def close(self) -> None:
        """The last one who calls it closes."""
        self._users -= 1
        if self._users <= 0 and self._folders is not None:
            folders, self._folders = self._folders, None
            await asyncio.to_thread(folders.close)

    async def run(self, task: Task, program: Program) -> Outcome:
        """Runs a program to its end. Cancelled, it ends everything of it (asks, waits, kills) before it raises."""
        assert self._folders is not None, "run is called between open and close"
        attempt = _Attempt(task, program, self._folders, self._account, self.path, self._settings.grace_seconds)
        try:
            failure = await to_the_end(attempt.start)
            if failure is not None:
                return failure
            await attempt.exited()
        except asyncio.CancelledError:
            await to_the_end(attempt.end)
            raise
        return await to_the_end(attempt.finish)


class _Attempt:
    """One program, from its folder to its exit code."""

    def __init__(
        self,
        task: Task,
        program: Program,
        folders: WorkFolders,
        account: Account | None,
        path: str,
        grace_seconds: float,
    ) -> None:
        self._task = task
        self._program = program
        self._folders = folders
        self._account = account
        self._path = path
        self._grace_seconds = grace_seconds
        self._folder: Path | None = None
        self._child: Child | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[LineReader] = []
        self._error_tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._log = many_of(task.log)

    async def start(self, _: asyncio.Event) -> Failed | None:
        """Starts the program in a thread: with a change of user, Python must fork, which takes milliseconds."""
        try:
            process = await asyncio.to_thread(self._start_process)
        except (OSError, ValueError) as error:
            await self._remove_folder()
            return _not_started(self._program.argv[0], self._path, error)
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._child = Child(process, _marks(self._task))
        self._readers = [
            LineReader(process.stdout.fileno(), "stdout", self._log),
            LineReader(process.stderr.fileno(), "stderr", self._keep_and_log),
        ]
        return None

    async def exited(self) -> None:
        assert self._child is not None
        await self._child.exited()

    async def end(self, hurry: asyncio.Event) -> None:
        """Ends the program and everything it started. Nothing to do when it was never started."""
        if self._child is not None:
            await self._child.end(self._grace_seconds, hurry)
            await self._release()

    async def finish(self, _: asyncio.Event) -> Outcome:
        """The program has ended by itself: clears up after it and says what came out."""
        assert self._child is not None
        code = await self._child.clear_up()
        if self._task.keep_outputs is not None and self._folder is not None:
            await self._task.keep_outputs(self._folder / OUTPUT_FOLDER)
        await self._release()
        return self._outcome(code)

    def _start_process(self) -> "subprocess.Popen[bytes]":
        program, account = self._program, self._account
        name = f"{self._task.run_id}-{self._task.fence}"
        self._folder, start_in = self._folders.make(name, program.cwd)
        self._folders.add(self._folder, program.files)
        if program.prepare is not None:
            program.prepare(self._folder)
        if self._task.keep_outputs is not None:
            self._folders.make_inner(self._folder, OUTPUT_FOLDER)
        with _standard_input(program.stdin) as standard_input:
            return subprocess.Popen(
                program.argv,
                bufsize=0,
                stdin=standard_input,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=start_in,
                env=self._environment(self._folder),
                start_new_session=True,
                user=account.user_id if account else None,
                group=account.group_id if account else None,
                extra_groups=[] if account else None,
                umask=0o077,
            )

    def _environment(self, folder: Path) -> dict[str, str]:
        task = self._task
        return {
            "PATH": self._path,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "LANG": "C.UTF-8",
            **self._program.env,
            **({} if task.keep_outputs is None else {"HOURHAND_OUTPUT_DIR": str(folder / OUTPUT_FOLDER)}),
            "HOURHAND_RUN_ID": str(task.run_id),
            "HOURHAND_JOB_ID": str(task.job_id),
            "HOURHAND_JOB_NAME": task.job_name,
            "HOURHAND_NAMESPACE": task.namespace,
            "HOURHAND_ATTEMPT": str(task.attempt),
            "HOURHAND_FENCE_TOKEN": str(task.fence),
            "HOURHAND_SCHEDULED_TIME": task.scheduled_for.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        }

    def _keep_and_log(self, stream: str, lines: list[str]) -> "asyncio.Future[None] | None":
        self._error_tail.extend(line[:_TAIL_CHARS] for line in lines[-_TAIL_LINES:])
        return self._log(stream, lines)

    async def _release(self) -> None:
        assert self._process is not None
        for reader in self._readers:
            await reader.drain(_DRAIN_SECONDS_MAX)
            reader.close()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        await self._remove_folder()

    async def _remove_folder(self) -> None:
        if self._folder is not None:
            await asyncio.to_thread(remove, self._folder)

    def _outcome(self, code: int) -> Outcome:
        if code in self._program.ok_exit_codes:
            return Succeeded({"exit_code": code})
        tail = "".join(f"\n{line}" for line in self._error_tail)
        if code < 0:
            name = signal_name(-code)
            return Failed(Reason.SIGNAL, clipped(f"killed by {name}{tail}"), tags=signal_tags(name))
        error = clipped(f"exited with code {code}{tail}")
        return Failed(Reason.EXIT_CODE, error, result={"exit_code": code}, tags=exit_tags(code))


def _standard_input(text: str | None) -> BinaryIO:
    """A file in memory: unlike a pipe it needs nobody to feed it, and a program may ignore it."""
    if text is None:
        return open(os.devnull, "rb")
    file = open(os.memfd_create("stdin"), "w+b")  # noqa: SIM115 - the caller closes it
    file.write(text.encode("utf-8", "replace"))
    file.seek(0)
    return file


def _marks(task: Task) -> tuple[bytes, bytes]:
    """What only this attempt's processes carry in their environment."""
    return f"HOURHAND_RUN_ID={task.run_id}".encode(), f"HOURHAND_FENCE_TOKEN={task.fence}".encode()


def _not_started(program: str, path: str, error: OSError | ValueError) -> Failed:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EACCES and "/" not in program and shutil.which(program, path=path) is None:
        number = errno.ENOENT  # a folder in PATH that the user may not enter hides that the program is nowhere
    match number:
        case errno.ENOENT:
            message = f"{program!r} was not found on this executor"
        case errno.EACCES | errno.EPERM:
            message = f"{program!r} may not be executed"
        case errno.ENOEXEC:
            message = f"{program!r} is not a program: a script needs a first line such as #!/bin/sh"
        case _:
            message = f"{program!r} could not be started: {error}"
    return Failed(Reason.NOT_STARTED, clipped(message), retryable=number in _PASSING_ERRORS)
