"""What an attempt has taken of its executor, as far as the kernel could say."""

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """By what an attempt was held to its limits, and measured. Part of the documented API."""

    CGROUP2 = "cgroup2"
    """Control groups, version 2: limits for all its processes together, and exact figures."""
    CGROUP1 = "cgroup1"
    """Control groups, version 1: the same."""
    RLIMITS = "rlimits"
    """Limits of single processes. Figures are of the first process and those that were waited for."""
    NONE = "none"
    """Containment is switched off: no limits. Figures as with `rlimits`."""


class DiskLevel(StrEnum):
    """By what an attempt was held to its limit of disk. Part of the documented API."""

    WATCHED = "watched"
    """Its folder was looked at every second or less often; between two looks it can have taken more."""
    NONE = "none"
    """By nothing."""


# A struct, because it travels as JSON: into the journal, the database and the API.
class Usage(msgspec.Struct, frozen=True):
    level: Level
    cpu_seconds: float
    memory_bytes_peak: int
    """At one moment, of all its processes together; without control groups, of the largest one. In a control group the
    cache of files counts, too."""
    read_bytes: int
    """From disks; what the kernel had in memory already does not count."""
    written_bytes: int
    disk_level: DiskLevel = DiskLevel.NONE
    disk_bytes_peak: int | None = None
    """The most that was seen in its private folder; None when it had ended before anybody looked."""
    memory_bytes_cached: int | None = None
    """The most that was seen of the cache of files, which the kernel gives up when memory gets scarce; None without
    control groups."""
