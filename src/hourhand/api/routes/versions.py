"""/api/v1/jobs/{job_id}/versions: every definition a job has had, what differs, and the way back."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.api.answers import Answer, json_answer
from hourhand.api.decoding import decode_optional_body
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.parameters import IF_MATCH, Parameter, limit_parameter
from hourhand.api.routes.jobs import changed_answer
from hourhand.api.views import ChangeView
from hourhand.model.versions import FieldChange
from hourhand.operations.versions import RollBackRequest, VersionEntry, VersionOperations

_JOB: Final = "/api/v1/jobs/{job_id}"
_NUMBER_MAX: Final = 2_000_000_000
_NUMBER: Final = {"type": "integer", "minimum": 1, "maximum": _NUMBER_MAX}
_BEFORE: Final = Parameter("before", "Only versions below this one.", _NUMBER)
_FROM: Final = Parameter("from", "The earlier version; by default the one before the later.", _NUMBER)
_TO: Final = Parameter("to", "The later version; by default the current one.", _NUMBER)


class FieldChangeView(msgspec.Struct):
    field: str
    """A JSON pointer into the definition."""
    before: Any
    after: Any


class VersionView(msgspec.Struct):
    version: int
    changed_at: datetime
    changed_by: str
    definition: dict[str, Any]
    """As it would be sent."""
    changes: list[FieldChangeView] | None
    """Against the version before; None for the first."""


class VersionsView(msgspec.Struct):
    versions: list[VersionView]


class DiffView(msgspec.Struct, rename={"start": "from", "end": "to"}):
    job_id: UUID
    start: int
    end: int
    changes: list[FieldChangeView]


class VersionRoutes:
    def __init__(self, versions: VersionOperations) -> None:
        self._versions = versions

    def endpoints(self) -> list[Endpoint]:
        tag = "versions"
        return [
            Endpoint(
                "GET", _JOB + "/versions", self.list_versions, tag, "Who changed it, when, and what", VersionsView,
                parameters=(limit_parameter(50, 500), _BEFORE),
            ),
            Endpoint("GET", _JOB + "/versions/{version}", self.get, tag, "One version", VersionView),
            Endpoint(
                "GET", _JOB + "/diff", self.diff, tag, "What differs between two versions", DiffView,
                parameters=(_FROM, _TO),
            ),
            Endpoint(
                "POST", _JOB + "/rollback", self.roll_back, tag, "Make an earlier version the newest", ChangeView, 200,
                RollBackRequest, body_required=False, headers=(IF_MATCH,),
            ),
        ]  # fmt: skip

    async def list_versions(self, call: Call) -> Answer:
        limit = call.query.integer("limit", 50, 1, 500)
        found = await self._versions.list(call.caller, call.id("job_id"), _number(call, "before"), limit)
        return json_answer(VersionsView([_view(entry) for entry in found]))

    async def get(self, call: Call) -> Answer:
        return json_answer(_view(await self._versions.get(call.caller, call.id("job_id"), call.number("version"))))

    async def diff(self, call: Call) -> Answer:
        job_id = call.id("job_id")
        found = await self._versions.diff(call.caller, job_id, _number(call, "from"), _number(call, "to"))
        return json_answer(DiffView(job_id, found.start, found.end, _changes(found.changes)))

    async def roll_back(self, call: Call) -> Answer:
        if_version = call.if_version()
        version = decode_optional_body(call.body, RollBackRequest).version
        return changed_answer(await self._versions.roll_back(call.caller, call.id("job_id"), version, if_version))


def _number(call: Call, name: str) -> int | None:
    return None if call.query.text(name) is None else call.query.integer(name, 1, 1, _NUMBER_MAX)


def _view(entry: VersionEntry) -> VersionView:
    version = entry.version
    changes = None if entry.changes is None else _changes(entry.changes)
    return VersionView(version.version, version.changed_at, version.changed_by, entry.words, changes)


def _changes(changes: Sequence[FieldChange]) -> list[FieldChangeView]:
    return [FieldChangeView(change.field, change.before, change.after) for change in changes]
