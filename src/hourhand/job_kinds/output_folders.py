"""Folders in which Python handlers leave files, made when one asks and gone when its attempt ends.

They lie in a room of the executor's own, like the folders of programs: what a killed executor leaves is cleared up by
the next one.
"""

import asyncio
from pathlib import Path

from hourhand.job_kinds.child import to_the_end
from hourhand.job_kinds.work_folders import WorkFolders, remove
from hourhand.ports.job_kind import Task


class OutputFolders:
    """Used between `open` and `close`."""

    def __init__(self, root: str | None) -> None:
        self._folders = WorkFolders(root, None)
        self._room: Path | None = None

    def open(self) -> None:
        self._folders.open()
        self._room = self._folders.room

    def close(self) -> None:
        if self._room is not None:
            self._folders.close()

    @property
    def room(self) -> str:
        return str(self._room)

    def make(self, task: Task) -> Path:
        folder = folder_for(self.room, task)
        folder.mkdir(mode=0o700)
        return folder

    async def keep(self, task: Task) -> None:
        """Keeps what is in the attempt's folder and removes it."""
        try:
            if task.keep_outputs is not None:
                await task.keep_outputs(folder_for(self.room, task))
        finally:
            await self.drop(task)

    async def drop(self, task: Task) -> None:
        await to_the_end(lambda _: asyncio.to_thread(remove, folder_for(self.room, task)))


def folder_for(room: str, task: Task) -> Path:
    return Path(room, f"{task.run_id}-{task.fence}")
