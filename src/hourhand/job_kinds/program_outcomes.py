"""What the end of a program means: the outcome of its attempt, in words that a person can act on, and what it took."""

import errno
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from hourhand.job_kinds.cgroups import cache_in, number_in
from hourhand.job_kinds.child import signal_name
from hourhand.job_kinds.disk_watch import Taken, Watched
from hourhand.job_kinds.launcher import Ended
from hourhand.model.outcome import Failed, Outcome, Succeeded, clipped
from hourhand.model.resources import Resources, tell_size
from hourhand.model.retry import exit_tags, signal_tags
from hourhand.model.states import Reason
from hourhand.model.usage import DiskLevel, Level, Usage

_AT_LIMIT: Final = 0.95
"""The kernel counts memory in larger pieces, so a peak may stay below the limit that was met."""
_PASSING_ERRORS: Final = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.ENOSPC}
)
"""Reasons not to start a program that are the machine's and may pass, unlike a program that does not exist."""


def outcome_of(
    ended: Ended,
    readings: Mapping[str, str],
    ok_exit_codes: Collection[int],
    resources: Resources | None,
    error_tail: Iterable[str],
    memory_max: int | None = None,
) -> Outcome:
    """Of a program that was executed. `memory_max`: what it could have without a word of its job."""
    code = ended.code
    if code in ok_exit_codes:
        return Succeeded({"exit_code": code})
    tail = "".join(f"\n{line}" for line in error_tail)
    result = {"exit_code": code} if code >= 0 else None
    tags = exit_tags(code) if code >= 0 else signal_tags(signal_name(-code))
    if number_in(readings.get("killed", ""), "oom_kill"):
        told = _too_much_memory(resources, memory_max, readings.get("peak", ""))
        return Failed(Reason.MEMORY_LIMIT, clipped(told + tail), result=result, tags=tags)
    refused = number_in(readings.get("refused", ""), "max")
    hint = f"; it was refused {refused} further processes: resources.pids says how many it may have" if refused else ""
    if code < 0:
        return Failed(Reason.SIGNAL, clipped(f"killed by {signal_name(-code)}{hint}{tail}"), tags=tags)
    return Failed(Reason.EXIT_CODE, clipped(f"exited with code {code}{hint}{tail}"), result=result, tags=tags)


def _too_much_memory(resources: Resources | None, memory_max: int | None, peak: str) -> str:
    if resources is None or resources.memory is None:
        if memory_max is not None and peak.strip().isdecimal() and int(peak) >= memory_max * _AT_LIMIT:
            allowed = f"the {tell_size(memory_max)} that its executor (kinds.memory_bytes_max) allows"
            return f"needed more memory than {allowed}, and the kernel ended it; declare resources.memory"
        return (
            "the executor ran out of memory, and the kernel ended the program; resources.memory would keep room for it"
        )
    allowed = tell_size(resources.memory)
    return f"needed more memory than the {allowed} of resources.memory, and the kernel ended it; declare more"


def too_much_disk(
    taken: Taken, limit: Taken, resources: Resources | None, error_tail: Iterable[str], was_ended: bool = True
) -> Failed:
    """Of a program that was ended for it, or had ended by itself when it was seen."""
    allowed = _disk_allowed(limit, resources)
    what = f"took {tell_size(taken.bytes)} of disk, more than {allowed}"
    advice = "declare more"
    if taken.files > limit.files:
        allowed = f"the {limit.files} files and folders that its executor (kinds.disk_files_max) allows"
        what, advice = f"made more than {allowed} in its folder and its /tmp", "make fewer, or pack them"
    message = f"{what}{', and was ended' if was_ended else ''}; {advice}"
    return Failed(Reason.DISK_LIMIT, clipped(message + "".join(f"\n{line}" for line in error_tail)))


def too_large_to_keep(size: int, limit: Taken, resources: Resources | None) -> Failed:
    """Of a program whose files would become more, once they are kept, than it may have on disk."""
    what = f"left files of at least {tell_size(size)} to be kept, holes counted"
    return Failed(
        Reason.DISK_LIMIT,
        clipped(f"{what}, more than {_disk_allowed(limit, resources)}, and none of them is kept; declare more"),
    )


def _disk_allowed(limit: Taken, resources: Resources | None) -> str:
    is_declared = resources is not None and resources.disk is not None
    whose = "resources.disk" if is_declared else "its executor (kinds.disk_bytes_max)"
    return f"the {tell_size(limit.bytes)} of {whose}"


def not_started(program: str, path: str, number: int | None, error: str, is_private: bool = False) -> Failed:
    """Of a program that could not be executed. Private: where it would lie, every attempt sees its own folder."""
    if number == errno.EACCES and "/" not in program and shutil.which(program, path=path) is None:
        number = errno.ENOENT  # a folder in PATH that the user may not enter hides that the program is nowhere
    match number:
        case errno.ENOENT | errno.ENOTDIR:
            reason, message = Reason.EXEC_NOT_FOUND, f"{_what_is_missing(program, path)} was not found on this executor"
            if len(program.split()) > 1 and shutil.which(program, path=path) is None:
                message += ": this is taken for one name; a program and its arguments are given apart"
            if is_private and os.path.exists(program):
                message = f"{program!r} is not seen by programs: every attempt has that place to itself (kinds.shared)"
        case errno.EACCES | errno.EPERM:
            reason, message = Reason.NOT_EXECUTABLE, f"{program!r} may not be executed"
        case errno.ENOEXEC:
            told = f"{program!r} is not a program: a script needs a first line such as #!/bin/sh"
            reason, message = Reason.NOT_EXECUTABLE, told
        case _:
            reason, message = Reason.NOT_STARTED, f"{program!r} could not be started: {error}"
    return Failed(reason, clipped(message), retryable=number in _PASSING_ERRORS)


def _what_is_missing(program: str, path: str) -> str:
    """The kernel says the same of a script that is there and names an interpreter that is not."""
    found = shutil.which(program, path=path)
    interpreted = found is not None and os.path.isabs(found)
    return f"the interpreter that the first line of {program!r} names" if interpreted else repr(program)


def not_prepared(step: str, error: str) -> Failed:
    """Of a program that was never tried, because what it runs in could not be made. That is nothing of the job's."""
    what = {
        "enter": "its work folder cannot be entered; kinds.work_root must be where the user of jobs can go",
        "contain": "it could not be contained",
    }.get(step, "what it runs in could not be made")
    return Failed(Reason.NOT_STARTED, clipped(f"{what}: {error}"))


def usage_of(
    ended: Ended, readings: Mapping[str, str], before: Mapping[str, str], level: Level, disk: Watched | None = None
) -> Usage:
    """Before: what was read of its groups at the end of who had used them, if somebody had."""
    seen = [cache_in(readings.get("stat", "")), None if disk is None else disk.cached_peak]
    return Usage(
        level,
        round(_cpu_seconds(readings, before) or ended.cpu_seconds, 6),
        _peak(readings, before) or ended.memory_bytes_peak,
        ended.read_bytes,
        ended.written_bytes,
        DiskLevel.NONE if disk is None else DiskLevel.WATCHED,
        None if disk is None else disk.bytes_peak,
        max((cached for cached in seen if cached is not None), default=None),
    )


def _cpu_seconds(readings: Mapping[str, str], before: Mapping[str, str]) -> float | None:
    used = number_in(readings.get("cpu", ""), "usage_usec")
    return None if used is None else (used - (number_in(before.get("cpu", ""), "usage_usec") or 0)) / 1e6


def _peak(readings: Mapping[str, str], before: Mapping[str, str]) -> int | None:
    """None where the group does not tell, or tells of somebody before who had more: then the largest process has to
    do."""
    peak, peak_before = readings.get("peak", "").strip(), before.get("peak", "").strip()
    if not peak.isdecimal() or (peak_before.isdecimal() and int(peak) <= int(peak_before)):
        return None
    return int(peak)
