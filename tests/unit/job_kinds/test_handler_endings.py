"""Asynchronous handlers that are told to end: they do, or they are left behind."""

import asyncio
import contextlib
import dataclasses
import gc

import pytest

from hourhand.job_kinds import abandonable
from hourhand.job_kinds.handlers import HandlerRegistry
from hourhand.job_kinds.python import PythonKind
from hourhand.job_kinds.worker_pool import WorkerPoolSettings
from hourhand.model.outcome import Succeeded
from hourhand.ports.job_kind import NO_MORE_GRACE


@pytest.fixture
def registry():
    return HandlerRegistry()


@pytest.fixture
def kind(registry):
    return PythonKind(registry)


async def test_cancelling_a_run_cancels_its_handler(registry, kind, make_task):
    begun, ended = asyncio.Event(), []

    async def handler():
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    registry.register(handler, "nightly")
    running = asyncio.create_task(kind.run(make_task({}).task))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == [True]


@pytest.mark.parametrize("raises", [False, True])
async def test_a_cancelled_run_never_succeeds_even_if_its_handler_ignores_it(registry, kind, make_task, raises):
    begun = asyncio.Event()

    async def handler():
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if raises:
                raise ValueError("while cleaning up") from None

    registry.register(handler, "nightly")
    running = asyncio.create_task(kind.run(make_task({}).task))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.fixture
def deaf(registry):
    """A kind without grace, with a handler that goes on whatever it is told, and how often it was told."""
    told = []

    async def handler(begun: asyncio.Event):
        while True:
            try:
                begun.set()
                await asyncio.Event().wait()
            except BaseException as fault:
                told.append(type(fault))

    begun = asyncio.Event()
    registry.register(lambda: handler(begun), "deaf")
    registry.by_name["deaf"] = dataclasses.replace(registry.by_name["deaf"], is_async=True)
    return PythonKind(registry, WorkerPoolSettings(grace_seconds=0.0)), begun, told


async def test_a_handler_that_ignores_its_cancellation_is_never_resumed_again_after_the_grace(deaf, make_task):
    kind, begun, told = deaf
    running = asyncio.create_task(kind.run(make_task({"handler": "deaf"}).task))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gc.collect()
    assert told == [asyncio.CancelledError], "it was told once, and nothing reached it afterwards"


async def test_a_handler_that_ignores_its_timeout_has_timed_out_after_the_grace(deaf, make_task):
    kind, _, told = deaf
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await kind.run(make_task({"handler": "deaf"}).task)
    assert told == [asyncio.CancelledError]
    assert asyncio.current_task().cancelling() == 0, "whoever awaited it is not cancelled itself"


async def test_without_any_more_grace_a_handler_is_left_behind_at_once(registry, make_task, deaf):
    _, begun, told = deaf
    kind = PythonKind(registry, WorkerPoolSettings(grace_seconds=3600.0))
    running = asyncio.create_task(kind.run(make_task({"handler": "deaf"}).task))
    await begun.wait()
    begun.clear()
    running.cancel()
    await begun.wait()
    running.cancel(NO_MORE_GRACE)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert told == [asyncio.CancelledError]


async def test_timeouts_inside_a_handler_are_its_own_affair(registry, make_task):
    async def handler():
        for _ in range(3):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.001):
                    await asyncio.Event().wait()
        await asyncio.sleep(0.01)
        return "done"

    registry.register(handler, "patient")
    kind = PythonKind(registry, WorkerPoolSettings(grace_seconds=0.0))
    assert await kind.run(make_task({"handler": "patient"}).task) == Succeeded("done")


async def test_handlers_that_are_left_behind_are_counted_told_seldom_and_bounded(
    registry, make_task, deaf, monkeypatch
):
    kind, begun, told = deaf
    lines, full = [], []
    monkeypatch.setattr(abandonable, "LEFT_MAX", 250)
    monkeypatch.setattr(abandonable, "emit", lambda event, **fields: lines.append(fields["abandoned"]))
    kind.left_behind.on_full = lambda: full.append(kind.left_behind.count)
    for _ in range(260):
        begun.clear()
        running = asyncio.create_task(kind.run(make_task({"handler": "deaf"}).task))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    gc.collect()
    assert kind.left_behind.count == 260
    assert lines == [*range(1, 11), 100, 200], "not a line each, and never another number than that of all"
    assert full == [250], "whoever runs it is asked once for a new process"
    assert set(told) == {asyncio.CancelledError}, "none of them is resumed to make room"
