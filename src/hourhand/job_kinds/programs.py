"""Runs programs of the machine for the kinds that need one, and leaves nothing of them behind.

Each attempt has a session of its own, a private folder that is removed afterwards, and an environment built
from nothing; contained, it also has limits, and sees neither other attempts nor what the executor keeps. What a
program prints is text for the log; it can never change what is recorded. At the end of an attempt, whichever way it
ended, everything the program started is ended too.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Final, TypeVar

from hourhand.job_kinds.cgroups import GroupPlan, remove_groups
from hourhand.job_kinds.child import first_of, to_the_end
from hourhand.job_kinds.disk_watch import Taken, Watched, size_of_files
from hourhand.job_kinds.launcher import Ended, Launch, Launched, LauncherDied
from hourhand.job_kinds.leftovers import Leftovers
from hourhand.job_kinds.lines import LINE_BYTES_MAX, LineReader, many_of
from hourhand.job_kinds.program_host import ProgramHost, ProgramSettings
from hourhand.job_kinds.program_outcomes import (
    not_prepared,
    not_started,
    outcome_of,
    too_large_to_keep,
    too_much_disk,
    usage_of,
)
from hourhand.job_kinds.progress_files import PROGRESS_FILE, PROGRESS_VARIABLE
from hourhand.job_kinds.spare_folders import OwnFolder
from hourhand.job_kinds.work_folders import remove
from hourhand.model.outcome import Failed, Lost, Outcome, Succeeded
from hourhand.model.work_folder import OUTPUT_FOLDER
from hourhand.ports.job_kind import Task

__all__ = ["Program", "ProgramRunner", "ProgramSettings"]

_Value = TypeVar("_Value")
_DRAIN_SECONDS_MAX: Final = 2.0
"""How long the pipes may stay open once every process that we know is dead."""
_LOOK_SECONDS_MAX: Final = 0.5
_NO_SESSION: Final = -1
_TAIL_LINES: Final = 10
_TAIL_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Program:
    """What one attempt starts. Everything in it is passed on literally: nothing is ever handed to a shell."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    """A folder inside the attempt's own, made for it."""
    stdin: str | None = None
    ok_exit_codes: Collection[int] = (0,)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Written into the attempt's folder before the start, readable and executable by its user alone."""
    prepare: Callable[[Path], None] | None = None
    """Puts further things into the attempt's folder before the start, in a thread. An OSError is why nothing starts."""
    line_bytes_max: int = LINE_BYTES_MAX
    """Longer lines of its standard output are cut into pieces."""
    contained: bool = True
    """False for programs that contain by themselves what they run, and could not inside of another containment. What
    they start is still found and ended."""


class ProgramRunner:
    """One for all kinds of an executor. Used between `open` and `close`, which each of them calls."""

    def __init__(self, settings: ProgramSettings | None = None) -> None:
        self._settings = settings or ProgramSettings()
        self.path = self._settings.path or os.environ.get("PATH") or os.defpath
        self._host: ProgramHost | None = None
        self._users = 0

    async def open(self) -> None:
        self._users += 1
        if self._host is None:
            self._host = ProgramHost(self._settings, self.path)
            await self._host.open()

    async def close(self) -> None:
        """The last one who calls it closes."""
        self._users -= 1
        if self._users <= 0 and self._host is not None:
            host, self._host = self._host, None
            await host.close()

    async def run(self, task: Task, program: Program) -> Outcome:
        """Runs a program to its end. Cancelled, it ends everything of it (asks, waits, kills) before it raises."""
        assert self._host is not None, "run is called between open and close"
        attempt = _Attempt(task, program, self._host)
        try:
            if program.files or program.prepare is not None or not self._host.launcher.is_up:
                await to_the_end(attempt.prepare_slowly)
            else:
                attempt.prepare()
            attempt.launch()
        except (OSError, ValueError, LauncherDied) as error:
            await to_the_end(attempt.remove_folder)
            return attempt.not_launched(error)
        except asyncio.CancelledError:
            await to_the_end(attempt.remove_folder)
            raise
        try:
            await attempt.ended()
        except asyncio.CancelledError:
            await to_the_end(attempt.end)
            raise
        return attempt.outcome() if attempt.finish_at_once() else await to_the_end(attempt.finish)


class _Attempt:
    """One program, from its folder to its exit code."""

    def __init__(self, task: Task, program: Program, host: ProgramHost) -> None:
        self._task = task
        self._program = program
        self._host = host
        self._plan = GroupPlan()
        self._inner = "" if task.keep_outputs is None else OUTPUT_FOLDER
        self._own: OwnFolder | None = None
        """Its folder, where that may be given to another attempt afterwards."""
        self._folder: Path | None = None
        """Its folder, until there is nothing to be done about it any more."""
        self._start_in = Path()
        self._launched: Launched | None = None
        self._end: Ended | None = None
        self._disk: Watched | None = None
        self._disk_taken: Taken | None = None
        """It was ended for having taken so much disk."""
        self._disk_fault: Failed | None = None
        """It had taken too much when it was over."""
        self._pipes: list[int] = []
        self._readers: list[LineReader] = []
        self._error_tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._log = many_of(task.log)

    async def prepare_slowly(self, _: asyncio.Event) -> None:
        """In a thread: there are files to write. The launcher is started again if it has died."""
        await self._host.launcher.open()
        self._take_folder()
        await asyncio.to_thread(self._fill_folder)

    def prepare(self) -> None:
        self._take_folder()
        self._fill_folder()

    def _take_folder(self) -> None:
        host = self._host
        if host.contains and self._program.contained:
            self._own = host.spares.take(self._inner)
            self._folder = self._own.path
        else:
            self._folder, _ = host.folders.make(f"{self._task.run_id}-{self._task.fence}", "")
        # Groups are called like the folder: who gets that next gets its groups too, see `launcher_seats.py`.
        self._plan = host.plan(self._folder.name, self._task.resources)

    def _fill_folder(self) -> None:
        assert self._folder is not None
        folders, program = self._host.folders, self._program
        account = None if self._own is None else self._own.account
        self._start_in = folders.make_start(self._folder, program.cwd, account) if program.cwd else self._folder
        if program.files:
            folders.add(self._folder, program.files, account)
        if self._inner and self._own is None:
            folders.make_inner(self._folder / self._inner)
        if program.prepare is not None:  # last: it may hand all of it to another user
            program.prepare(self._folder)

    def launch(self) -> None:
        """Hands the program to the launcher. That it could not be started is heard as its end."""
        assert self._folder is not None
        host, task, own = self._host, self._task, self._own
        user = None if own is None else own.user
        what = Launch(
            self._program.argv,
            self._environment(str(self._folder)),
            host.path,
            self._folder,
            self._start_in,
            self._plan,
            host.limits(task.resources, user is not None),
            host.contains and self._program.contained,
            self._parts() if own is None else own.parts,
            () if own is None else own.marks,
            None if user is None else user.account.user_id,
            user is not None and user.may_have_keys,
        )
        out, out_of_program = os.pipe()
        err, err_of_program = os.pipe()
        given = _standard_input(self._program.stdin)
        try:
            self._pipes = [out, err]
            standard = (host.nothing if given is None else given, out_of_program, err_of_program)
            self._launched = host.launcher.launch(what, standard)
        except BaseException:
            self._close_pipes()
            raise
        finally:
            os.close(out_of_program)
            os.close(err_of_program)
            if given is not None:
                os.close(given)
        self._readers = [
            LineReader(out, "stdout", self._log, self._program.line_bytes_max),
            LineReader(err, "stderr", self._keep_and_log),
        ]
        host.progress.watch(self._folder, task.progress)
        if host.contains:
            group = self._plan.groups[0] if self._plan.groups else None
            limit = host.disk_limit(task.resources)
            stat = self._plan.reads.get("stat")
            self._disk = host.disk.watch(self._folder, group, limit, self._has_too_much, stat)

    def _parts(self) -> list[str]:
        """The folders that were made for it, each after those that are in it."""
        assert self._folder is not None
        return [*([str(self._folder / self._inner)] if self._inner else []), str(self._folder)]

    def _has_too_much(self, taken: Taken) -> None:
        """It takes more disk than it may. Nobody asks it first: it would go on meanwhile."""
        assert self._launched is not None
        self._disk_taken = taken
        with suppress(LauncherDied):  # which has taken it along
            self._launched.kill()

    async def ended(self) -> None:
        """Returns when nothing of the program is left, after its end or that of the launcher."""
        assert self._launched is not None
        launched = self._launched
        try:
            await launched.changed
            if not launched.ended.done():  # not contained: somebody has to look for what the program has left
                await to_the_end(self._clear_up)
            self._end = launched.ended.result()
        except LauncherDied:
            await to_the_end(self._clear_up_alone)
        # From here on it is we who take the time: what it has left is looked at once more, by `finish`.
        if self._folder is not None:
            self._host.disk.forget(self._folder)

    async def end(self, hurry: asyncio.Event) -> None:
        """Ends the program and everything it started; `hurry` cuts the grace short."""
        launched = self._launched
        assert launched is not None
        try:
            if not launched.ended.done():
                launched.ask()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._host.settings.grace_seconds):
                        await first_of(self._gone(launched), hurry.wait())
                if not launched.ended.done():
                    launched.kill()
                    if not self._host.contains:
                        await self._clear_up(hurry)
            self._end = await _result(launched.ended)
        except LauncherDied:
            await self._clear_up_alone(hurry)
        await self.finish(hurry, keep=False)

    async def _gone(self, launched: Launched) -> None:
        """Returns when nothing of the tree is alive. Children may need their grace longer than the first process."""
        if not self._host.contains:
            leftovers = self._leftovers(await _result(launched.pid))
            await asyncio.to_thread(leftovers.ask_outside_group)
            await _none_left(leftovers.look)
            launched.reap()
        await asyncio.wait((launched.ended,))

    async def _clear_up(self, _: asyncio.Event) -> None:
        """Ends what the launcher cannot find without a group, and lets it bury the rest."""
        assert self._launched is not None
        launched = self._launched
        await _none_left(self._leftovers(await _result(launched.pid)).kill)
        launched.reap()
        await asyncio.wait((launched.ended,))

    async def _clear_up_alone(self, _: asyncio.Event) -> None:
        """The launcher has died. The first process of every attempt dies with it, but not what that has started."""
        await _none_left(self._leftovers(_NO_SESSION).kill)
        await asyncio.to_thread(remove_groups, self._plan.groups)

    def _leftovers(self, session: int) -> Leftovers:
        task = self._task
        marks = f"HOURHAND_RUN_ID={task.run_id}".encode(), f"HOURHAND_FENCE_TOKEN={task.fence}".encode()
        return Leftovers(session, marks)

    def finish_at_once(self) -> bool:
        """Clears up if that needs no waiting; says whether it did not."""
        if self._end is None or self._end_needs_time(self._end):
            return False
        for reader in self._readers:
            if not reader.drained():
                return False
        self._close_pipes()
        self._say_usage()
        return self._folder_is_done(self._end)

    def _end_needs_time(self, end: Ended) -> bool:
        """Whether something is in the folder that has to be kept or removed."""
        if end.folder_is_untouched or end.folder_is_removed:
            return False
        return self._own is not None or not self._removes_folder()

    def _folder_is_done(self, end: Ended) -> bool:
        """Gives the folder to the next attempt if nobody has touched it. False: it is still to be removed."""
        own, spares = self._own, self._host.spares
        if own is not None and end.folder_is_untouched and not spares.give_back(own, self._inner):
            return False
        if own is not None and end.folder_is_removed:
            spares.replace(self._inner, own)
        self._folder = None
        return True

    def _removes_folder(self) -> bool:
        assert self._folder is not None
        try:
            os.rmdir(self._folder)
        except OSError:
            return False
        return True

    async def finish(self, _: asyncio.Event, keep: bool = True) -> Outcome:
        """Clears up after a program that has ended and says what came out."""
        end = self._end
        is_untouched = end is not None and end.folder_is_untouched
        if keep and self._folder is not None and not is_untouched:
            if self._disk is not None and self._disk_taken is None:
                await self._look_last(self._disk)
            await self._keep_outputs()
        for reader in self._readers:
            await reader.drain(_DRAIN_SECONDS_MAX)
        self._close_pipes()
        self._say_usage()
        if end is None or not (is_untouched or end.folder_is_removed) or not self._folder_is_done(end):
            await self.remove_folder(_)
        return self.outcome()

    async def _look_last(self, disk: Watched) -> None:
        """A quick program can take more than it may before anybody has looked."""
        taken = await asyncio.to_thread(disk.look_last)
        if taken.exceeds(disk.limit):
            self._disk_fault = too_much_disk(taken, disk.limit, self._task.resources, self._error_tail, False)

    async def _keep_outputs(self) -> None:
        assert self._folder is not None
        keep, disk, outputs = self._task.keep_outputs, self._disk, self._folder / OUTPUT_FOLDER
        if keep is None or not outputs.exists():  # the launcher has removed it if nothing was in it
            return
        if disk is not None:
            # By what they would be in the storage of blobs, where holes take as much as anything else.
            size = await asyncio.to_thread(size_of_files, outputs, disk.limit.bytes)
            if size > disk.limit.bytes:
                fault = too_large_to_keep(size, disk.limit, self._task.resources)
                self._disk_fault = self._disk_fault or fault
                self._task.log("log", f"the run {fault.error}")
                return
        await keep(outputs)

    def _close_pipes(self) -> None:
        if self._folder is not None:
            self._host.progress.forget(self._folder)
            self._host.disk.forget(self._folder)
        for reader in self._readers:
            reader.close()
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = []

    async def remove_folder(self, _: asyncio.Event) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(remove, folder)
            if self._own is not None:
                self._host.spares.replace(self._inner, self._own)

    def _readings(self) -> dict[str, str]:
        return {} if self._end is None else self._named(self._end.readings)

    def _named(self, readings: Sequence[str]) -> dict[str, str]:
        return dict(zip((*self._plan.events, *self._plan.reads), readings, strict=False))

    def _say_usage(self) -> None:
        end = self._end
        if end is not None and not end.step:
            before = self._named(end.readings_before)
            if self._plan.resets:
                before.pop("peak", None)
            self._task.usage = usage_of(end, self._readings(), before, self._host.level, self._disk)

    def outcome(self) -> Outcome:
        end, program = self._end, self._program
        if end is None:
            return Lost()
        if end.step == "execute":
            is_private = program.contained and self._host.places.holds(program.argv[0])
            return not_started(program.argv[0], self._host.path, end.error_number, end.error, is_private)
        if end.step:
            return not_prepared(end.step, end.error)
        if self._disk_taken is not None:
            limit = self._host.disk_limit(self._task.resources)
            return too_much_disk(self._disk_taken, limit, self._task.resources, self._error_tail)
        facts = self._readings(), program.ok_exit_codes, self._task.resources, self._error_tail
        outcome = outcome_of(end, *facts, self._host.memory_max if self._plan.groups else None)
        # A program that has failed says better why than we could.
        is_fine = isinstance(outcome, Succeeded)
        return self._disk_fault if is_fine and self._disk_fault is not None else outcome

    def not_launched(self, error: Exception) -> Outcome:
        if isinstance(error, LauncherDied):
            return Lost()
        if isinstance(error, OSError) and error.errno != errno.E2BIG:
            return not_prepared("", str(error))
        return not_started(self._program.argv[0], self._host.path, None, str(error))

    def _environment(self, folder: str) -> dict[str, str]:
        task = self._task
        return {
            "PATH": self._host.path,
            "HOME": folder,
            "TMPDIR": folder,
            "LANG": "C.UTF-8",
            **self._program.env,
            PROGRESS_VARIABLE: f"{folder}/{PROGRESS_FILE}",
            **({} if task.keep_outputs is None else {"HOURHAND_OUTPUT_DIR": f"{folder}/{OUTPUT_FOLDER}"}),
            "HOURHAND_RUN_ID": str(task.run_id),
            "HOURHAND_JOB_ID": str(task.job_id),
            "HOURHAND_JOB_NAME": task.job_name,
            "HOURHAND_NAMESPACE": task.namespace,
            "HOURHAND_ATTEMPT": str(task.attempt),
            **({} if task.total is None else {"HOURHAND_INDEX": str(task.index), "HOURHAND_TOTAL": str(task.total)}),
            "HOURHAND_FENCE_TOKEN": str(task.fence),
            "HOURHAND_SCHEDULED_TIME": task.scheduled_for.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        }

    def _keep_and_log(self, stream: str, lines: list[str]) -> "asyncio.Future[None] | None":
        self._error_tail.extend(line[:_TAIL_CHARS] for line in lines[-_TAIL_LINES:])
        return self._log(stream, lines)


async def _result(future: asyncio.Future[_Value]) -> _Value:
    """Waits without taking the future along when the wait is cancelled: others wait for it too."""
    await asyncio.wait((future,))
    return future.result()


async def _none_left(look: Callable[[], Sequence[int]]) -> None:
    """Returns when a look finds nothing any more."""
    pause = 0.002
    while await asyncio.to_thread(look):
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LOOK_SECONDS_MAX)


def _standard_input(text: str | None) -> int | None:
    """A file in memory: unlike a pipe it needs nobody to feed it, and a program may ignore it."""
    if text is None:
        return None
    handle = os.memfd_create("stdin")
    with open(handle, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "replace"))
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
