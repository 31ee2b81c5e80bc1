"""Control groups for attempts: where they can be made, what limits attempts in them, what they tell afterwards.

Version 2 is used where it has the controllers, else version 1, else nothing. A machine may have both: the controllers
in version 1, and beside them a tree of version 2 without any, in which a group can still be killed as one. Groups are
made below the executor's own, so what limits it limits its attempts too. This module decides and reads; making,
joining, killing and removing the groups of attempts is the launcher's work.

All groups of an executor lie in one of its own in every tree, which it keeps locked for as long as it lives. One that
nobody has locked is left of an executor that was killed; the next one that starts beside it removes it, if nobody is in
it.
"""

import fcntl
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Final

from hourhand.job_kinds.launcher_kernel import kill_members
from hourhand.job_kinds.launcher_kernel import remove_groups as kernel_remove_groups
from hourhand.model.resources import Resources
from hourhand.model.usage import Level

CONTROLLERS: Final[Sequence[str]] = ("memory", "pids", "cpu")
PREFIX: Final = "hourhand-groups-"
"""What the names of executors' own groups begin with: only such a one is ever taken for abandoned."""
_LOCK_ROUNDS_MAX: Final = 5
_PERIOD_MICROSECONDS: Final = 100_000
_QUOTA_MICROSECONDS_MIN: Final = 1000
_REMOVE_ROUNDS_MAX: Final = 200
_UNIFIED: Final = "unified"
_KEEPERS: Final = 1
"""Who is in the groups beside the attempt: see `launcher_keeper.py`."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The groups of one attempt."""

    groups: Sequence[str] = ()
    """To be made, joined, and removed at the end. By the first one its processes are found and killed."""
    writes: Sequence[tuple[str, str]] = ()
    """Files and what is written into them before the start."""
    resets: Sequence[tuple[str, str]] = ()
    """The same, before the start of another attempt in the same groups."""
    events: Mapping[str, str] = field(default_factory=dict)
    """What is read at the end, by its name here. If it is not as it was, the groups are not used again."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """What else is read then."""
    holds: Sequence[str] = ()
    """Files that say how many bytes are kept in the groups. If they are many, the groups are not used again."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Where this process may make groups: a folder by controller, and the one that groups are killed by."""

    level: Level
    tracker: str | None = None
    by_controller: Mapping[str, str] = field(default_factory=dict)

    @property
    def roots(self) -> list[str]:
        return list(dict.fromkeys(root for root in (self.tracker, *self.by_controller.values()) if root is not None))


def find_trees(proc: Path = Path("/proc/self")) -> Trees:
    """What there is, by trying: missing rights and controllers and read-only mounts show in the making of a group."""
    found = {name: path for name, path in _own_groups(proc) if _can_make_groups(path)}
    two = found.get(_UNIFIED)
    if two is not None and (base := _delegated(two)) is not None:
        return Trees(Level.CGROUP2, base, dict.fromkeys(CONTROLLERS, base))
    one = {name: found[name] for name in CONTROLLERS if name in found}
    tracker = two if two is not None and _has_kill(two) else found.get("freezer") or one.get("pids")
    if tracker is not None and {"memory", "pids"} <= one.keys():
        return Trees(Level.CGROUP1, tracker, one)
    return Trees(Level.RLIMITS)


class Groups:
    """The groups of one executor. Used between `open` and `close`."""

    def __init__(self, trees: Trees, name: str) -> None:
        self._trees = trees
        self._bases = {root: f"{root}/{name}" for root in trees.roots}
        self._locks: list[int] = []

    @property
    def level(self) -> Level:
        return self._trees.level

    @property
    def bases(self) -> list[str]:
        """The folders that all groups are in: what somebody else has to remove if we cannot."""
        return list(self._bases.values())

    def open(self) -> None:
        """Makes the groups that all others are in, and clears away those that others have left."""
        for base in self._bases.values():
            self._locks.append(_made_and_locked(base))
            if self.level is Level.CGROUP2:
                with open(f"{base}/cgroup.subtree_control", "w") as file:
                    file.write(" ".join(f"+{name}" for name in self._trees.by_controller))
        remove_abandoned_groups(self._trees.roots)

    def close(self) -> None:
        remove_groups(self.bases)
        while self._locks:
            os.close(self._locks.pop())

    def plan(self, name: str, resources: Resources | None, pids_max: int, memory_max: int | None = None) -> GroupPlan:
        """The groups of one attempt, with what it has declared as their limits, or else those that hold for all."""
        if self._trees.tracker is None:
            return GroupPlan()
        cpu = None if resources is None else resources.cpu
        memory = memory_max if resources is None or resources.memory is None else resources.memory
        pids = pids_max if resources is None or resources.pids is None else resources.pids
        by = {
            controller: f"{self._bases[root]}/{name}"
            for controller, root in self._trees.by_controller.items()
            if controller != "cpu" or cpu is not None
        }
        tracker = f"{self._bases[self._trees.tracker]}/{name}"
        make = self._version_2 if self.level is Level.CGROUP2 else self._version_1
        writes = [(f"{by['pids']}/pids.max", str(pids + _KEEPERS)), *make(by, memory, cpu)]
        groups = list(dict.fromkeys([tracker, *by.values()]))
        return GroupPlan(groups, writes, self._resets(by), self._events(by), self._reads(by, tracker), self._holds(by))

    def _version_2(self, by: Mapping[str, str], memory: int | None, cpu: float | None) -> Iterator[tuple[str, str]]:
        if memory is not None and "memory" in by:
            yield f"{by['memory']}/memory.max", str(memory)
            if os.path.exists(f"{self._bases[self._trees.by_controller['memory']]}/memory.swap.max"):
                yield f"{by['memory']}/memory.swap.max", "0"
            yield f"{by['memory']}/memory.oom.group", "1"  # half a job is no use to anybody
        if cpu is not None and "cpu" in by:
            yield f"{by['cpu']}/cpu.max", f"{_quota(cpu)} {_PERIOD_MICROSECONDS}"

    def _version_1(self, by: Mapping[str, str], memory: int | None, cpu: float | None) -> Iterator[tuple[str, str]]:
        if memory is not None:
            yield f"{by['memory']}/memory.limit_in_bytes", str(memory)
            if os.path.exists(f"{self._bases[self._trees.by_controller['memory']]}/memory.memsw.limit_in_bytes"):
                yield f"{by['memory']}/memory.memsw.limit_in_bytes", str(memory)  # no swap beside it
        if cpu is not None and "cpu" in by:
            yield f"{by['cpu']}/cpu.cfs_period_us", str(_PERIOD_MICROSECONDS)
            yield f"{by['cpu']}/cpu.cfs_quota_us", str(_quota(cpu))

    def _resets(self, by: Mapping[str, str]) -> list[tuple[str, str]]:
        """Version 2 cannot forget the peak of a group."""
        is_known = "memory" in by and self.level is Level.CGROUP1
        return [(f"{by['memory']}/memory.max_usage_in_bytes", "0")] if is_known else []

    def _events(self, by: Mapping[str, str]) -> dict[str, str]:
        killed = "memory.events" if self.level is Level.CGROUP2 else "memory.oom_control"
        memory = {"killed": f"{by['memory']}/{killed}"} if "memory" in by else {}
        return {**memory, "refused": f"{by['pids']}/pids.events"}

    def _holds(self, by: Mapping[str, str]) -> list[str]:
        """What an attempt has read stays in the cache of files, on its group's account."""
        name = "memory.current" if self.level is Level.CGROUP2 else "memory.usage_in_bytes"
        return [f"{by['memory']}/{name}"] if "memory" in by else []

    def _reads(self, by: Mapping[str, str], tracker: str) -> dict[str, str]:
        peak = "memory.peak" if self.level is Level.CGROUP2 else "memory.max_usage_in_bytes"
        memory = {} if "memory" not in by else {
            "peak": f"{by['memory']}/{peak}",
            "stat": f"{by['memory']}/memory.stat",
        }  # fmt: skip
        return {**memory, "cpu": f"{tracker}/cpu.stat"}


def number_in(text: str, name: str) -> int | None:
    """The number beside a name, in a file of lines like `name 5`."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdecimal():
            return int(value)
    return None


def cache_in(stat: str) -> int | None:
    """How much of the memory of a group is the cache of files, by its `memory.stat`. Shared memory counts there as a
    file, and cannot be given up."""
    for cache, shared in (("file", "shmem"), ("total_cache", "total_shmem")):
        if (found := number_in(stat, cache)) is not None:
            return max(found - (number_in(stat, shared) or 0), 0)
    return None


def remove_groups(bases: Iterable[str]) -> bool:
    """Kills everything in these groups and those in them, and removes them. Whether they are gone."""
    done = True
    for base in bases:
        done = _remove(base) and done
    return done


def _remove(base: str) -> bool:
    for _ in range(_REMOVE_ROUNDS_MAX):
        if kernel_remove_groups([os.fsencode(base)]):
            return True
        kill_members(os.fsencode(base))
        sleep(0.005)
    return False


def remove_abandoned_groups(roots: Iterable[str]) -> None:
    """Removes what executors have left that are not alive any more. Nothing is killed here: whoever is still in such a
    group goes with the room of its executor, and the group later."""
    for root in roots:
        with suppress(OSError), os.scandir(root) as entries:
            names = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
            for base in names:
                with suppress(OSError):
                    lock = _lock(base)
                    if lock is not None:
                        kernel_remove_groups([os.fsencode(base)])
                        os.close(lock)


def _made_and_locked(base: str) -> int:
    """A new group, and a descriptor that holds its lock for as long as it is open."""
    for _ in range(_LOCK_ROUNDS_MAX):  # somebody who clears up may find it before it is locked
        os.mkdir(base)
        with suppress(FileNotFoundError):
            lock = _lock(base)
            if lock is not None and os.path.exists(base):
                return lock
            if lock is not None:
                os.close(lock)
        with suppress(FileNotFoundError):
            os.rmdir(base)
    raise BlockingIOError(f"{base} is locked by others again and again")


def _lock(base: str) -> int | None:
    """None when somebody else has it."""
    handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _quota(cpu: float) -> int:
    return max(round(cpu * _PERIOD_MICROSECONDS), _QUOTA_MICROSECONDS_MIN)


def _own_groups(proc: Path) -> Iterator[tuple[str, str]]:
    """The group of this process in every tree, as a folder, by controller; `unified` is version 2."""
    places = _mounts(proc)
    for line in (proc / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(",") if names else [_UNIFIED]:
            for root, mounted_at in places.get(name, ()):
                below = os.path.relpath(path, root)
                if not below.startswith(".."):
                    yield name, os.path.normpath(os.path.join(mounted_at, below))
                    break


def _mounts(proc: Path) -> dict[str, list[tuple[str, str]]]:
    """For each controller, which part of its tree is mounted where."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in (proc / "mountinfo").read_text().splitlines():
        own, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, place = own.split(" ")[3:5]
        if kind == "cgroup2":
            found.setdefault(_UNIFIED, []).append((root, place))
        elif kind == "cgroup":
            for name in options.split(" ")[-1].split(","):
                found.setdefault(name, []).append((root, place))
    return found


def _can_make_groups(folder: str) -> bool:
    probe = f"{folder}/hourhand-probe-{os.getpid()}"
    try:
        os.mkdir(probe)
    except OSError:
        return False
    os.rmdir(probe)
    return True


def _has_kill(folder: str) -> bool:
    """A group that is not the root has the file from Linux 5.14 on."""
    probe = f"{folder}/hourhand-probe-{os.getpid()}"
    os.mkdir(probe)
    try:
        return os.path.exists(f"{probe}/cgroup.kill")
    finally:
        os.rmdir(probe)


def _delegated(own: str, wanted: Collection[str] = CONTROLLERS) -> str | None:
    """A group of version 2 whose children can have these controllers: our own, or, where processes live in a group
    beside those of their jobs, the one above."""
    for base in (own, os.path.dirname(own)):
        try:
            has = set(Path(base, "cgroup.controllers").read_text().split())
            if not has.issuperset(wanted):
                continue
            on = set(Path(base, "cgroup.subtree_control").read_text().split())
            missing = [f"+{name}" for name in wanted if name not in on]
            if missing:  # refused where the group has processes of its own
                Path(base, "cgroup.subtree_control").write_text(" ".join(missing))
        except OSError:
            continue
        if _can_make_groups(base):
            return base
    return None
