"""What a caller may ask of a job's versions: who changed what and when, what differs, and an earlier one back."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.model.errors import Conflict, NotFound
from hourhand.model.job import Job, JobDefinition
from hourhand.model.local_time import ZoneFault
from hourhand.model.states import JobState
from hourhand.model.versions import FieldChange, Version, differences
from hourhand.operations.calendars import faults_around
from hourhand.operations.definition import faults_with_template, words_of
from hourhand.operations.jobs import Clock, refuse_other_version
from hourhand.operations.references import References
from hourhand.operations.requests import Caller, Changed
from hourhand.ports.calendar_stores import CalendarStore
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.job_kind import JobKind
from hourhand.ports.secret_stores import SecretGrants
from hourhand.ports.stores import JobStore
from hourhand.ports.version_stores import VersionStore

FAULTS_TOLD: Final = 3


class VersionEntry(msgspec.Struct, frozen=True):
    version: Version
    words: dict[str, Any]
    """The definition as a caller would write it."""
    changes: list[FieldChange] | None
    """Against the version before; None for the first one."""


class RollBackRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    version: int | None = None
    """The version to return to; the one before the current one if none is given."""


class Difference(msgspec.Struct, frozen=True):
    start: int
    end: int
    changes: list[FieldChange]


Entries = list[VersionEntry]


class VersionOperations:
    def __init__(
        self,
        versions: VersionStore,
        jobs: JobStore,
        calendars: CalendarStore,
        kinds: Mapping[str, JobKind],
        clock: Clock,
        bus: EventBus,
        secrets: SecretGrants | None = None,
    ) -> None:
        self._references = References(calendars, secrets)
        self._versions = versions
        self._jobs = jobs
        self._calendars = calendars
        self._kinds = kinds
        self._clock = clock
        self._bus = bus

    async def list(self, caller: Caller, job_id: UUID, before: int | None, limit: int) -> Entries:
        """The newest first."""
        await self._job(caller, job_id)
        # One more, to know what the oldest of them has changed.
        found = await self._versions.list_versions(caller.namespace_id, job_id, before, limit + 1)
        return _entries(found)[:limit]

    async def get(self, caller: Caller, job_id: UUID, version: int) -> VersionEntry:
        await self._job(caller, job_id)
        found = await self._versions.list_versions(caller.namespace_id, job_id, version + 1, 2)
        if not found or found[0].version != version:
            raise NotFound("version", version)
        return _entries(found)[0]

    async def diff(self, caller: Caller, job_id: UUID, start: int | None, end: int | None) -> Difference:
        """What differs between two versions. Without the later one, the current one is meant; without the earlier one,
        the one before it."""
        job = await self._job(caller, job_id)
        later = job.version if end is None else end
        earlier = max(later - 1, 1) if start is None else start
        old, new = await self._version(caller, job_id, earlier), await self._version(caller, job_id, later)
        changes = differences(definition_words(old.definition), definition_words(new.definition))
        return Difference(earlier, later, changes)

    async def roll_back(
        self, caller: Caller, job_id: UUID, version: int | None, if_version: int | None = None
    ) -> Changed:
        """Makes an earlier definition the newest version. It counts from now on: due times that it has in the past are
        not run again."""
        for _ in range(5):
            job = await self._job(caller, job_id)
            refuse_other_version(job, if_version)
            if job.state is JobState.CANCELLED:
                raise Conflict("job-cancelled", "a cancelled job cannot be changed: create a new one")
            if version is None and job.version == 1:
                raise Conflict("no-earlier-version", "the job has never been changed: there is nothing to return to")
            wanted = await self._version(caller, job_id, job.version - 1 if version is None else version)
            if wanted.version == job.version:
                return Changed(job, [])
            now = self._clock.now()
            definition = await self._usable(caller, job_id, wanted, now)
            too_late = await self._jobs.change_job(
                caller.namespace_id, job_id, definition, job.version, definition.timing.next_after(now), now,
                caller.name,
            )  # fmt: skip
            if too_late is not None:
                self._bus.publish(Topic.READY)
                return Changed(await self._job(caller, job_id), too_late)
            if version is None:  # somebody else has changed it: the one before is another one now
                version = wanted.version
        raise Conflict("busy", "the job is being changed by others again and again; try once more")

    # --- steps -------------------------------------------------------------------------------------------

    async def _job(self, caller: Caller, job_id: UUID) -> Job:
        job = await self._jobs.get_job(caller.namespace_id, job_id)
        if job is None:
            raise NotFound("job", job_id)
        return job

    async def _version(self, caller: Caller, job_id: UUID, version: int) -> Version:
        found = await self._versions.get_version(caller.namespace_id, job_id, version)
        if found is None:
            raise NotFound("version", version)
        return found

    async def _usable(self, caller: Caller, job_id: UUID, wanted: Version, now: datetime) -> JobDefinition:
        """The definition, if it can still be run: kinds, handlers, zones, calendars, secrets may have gone since."""
        definition = wanted.definition
        kind = self._kinds.get(definition.kind)
        if kind is None:
            raise _unusable(wanted, [f"there is no kind {definition.kind!r}"])
        faults = faults_with_template(definition.payload, kind)
        if faults:
            raise _unusable(wanted, [f"/payload{fault.pointer}: {fault.message}" for fault in faults[:FAULTS_TOLD]])
        timing = definition.timing
        try:
            timing.next_after(wanted.changed_at)
            wrong = await faults_around(self._calendars, caller.namespace_id, timing, now) if timing.calendars else []
        except ZoneFault as fault:
            raise _unusable(wanted, [str(fault)]) from None
        wrong += await self._references.secret_faults(caller, [(job_id, definition)], lambda _: "")
        if wrong:
            raise _unusable(wanted, [fault.message for fault in wrong[:FAULTS_TOLD]])
        return msgspec.structs.replace(definition, needs=kind.needs(definition.payload, definition.name))


def _unusable(wanted: Version, why: Sequence[str]) -> Conflict:
    return Conflict("version-unusable", f"version {wanted.version} cannot be used any more: {'; '.join(why)}")


def _entries(versions: Sequence[Version]) -> Entries:
    words = [definition_words(version.definition) for version in versions]
    entries = []
    for place, version in enumerate(versions):
        older = words[place + 1] if place + 1 < len(words) else None
        changes = None if older is None else differences(older, words[place])
        entries.append(VersionEntry(version, words[place], changes))
    return entries


def definition_words(definition: JobDefinition) -> dict[str, Any]:
    """The definition as a caller would write it, made of plain values only."""
    words: dict[str, Any] = msgspec.to_builtins(words_of(definition))
    words["schedule"] = [{key: each[key] for key in each if key != "if_past"} for each in words["schedule"]]
    return words
