"""An example of a kind that a package brings: says a text in capitals, as often as asked for."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hourhand.model.errors import Fault
from hourhand.model.outcome import Failed, Outcome, Succeeded
from hourhand.model.states import Reason
from hourhand.ports.job_kind import SlotClass, Task


class ShoutKind:
    name = "shout"
    api_version = 1

    def __init__(self) -> None:
        self.slot_class_of: Callable[[str], SlotClass] = lambda need: SlotClass.INLINE

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        """Runs in the API: pure and quick, and every fault at once."""
        faults = [Fault(f"/{name}", "unknown-field", "is not a field here") for name in payload if name not in _FIELDS]
        if not isinstance(payload.get("text"), str) or not payload["text"]:
            faults.append(Fault("/text", "required", "is required: what to say"))
        times = payload.get("times", 1)
        if not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= 1000:
            faults.append(Fault("/times", "out-of-range", "must be a whole number from 1 to 1000"))
        return faults

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return self.name

    def offers(self) -> Sequence[str]:
        return [self.name]

    async def open(self) -> None:
        """Nothing is needed before the first run."""

    async def run(self, task: Task) -> Outcome:
        if faults := self.check(task.payload):
            return Failed(Reason.BAD_ARGUMENTS, faults[0].message, retryable=False)
        text, times = task.payload["text"], task.payload.get("times", 1)
        if text == "fail":
            return Failed(Reason.EXCEPTION, "I was told to fail")
        if text == "wait":
            await asyncio.sleep(1000)  # a cancelled attempt ends here, by CancelledError
        for time in range(1, times + 1):
            task.log("log", text.upper())
            task.progress(100 * time / times, f"{time} of {times}")
            await asyncio.sleep(0)  # others run in this process too
        return Succeeded({"said": times})

    async def close(self) -> None:
        """Nothing was opened."""


_FIELDS = ("text", "times")


def make(settings: object) -> ShoutKind:
    """What the entry point names."""
    return ShoutKind()
