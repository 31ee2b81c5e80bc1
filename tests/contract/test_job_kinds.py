"""What every job kind promises, whichever it is. A new kind joins by adding one case."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web

from hourhand.job_kinds.registry import KindSettings, kinds_for_checking, kinds_for_running
from hourhand.model.errors import Fault
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.states import Reason
from hourhand.ports.job_kind import JobKind, SlotClass, Task

SETTINGS = KindSettings(
    handler_modules=("hourhand.job_kinds.samples",),
    allow_private_targets=True,
    grace_seconds=0.2,
    worker_processes_max=2,
)


@dataclass
class Case:
    kind: str
    good: Mapping[str, Any]
    slow: Mapping[str, Any]
    """Runs until it is cancelled."""
    failing: Mapping[str, Any]
    refused: Mapping[str, Any]
    """A payload with a fault that `check` finds."""
    slot_class: SlotClass


CASES = {
    "python, asynchronous": Case(
        "python",
        good={"handler": "demo.hello"},
        slow={"handler": "demo.hello"},
        failing={"handler": "demo.flaky"},
        refused={"handler": "os:system"},
        slot_class=SlotClass.INLINE,
    ),
    "python, synchronous": Case(
        "python",
        good={"handler": "demo.crunch", "seconds": 0.01},
        slow={"handler": "demo.crunch", "seconds": 1000},
        failing={"handler": "demo.crunch", "seconds": "many"},
        refused={"handler": 1},
        slot_class=SlotClass.PROCESS,
    ),
    "command": Case(
        "command",
        good={"argv": ["true"]},
        slow={"argv": ["sleep", "1000"]},
        failing={"argv": ["false"]},
        refused={"argv": "true"},
        slot_class=SlotClass.PROCESS,
    ),
    "script": Case(
        "script",
        good={"source": "exit 0", "language": "bash"},
        slow={"source": "sleep 1000", "language": "bash"},
        failing={"source": "exit 1", "language": "bash"},
        refused={"source": "exit 0"},
        slot_class=SlotClass.PROCESS,
    ),
    "http": Case(
        "http",
        good={"url": "SERVER/ok"},
        slow={"url": "SERVER/slow"},
        failing={"url": "SERVER/missing"},
        refused={"url": "ftp://example.com/"},
        slot_class=SlotClass.INLINE,
    ),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
async def kind(case: Case) -> AsyncIterator[JobKind]:
    kind = kinds_for_running(SETTINGS)[case.kind]
    await kind.open()
    yield kind
    await kind.close()


@pytest.fixture
async def task_for(case: Case) -> AsyncIterator[Callable[[Mapping[str, Any]], Task]]:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/slow":
            await asyncio.Event().wait()
        return web.Response(status=200 if request.path == "/ok" else 404)

    runner = web.AppRunner(web.Application(), handler_cancellation=True, shutdown_timeout=0.1)
    runner.app.router.add_get("/{path}", answer)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"

    def make(payload: Mapping[str, Any]) -> Task:
        filled = {k: v.replace("SERVER", server) if isinstance(v, str) else v for k, v in payload.items()}
        now = datetime.now(UTC)
        run_id, job_id = uuid4(), uuid4()
        return Task(run_id, job_id, "default", "a job", case.kind, filled, 1, time.time_ns(), now, lambda *_: None)

    yield make
    await runner.cleanup()


def test_a_good_payload_is_found_good_by_the_api(case: Case) -> None:
    payload = {key: value for key, value in case.good.items() if key != "url"}
    if "url" in case.good:
        payload["url"] = "https://example.com/"
    assert kinds_for_checking()[case.kind].check(payload) == []


def test_faults_point_below_the_payload(case: Case) -> None:
    faults = kinds_for_checking()[case.kind].check(case.refused)
    assert faults
    for fault in faults:
        assert isinstance(fault, Fault)
        assert fault.pointer == "" or fault.pointer.startswith("/")
        assert fault.code
        assert fault.message


async def test_what_a_good_payload_needs_is_offered(case: Case, kind: JobKind) -> None:
    need = kind.needs(case.good, "a job")
    assert need.partition(":")[0] == kind.name == case.kind
    assert need in kind.offers()
    assert need == kinds_for_checking()[case.kind].needs(case.good, "a job"), "the API and executors agree"
    assert kind.slot_class_of(need) is case.slot_class


async def test_a_need_that_is_not_offered_counts_as_inline(kind: JobKind) -> None:
    assert kind.slot_class_of("something:else") is SlotClass.INLINE


async def test_an_attempt_that_ends_well_succeeds(case: Case, kind: JobKind, task_for: Any) -> None:
    assert isinstance(await kind.run(task_for(case.good)), Succeeded)


async def test_attempts_run_side_by_side(case: Case, kind: JobKind, task_for: Any) -> None:
    outcomes = await asyncio.gather(*(kind.run(task_for(case.good)) for _ in range(10)))
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes)


async def test_what_goes_wrong_in_the_job_is_an_outcome(case: Case, kind: JobKind, task_for: Any) -> None:
    outcome = await kind.run(task_for(case.failing))
    assert isinstance(outcome, Failed)
    assert outcome.error


async def test_a_payload_with_faults_is_not_run(case: Case, kind: JobKind, task_for: Any) -> None:
    outcome = await kind.run(task_for(case.refused))
    assert isinstance(outcome, Failed)
    assert outcome.reason in (Reason.BAD_ARGUMENTS, Reason.UNKNOWN_HANDLER)


async def test_a_cancelled_attempt_raises_when_all_of_it_has_ended(case: Case, kind: JobKind, task_for: Any) -> None:
    running = asyncio.create_task(kind.run(task_for(case.slow)))
    await asyncio.wait({running}, timeout=0.02)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_attempt_runs_after_another_was_cancelled(case: Case, kind: JobKind, task_for: Any) -> None:
    running = asyncio.create_task(kind.run(task_for(case.slow)))
    await asyncio.wait({running}, timeout=0.02)
    running.cancel()
    await asyncio.wait({running})
    assert isinstance(await kind.run(task_for(case.good)), Succeeded)


async def test_a_kind_can_be_closed_twice_or_unopened_and_opened_again(
    case: Case, kind: JobKind, task_for: Any
) -> None:
    await kind.close()
    await kind.close()
    await kind.open()
    assert isinstance(await kind.run(task_for(case.good)), Succeeded)
