"""What all programs of an executor share: the room of their folders, the launcher, the control groups, the looks."""

import asyncio
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hourhand.job_kinds.cgroups import PREFIX as GROUPS_PREFIX
from hourhand.job_kinds.cgroups import GroupPlan, Groups, find_trees
from hourhand.job_kinds.disk_watch import DiskWatch, Taken
from hourhand.job_kinds.launcher import Launcher, SetUp
from hourhand.job_kinds.private_places import NOWHERE, private_places
from hourhand.job_kinds.progress_files import ProgressFiles
from hourhand.job_kinds.spare_folders import SpareFolders
from hourhand.job_kinds.user_ids import FIRST as UID_FIRST
from hourhand.job_kinds.user_ids import UserIds, open_user_ids
from hourhand.job_kinds.work_folders import Account, WorkFolders, account_for
from hourhand.model.resources import DISK_MAX, Resources
from hourhand.model.usage import Level
from hourhand.runtime.machine import usable_memory
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

_MEMORY_SHARE: Final = 2
"""Without a number, an attempt may have half of the memory: one that has no end meets its own limit, not the machine's,
at which the kernel would end whoever is largest."""
_DISK_SHARE: Final = 10
"""Without a number, an attempt may have the tenth part of the file system."""
_DISK_BYTES_LEAST: Final = 100_000_000
_DISK_FILES_LEAST, _DISK_FILES_MOST = 10_000, 1_000_000


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
    containment: Literal["full", "none"] = "full"
    """`none` starts programs a little faster, without limits, and lets them see all that their user may see."""
    pids_max: int = 512
    """Processes and threads that an attempt may have at once, unless its job declares another number."""
    open_files_max: int = 4096
    """Files that one process of an attempt may have open."""
    hidden: tuple[Path, ...] = ()
    """What contained programs do not see, besides the folders of other attempts."""
    shared: tuple[str, ...] = ()
    """Folders in places for temporary files that contained programs share with the machine."""
    disk_bytes_max: int | None = None
    """What an attempt may keep on disk, unless its job declares another number; None goes by the file system."""
    disk_files_max: int | None = None
    """How many files and folders an attempt may keep on disk; None goes by the file system."""
    uid_first: int = UID_FIRST
    """Where the numbers begin that contained attempts have as their users when the executor is root."""
    uid_count: int | None = None
    """How many there are; 0: attempts are all `run_as`. None: that too, unless it is `nobody`."""
    memory_bytes_max: int | None = None
    """Memory that an attempt may take, unless its job declares another number; None: half of ours."""


class ProgramHost:
    """Used between `open` and `close`."""

    def __init__(self, settings: ProgramSettings, path: str) -> None:
        self.settings = settings
        self.path = path
        self.contains = settings.containment == "full"
        self.account: Account | None = account_for(settings.run_as)
        self.folders = WorkFolders(settings.work_root, self.account)
        self.users: UserIds | None = None
        self.groups: Groups | None = None
        self.level = Level.NONE
        self.progress = ProgressFiles()
        self.disk = DiskWatch()
        self.disk_max = Taken(0, 0)
        self.memory_max = settings.memory_bytes_max or usable_memory() // _MEMORY_SHARE
        self.nothing = -1

    async def open(self) -> None:
        room = await asyncio.to_thread(self.folders.open)
        try:
            places = NOWHERE
            if self.contains:
                (room / ".stage").mkdir(0o711)
                (room / ".stage").chmod(0o711)
                places = private_places(self.settings.shared, room)
                self._open_groups(room)
                numbers = self.settings.uid_first, self.settings.uid_count
                self.users = await asyncio.to_thread(open_user_ids, self.account, *numbers)
            self.nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            bases = () if self.groups is None else self.groups.bases
            hidden = self.settings.hidden
            kept = () if self.users is None else (self.users.lock,)
            self.launcher = Launcher(SetUp(room, self.account, self.contains, hidden, bases, places, kept))
            await self.launcher.open()
            is_private = "mounts" in self.launcher.abilities
            self.places = places if is_private else NOWHERE
            self.spares = SpareFolders(self.folders, places.points, is_private, self.users)
            self.disk_max = _disk_max(room, self.settings)
            if self.contains:
                by = self.launcher.abilities | (set() if self.users is None else {"users"})
                emit(Event.PROGRAMS_CONTAINED, limits=self.level.value, by=sorted(by))
        except BaseException:
            await self.close()
            raise

    def _open_groups(self, room: Path) -> None:
        self.level = Level.RLIMITS
        groups = Groups(find_trees(), GROUPS_PREFIX + room.name.rpartition("-")[2])
        if groups.level is Level.RLIMITS:
            return
        self.folders.remember(groups.bases)
        try:
            groups.open()
        except OSError:  # they could be made a moment ago
            groups.close()
        else:
            self.groups, self.level = groups, groups.level

    async def close(self) -> None:
        await self.disk.close()
        if hasattr(self, "launcher"):
            await self.launcher.close()
        if self.nothing >= 0:
            os.close(self.nothing)
        if self.groups is not None:
            await asyncio.to_thread(self.groups.close)
        await asyncio.to_thread(self.folders.close)
        if self.users is not None:
            self.users.close()

    def plan(self, name: str, resources: Resources | None) -> GroupPlan:
        if self.groups is None:
            return GroupPlan()
        return self.groups.plan(name, resources, self.settings.pids_max, self.memory_max)

    def disk_limit(self, resources: Resources | None) -> Taken:
        declared = None if resources is None else resources.disk
        return self.disk_max if declared is None else self.disk_max._replace(bytes=declared)

    def limits(self, resources: Resources | None, has_own_user: bool) -> list[tuple[int, int, int]]:
        """Of every single process; what groups limit for all of an attempt together is left to them."""
        if not self.contains:
            return []
        files = self.settings.open_files_max
        limits = [(resource.RLIMIT_CORE, 0, 0), (resource.RLIMIT_NOFILE, files, files)]
        if self.groups is None:
            memory = None if resources is None else resources.memory
            if memory is not None:
                limits.append((resource.RLIMIT_AS, memory, memory))
            pids = (None if resources is None else resources.pids) or self.settings.pids_max
            # The kernel counts all processes of the user, also those that are no business of this attempt.
            most = pids if has_own_user else pids + _tasks_of_machine()
            limits.append((resource.RLIMIT_NPROC, most, most))
        return limits


def _disk_max(room: Path, settings: ProgramSettings) -> Taken:
    """What is not set is the tenth part of the file system, but no more than half of what is free there: one attempt
    cannot fill it. On one that is all but full small jobs go on."""
    facts = os.statvfs(room)
    size, files = DISK_MAX, _DISK_FILES_MOST
    if facts.f_blocks:  # else it has no end, or does not tell
        size = max(min(facts.f_blocks // _DISK_SHARE, facts.f_bavail // 2) * facts.f_frsize, _DISK_BYTES_LEAST)
    if facts.f_files:  # else it makes room for them as they come
        files = min(max(min(facts.f_files // _DISK_SHARE, facts.f_favail // 2), _DISK_FILES_LEAST), _DISK_FILES_MOST)
    return Taken(settings.disk_bytes_max or size, settings.disk_files_max or files)


def _tasks_of_machine() -> int:
    with open("/proc/loadavg") as file:
        return int(file.read().split()[3].partition("/")[2])
