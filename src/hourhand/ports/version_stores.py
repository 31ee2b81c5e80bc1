"""Every definition that jobs have had, as it is read. It is written with each change of a job."""

from typing import Protocol
from uuid import UUID

from hourhand.model.versions import Version


class VersionStore(Protocol):
    async def list_versions(self, namespace_id: int, job_id: UUID, before: int | None, limit: int) -> list[Version]:
        """The newest first, the current one among them; those below `before`. Empty for a job that is not there."""

    async def get_version(self, namespace_id: int, job_id: UUID, version: int) -> Version | None: ...
