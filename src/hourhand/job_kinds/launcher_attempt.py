"""What the launcher knows of one program. Part of it, see `launcher_process.py`."""

from collections.abc import Sequence

PAUSE_SECONDS_MIN = 0.001
Fields = Sequence[bytes]


class Attempt:
    """One program, from its request to its report."""

    def __init__(self, number: bytes, groups: Fields, reads: Fields, folders: Fields, marks: Fields) -> None:
        self.number = number
        self.groups = groups
        """Control groups of its own; by the first one its processes are found and killed."""
        self.reads = reads
        """What of them is to be reported."""
        self.folders = folders
        """To be removed at the end if they are empty, in this order; the last one is its own."""
        self.marks = marks
        """When each of them was changed last. If none has been since, they stay."""
        self.name = folders[-1].rpartition(b"/")[2]
        self.point: Fields = ()
        """Where its own folder is mounted on its way to its place."""
        self.pid = 0
        """Of its first process, or of its keeper where there are no groups."""
        self.is_kept = False
        self.handle = -1
        self.has_exited = False
        self.has_grace = False
        """It was asked to end: what it started is not killed with its first process."""
        self.is_left = False
        """The executor was told that something may be left, and looks after it."""
        self.is_seen_to = False
        """It has done so, maybe before it was told."""
        self.pause = PAUSE_SECONDS_MIN
        self.look_at = 0.0
        self.readings: Fields = ()
