"""What the launcher is told and knows of one program. Part of it, see `launcher_process.py`."""

import os
from _collections_abc import Sequence

Fields = Sequence[bytes]
LONG = b"\0"
"""Sent in place of a packet that would be too long: it lies in a file in memory, the last descriptor beside it."""


class Order:
    """What is to be started, and in what."""

    def __init__(self, lists: Sequence[Fields]) -> None:
        about, how, argv, environment, *rest = lists
        self.number = about[1]
        self.path, self.start_in, contained, self.user, forgets = how
        self.is_contained = contained == b"1"
        """False: in groups and limits, but it may see and gain what its user may."""
        self.forgets_keys = forgets == b"1"
        self.argv = argv
        self.environment = environment
        self.groups, self.writes, self.resets, self.events, self.reads, self.holds, *rest = rest
        """Groups: its own; by the first one its processes are found and killed. Writes: what limits it in them.
        Resets: what is written before somebody else uses them. Events, reads: files that are reported at the end.
        Groups whose events have changed, or that hold many bytes, are not used again."""
        self.limits, self.folders, self.marks = rest
        """Folders: to be removed at the end if they are empty, its own is the last. Marks: when each of these was
        changed last; if none has been since, they stay."""

    @property
    def name(self) -> bytes:
        """Of its own folder."""
        return self.folders[-1].rpartition(b"/")[2]

    def program(self) -> tuple[list[bytes], dict[bytes, bytes], bytes]:
        entries = (entry.partition(b"=") for entry in self.environment)
        return list(self.argv), {name: value for name, _, value in entries}, self.path

    def account(self, common: tuple[int, int] | None) -> tuple[int, int] | None:
        """Who it is: a user of its own in the group of the common account, or that account."""
        return (int(self.user), common[1]) if self.user and common is not None else common


class Attempt:
    """One program, from its request to its report."""

    def __init__(self, order: Order) -> None:
        self.number = order.number
        self.folders = order.folders
        self.marks = order.marks
        self.pid = 0
        """Of its first process, if that is a child of ours."""
        self.handle = -1
        self.has_exited = False
        self.has_grace = False
        """It was asked to end: what it started is not killed with its first process."""
        self.is_left = False
        """The executor was told that something may be left, and looks after it."""
        self.is_seen_to = False
        """It has done so, maybe before it was told."""
        self.status: int | None = None
        self.fault: Fields = (b"", b"0", b"")
        """Which step failed before there was a program, the error's number, and its text."""
        self.took: Fields = (b"0", b"0", b"0", b"0")
        self.readings: Fields = ()
        self.before: Fields = ()
        """What the same files said before, where others have used the groups already."""


def lists_of(data: bytes, handles: Sequence[int] = ()) -> list[Fields]:
    """Lists of fields, each led by its length."""
    if data == LONG:
        data = os.pread(handles[-1], os.fstat(handles[-1]).st_size, 0)
    fields = data.split(b"\0")
    lists: list[Fields] = []
    at = 0
    while at < len(fields):
        count = int(fields[at])
        lists.append(fields[at + 1 : at + 1 + count])
        at += 1 + count
    return lists
