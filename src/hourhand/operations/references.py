"""What jobs name and must exist: calendars, secrets, uploaded code. Asked only of jobs that name any."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from hourhand.model.artifacts import read_reference
from hourhand.model.calendar import CalendarRule
from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.job import JobDefinition
from hourhand.model.schedule import Timing
from hourhand.model.secret_refs import references
from hourhand.operations.calendars import calendar_faults, never_allowed
from hourhand.operations.requests import Caller
from hourhand.ports.artifact_stores import ArtifactStore
from hourhand.ports.calendar_stores import CalendarStore
from hourhand.ports.secret_stores import SecretGrants

Named = tuple[UUID, JobDefinition]
FAULTS_MAX = 1000
VAIN_SEARCHES_MAX = 10
"""So many schedules of a batch are told of which calendars leave nothing: to find one out takes up to a second."""


LookAtTargets = Callable[[Mapping[str, Any]], Awaitable[list[Fault]]]
"""What is wrong with the names that the payload of an HTTP job calls, as far as that can be told beforehand."""
TARGETS_MAX = 100
"""Different payloads of a batch of which that is asked; executors judge all of them."""


class References:
    def __init__(
        self,
        calendars: CalendarStore | None,
        secrets: SecretGrants | None,
        look_at_targets: LookAtTargets | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        self._artifacts = artifacts
        self._calendars = calendars
        self._secrets = secrets
        self._look_at_targets = look_at_targets

    async def with_unknown(self, caller: Caller, named: object, wrong: InvalidFields) -> InvalidFields:
        """What else is wrong with a request whose fields are, so that all is told at once: the calendars it names."""
        told = any(fault.pointer.startswith("/calendars") for fault in wrong.faults)
        if told or self._calendars is None or not isinstance(named, list) or not named:
            return wrong
        return InvalidFields([*wrong.faults, *await calendar_faults(self._calendars, caller.namespace_id, named)])

    async def refuse_missing(
        self, caller: Caller, job: Named, now: datetime, *, timing: bool = True, payload: bool = True
    ) -> None:
        """Of one job; what it says in the fields that are named."""
        faults = await self.calendar_faults(caller, [job[1].timing] if timing else [], now, lambda _: "")
        faults += await self.secret_faults(caller, [job] if payload else [], lambda _: "")
        faults += await self.target_faults([job] if payload else [], lambda _: "")
        faults += await self.artifact_faults(caller, [job] if payload else [], lambda _: "")
        if faults:
            raise InvalidFields(faults)

    async def faults_of_many(self, caller: Caller, jobs: Sequence[Named], now: datetime) -> list[Fault]:
        """Of a batch, with the place of each job."""
        timings = [definition.timing for _, definition in jobs]
        faults = await self.calendar_faults(caller, timings, now, "/{}".format)
        faults += await self.secret_faults(caller, jobs, "/{}".format)
        faults += await self.artifact_faults(caller, jobs, "/{}".format)
        return (faults + await self.target_faults(jobs, "/{}".format))[:FAULTS_MAX]

    async def calendar_faults(
        self, caller: Caller, timings: Sequence[Timing], now: datetime, pointer_of: Callable[[int], str]
    ) -> list[Fault]:
        """Calendars that do not exist, and schedules of which they leave nothing."""
        known: dict[tuple[str, ...], tuple[list[Fault], Mapping[str, CalendarRule]]] = {}
        faults: list[Fault] = []
        vain = 0
        for place, timing in enumerate(timings):
            names = timing.calendars
            if not names:
                continue
            assert self._calendars is not None, "whoever takes jobs with calendars has a store of them"
            if names not in known:
                missing = await calendar_faults(self._calendars, caller.namespace_id, names)
                known[names] = missing, await self._calendars.find(caller.namespace_id, names)
            missing, rules = known[names]
            wrong = missing or await never_allowed(timing, rules, now)
            faults += [fault.under(pointer_of(place)) for fault in wrong]
            vain += bool(wrong) and not missing
            if vain >= VAIN_SEARCHES_MAX or len(faults) >= FAULTS_MAX:
                break
        return faults

    async def artifact_faults(
        self, caller: Caller, jobs: Sequence[Named], pointer_of: Callable[[int], str]
    ) -> list[Fault]:
        """Uploaded code that is not there. Many jobs of a batch run the same, which is asked for once."""
        named = [(place, job.payload["artifact"]) for place, (_, job) in enumerate(jobs) if runs_artifact(job)]
        if self._artifacts is None or not named:
            return []
        missing = set()
        for text in {text for _, text in named}:
            reference = read_reference(text)
            if reference is not None and await self._artifacts.find(caller.namespace_id, reference) is None:
                missing.add(text)
        hint = "upload it first: hourhand artifact upload"
        return [
            Fault(
                f"{pointer_of(place)}/payload/artifact", "unknown-artifact", f"there is no artifact {text[:200]}", hint
            )
            for place, text in named
            if text in missing
        ]

    async def target_faults(self, jobs: Sequence[Named], pointer_of: Callable[[int], str]) -> list[Fault]:
        """Names of servers that lead where jobs may not go."""
        look = self._look_at_targets
        called = [(place, job.payload) for place, (_, job) in enumerate(jobs) if job.kind == "http"]
        if look is None or not called:
            return []
        found = await asyncio.gather(*(look(payload) for _, payload in called[:TARGETS_MAX]))
        return [
            fault.under(f"{pointer_of(place)}/payload")
            for (place, _), faults in zip(called, found, strict=False)
            for fault in faults
        ]

    async def secret_faults(
        self, caller: Caller, jobs: Sequence[Named], pointer_of: Callable[[int], str]
    ) -> list[Fault]:
        """References to secrets that do not exist, are another namespace's, or are not granted to the job: the answer
        does not tell which."""
        wanted = sorted({name for _, definition in jobs for name in definition.policy.secrets})
        if not wanted:
            return []
        assert self._secrets is not None, "whoever takes jobs with secrets has a store of them"
        grants = await self._secrets.find_grants(caller.namespace_id, wanted)
        faults: list[Fault] = []
        for place, (job_id, definition) in enumerate(jobs):
            if not definition.policy.secrets:
                continue
            for pointer, name in references(definition.kind, definition.payload):
                grant = grants.get(name)
                if grant is None or not grant.allows(job_id, definition.name, definition.kind, definition.labels):
                    faults.append(unknown_secret(f"{pointer_of(place)}/payload{pointer}", name))
        return faults


def names_others(definition: JobDefinition) -> bool:
    """Whether there is anything to ask for."""
    if definition.kind == "http" or definition.timing.calendars or definition.policy.secrets:
        return True
    return runs_artifact(definition)


def runs_artifact(definition: JobDefinition) -> bool:
    return definition.kind == "script" and isinstance(definition.payload.get("artifact"), str)


def unknown_secret(pointer: str, name: str) -> Fault:
    # The same whether it is there or not. To set one that is there would take its value from those who may use it.
    hint = (
        f"see which there are, and for whom: hourhand secret list; if it is none of them, make it: hourhand secret set "
        f"{name}; if it is for others, see hourhand secret grant --help"
    )
    return Fault(pointer, "unknown-secret", f"there is no secret {name!r} that this job may use", hint)
