"""What every kind of job promises, whichever it is: our own, those of packages, and executables.

Each check is a function that raises AssertionError with what is wrong. With pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_kind(check):
        await check(KindCase(make=MyKind, good={...}, slow={...}, failing={...}, refused={...}))

Without: `asyncio.run(check_kind(case))`.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from hourhand.model.errors import Fault
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.states import Reason
from hourhand.ports.job_kind import JobKind, LogSink, SlotClass, Task

_START_SECONDS: Final = 0.05
_END_SECONDS_MAX: Final = 60.0
_fences = itertools.count(time.time_ns())


@dataclass(frozen=True)
class KindCase:
    """One kind, and payloads that show what it does."""

    make: Callable[[], JobKind]
    """A new one, as an executor has it."""
    good: Mapping[str, Any]
    """Ends well, soon."""
    slow: Mapping[str, Any]
    """Goes on until it is cancelled."""
    failing: Mapping[str, Any]
    """Ends badly, through what it does."""
    refused: Mapping[str, Any]
    """Has a fault that `check` finds."""
    slot_class: SlotClass | None = None
    """The room that it must take; None: any."""
    checking: Callable[[], JobKind] | None = None
    """One as the API has it; None: the same."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of its tasks."""

    def for_api(self) -> JobKind:
        return (self.checking or self.make)()

    def task(self, kind: JobKind, payload: Mapping[str, Any], log: LogSink | None = None) -> Task:
        now, sink = datetime.now(UTC), log or (lambda stream, text: None)
        identity = (uuid4(), uuid4(), "default", "a job", kind.name)
        return Task(*identity, payload, 1, next(_fences), now, sink, **self.fields)


Check = Callable[[KindCase], Awaitable[None]]


async def check_kind(case: KindCase) -> None:
    """All checks, one after the other."""
    for check in CHECKS:
        await check(case)


async def a_good_payload_is_found_good_by_the_api(case: KindCase) -> None:
    for payload in (case.good, case.slow, case.failing):
        faults = case.for_api().check(payload)
        assert not faults, f"a payload that should be good has faults: {faults}"


async def faults_point_below_the_payload(case: KindCase) -> None:
    faults = case.for_api().check(case.refused)
    assert faults, "check finds no fault in the payload that should be refused"
    for fault in faults:
        assert isinstance(fault, Fault), f"{fault!r} is not a Fault"
        assert fault.pointer == "" or fault.pointer.startswith("/"), f"{fault.pointer!r} is no JSON pointer"
        assert fault.code, f"{fault!r} has no code that programs could rely on"
        assert fault.message, f"{fault!r} has no message for people"


async def strange_payloads_are_judged_and_never_raise(case: KindCase) -> None:
    """`check` runs in the API on whatever people send."""
    kind = case.for_api()
    names = [*case.good, *case.refused, "no such field", "", "a/b~c"]
    values: list[Any] = [None, True, -1, 1e308, "", "\0", "é" * 1000, [], [None], {}, {"": None}, [[["deep"]]]]
    for payload in [{}, *({name: value} for name in names for value in values)]:
        faults = kind.check(payload)
        assert isinstance(faults, list), f"check({payload!r}) gives {faults!r} and not a list"
    for name, value in itertools.product(case.good, values):
        kind.check({**case.good, name: value})


async def what_a_good_payload_needs_is_offered(case: KindCase) -> None:
    async with _opened(case) as kind:
        need = kind.needs(case.good, "a job")
        assert need.partition(":")[0] == kind.name, f"the need {need!r} does not begin with the name of the kind"
        assert " " not in need, f"the need {need!r} has a space, which parts it from other demands"
        assert need in kind.offers(), f"{need!r} is not among what is offered: {list(kind.offers())}"
        assert need == case.for_api().needs(case.good, "a job"), "the API and executors name different needs"
        if case.slot_class is not None:
            assert kind.slot_class_of(need) is case.slot_class
        assert kind.slot_class_of("something:else") is SlotClass.INLINE, "what is not offered counts as inline"


async def an_attempt_that_ends_well_succeeds(case: KindCase) -> None:
    async with _opened(case) as kind:
        outcome = await kind.run(case.task(kind, case.good))
        assert isinstance(outcome, Succeeded), f"it ended as {outcome}"


async def attempts_run_side_by_side(case: KindCase) -> None:
    async with _opened(case) as kind:
        outcomes = await asyncio.gather(*(kind.run(case.task(kind, case.good)) for _ in range(10)))
        assert all(isinstance(outcome, Succeeded) for outcome in outcomes), f"they ended as {outcomes}"


async def what_goes_wrong_in_the_job_is_an_outcome(case: KindCase) -> None:
    async with _opened(case) as kind:
        outcome = await kind.run(case.task(kind, case.failing))
        assert isinstance(outcome, Failed), f"it ended as {outcome}"
        assert outcome.error, "a failure needs words that a person can act on"


async def a_payload_with_faults_is_not_run(case: KindCase) -> None:
    """It was checked when it was sent, but a stored job may be older than a rule."""
    async with _opened(case) as kind:
        outcome = await kind.run(case.task(kind, case.refused))
        assert isinstance(outcome, Failed), f"it ended as {outcome}"
        assert outcome.reason in (Reason.BAD_ARGUMENTS, Reason.UNKNOWN_HANDLER), f"the reason is {outcome.reason}"


async def a_cancelled_attempt_raises_when_all_of_it_has_ended(case: KindCase) -> None:
    async with _opened(case) as kind:
        await _cancelled(case, kind)


async def an_attempt_cancelled_before_its_first_step_ends(case: KindCase) -> None:
    async with _opened(case) as kind:
        running = asyncio.ensure_future(kind.run(case.task(kind, case.slow)))
        running.cancel()
        await asyncio.wait({running}, timeout=_END_SECONDS_MAX)
        assert running.cancelled(), "it did not raise CancelledError"


async def an_attempt_runs_after_another_was_cancelled(case: KindCase) -> None:
    async with _opened(case) as kind:
        await _cancelled(case, kind)
        outcome = await kind.run(case.task(kind, case.good))
        assert isinstance(outcome, Succeeded), f"it ended as {outcome}"


async def one_that_is_cancelled_leaves_the_others_alone(case: KindCase) -> None:
    async with _opened(case) as kind:
        good = asyncio.ensure_future(kind.run(case.task(kind, case.good)))
        await _cancelled(case, kind)
        outcome = await good
        assert isinstance(outcome, Succeeded), f"the other one ended as {outcome}"


async def a_kind_can_be_closed_twice_and_opened_again(case: KindCase) -> None:
    async with _opened(case) as kind:
        await kind.close()
        await kind.close()
        await kind.open()
        outcome = await kind.run(case.task(kind, case.good))
        assert isinstance(outcome, Succeeded), f"it ended as {outcome}"


CHECKS: Final[tuple[Check, ...]] = (
    a_good_payload_is_found_good_by_the_api,
    faults_point_below_the_payload,
    strange_payloads_are_judged_and_never_raise,
    what_a_good_payload_needs_is_offered,
    an_attempt_that_ends_well_succeeds,
    attempts_run_side_by_side,
    what_goes_wrong_in_the_job_is_an_outcome,
    a_payload_with_faults_is_not_run,
    a_cancelled_attempt_raises_when_all_of_it_has_ended,
    an_attempt_cancelled_before_its_first_step_ends,
    an_attempt_runs_after_another_was_cancelled,
    one_that_is_cancelled_leaves_the_others_alone,
    a_kind_can_be_closed_twice_and_opened_again,
)


@asynccontextmanager
async def _opened(case: KindCase) -> AsyncIterator[JobKind]:
    kind = case.make()
    await kind.open()
    try:
        yield kind
    finally:
        await kind.close()


async def _cancelled(case: KindCase, kind: JobKind) -> None:
    running = asyncio.ensure_future(kind.run(case.task(kind, case.slow)))
    done, _ = await asyncio.wait({running}, timeout=_START_SECONDS)
    assert not done, f"the slow payload ended by itself: {running}"
    running.cancel()
    await asyncio.wait({running}, timeout=_END_SECONDS_MAX)
    assert running.done(), f"it has not ended {_END_SECONDS_MAX:g} s after it was cancelled"
    assert running.cancelled(), "a cancelled attempt must raise CancelledError"
