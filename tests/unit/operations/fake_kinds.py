"""A kind that takes any payload with a number `n` in it, for tests of what surrounds kinds."""

from collections.abc import Mapping, Sequence
from typing import Any

from hourhand.model.errors import Fault
from hourhand.model.outcome import Outcome, Succeeded
from hourhand.ports.job_kind import JobKind, SlotClass, Task


class NumberKind:
    name = "number"

    def slot_class_of(self, need: str) -> SlotClass:
        return SlotClass.INLINE

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        return [] if isinstance(payload.get("n"), int) else [Fault("/n", "required", "a number is needed")]

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return "number"

    def offers(self) -> Sequence[str]:
        return ["number"]

    async def open(self) -> None: ...

    async def run(self, task: Task) -> Outcome:
        return Succeeded()

    async def close(self) -> None: ...


KINDS: Mapping[str, JobKind] = {"number": NumberKind()}
