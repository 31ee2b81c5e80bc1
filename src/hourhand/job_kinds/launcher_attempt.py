"""What the launcher is told and knows of one program. Part of it, see `launcher_process.py`."""

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
        self.is_named = False
        """It has a list of accounts of its own."""
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


def environment_of(entries: Fields) -> dict[bytes, bytes]:
    return {name: value for name, _, value in (entry.partition(b"=") for entry in entries)}


def lists_of(data: bytes) -> list[Fields]:
    """Lists of fields, each led by its length."""
    fields = data.split(b"\0")
    lists: list[Fields] = []
    at = 0
    while at < len(fields):
        count = int(fields[at])
        lists.append(fields[at + 1 : at + 1 + count])
        at += 1 + count
    return lists
