import asyncio

import pytest

from hourhand.job_kinds.handlers import Context, HandlerRegistry, NoRetry, RetryAfter, Snooze
from hourhand.job_kinds.python import PythonKind
from hourhand.model.outcome import Failed, Snoozed, Succeeded
from hourhand.model.retry import RetryPolicy
from hourhand.model.states import Reason
from hourhand.ports.job_kind import SlotClass


@pytest.fixture
def registry():
    return HandlerRegistry()


@pytest.fixture
def kind(registry):
    return PythonKind(registry)


@pytest.fixture
def run(registry, kind, make_task):
    async def run_function(function, payload=None):
        registry.register(function, "x")
        return await kind.run(make_task({"handler": "x", **(payload or {})}).task)

    return run_function


async def test_a_handler_that_returns_nothing_succeeds_without_a_result(run):
    async def handler(): ...

    assert await run(handler) == Succeeded(None)


async def test_a_returned_value_becomes_plain_json(run):
    async def handler(n):
        return {"n": n, 1: (2, 3)}

    assert await run(handler, {"n": 5}) == Succeeded({"n": 5, "1": [2, 3]})


async def test_nul_in_a_result_is_replaced_because_the_database_refuses_it(run):
    async def handler():
        return {"a\0": ["b\0c"]}

    assert await run(handler) == Succeeded({"a␀": ["b␀c"]})


async def test_a_value_that_is_not_json_fails_the_attempt(run):
    async def handler():
        return object()

    outcome = await run(handler)
    assert outcome.reason is Reason.EXCEPTION
    assert outcome.error.startswith("the handler returned something that is not JSON:")


async def test_a_result_above_the_limit_is_not_worth_a_retry(run):
    async def handler():
        return "x" * (256 * 1024)

    outcome = await run(handler)
    assert (outcome.reason, outcome.retryable) == (Reason.RESULT_TOO_LARGE, False)


async def test_an_exception_is_told_with_its_place_and_without_our_frames(run):
    async def handler():
        raise ValueError("no such customer")

    outcome = await run(handler)
    assert outcome.reason is Reason.EXCEPTION
    assert outcome.retryable
    assert outcome.error.startswith("ValueError: no such customer\n")
    assert outcome.error.endswith('raise ValueError("no such customer")')
    assert "job_kinds/python.py" not in outcome.error


async def test_a_handler_can_refuse_to_be_retried(run):
    async def handler():
        raise NoRetry("the account is closed")

    outcome = await run(handler)
    assert not outcome.retryable
    assert "the account is closed" in outcome.error


async def test_a_handler_can_ask_for_its_own_delay(run):
    async def handler():
        raise RetryAfter(90)

    assert (await run(handler)).retry_after_seconds == 90


@pytest.mark.parametrize(("asked", "seconds"), [(60, 60), (-1, 0), (float("inf"), 7 * 86_400)])
async def test_a_handler_can_snooze_for_a_week_at_most(run, asked, seconds):
    async def handler():
        raise Snooze(asked, "not before noon")

    assert await run(handler) == Snoozed(seconds, "not before noon")


class NoAnswer(ConnectionError):
    pass


@pytest.mark.parametrize(
    ("entry", "known"),
    [
        ("NoAnswer", True),
        (f"{NoAnswer.__module__}.NoAnswer", True),
        ("ConnectionError", True),
        ("builtins.OSError", True),
        ("KeyError", False),
        ("other.NoAnswer", False),
    ],
)
async def test_a_failure_is_known_by_its_class_and_those_it_descends_from(run, entry, known):
    async def handler():
        raise NoAnswer("nobody there")

    outcome = await run(handler)
    assert RetryPolicy(on=(entry,)).tries_again(outcome.reason, outcome.tags, outcome.retryable) is known


@pytest.mark.parametrize(
    ("asked", "policy", "again"),
    [(NoRetry("closed"), RetryPolicy(on=("Exception",)), False), (RetryAfter(5), RetryPolicy(on=("exit:3",)), True)],
)
async def test_what_a_handler_asks_for_itself_is_stronger_than_the_lists_of_its_job(run, asked, policy, again):
    async def handler():
        raise asked

    outcome = await run(handler)
    assert policy.tries_again(outcome.reason, outcome.tags, outcome.retryable) is again


async def test_arguments_that_do_not_fit_are_not_retried(run):
    async def handler(a): ...

    assert await run(handler, {"b": 1}) == Failed(
        Reason.BAD_ARGUMENTS,
        "handler 'x': missing argument 'a', unexpected argument 'b'; it takes 'a'",
        retryable=False,
    )


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
async def test_nothing_that_a_handler_raises_ends_the_executor(run, error):
    async def handler():
        raise error

    assert (await run(handler)).reason is Reason.EXCEPTION


async def test_a_context_says_what_a_job_may_know(registry, kind, make_task):
    seen = []

    async def handler(ctx: Context):
        ctx.log("one\ntwo")
        seen.append((ctx.run_id, ctx.job_id, ctx.job_name, ctx.namespace, ctx.attempt, ctx.fence_token))
        seen.append((ctx.idempotency_key, ctx.scheduled_time, ctx.cancelled))

    registry.register(handler, "nightly")
    task, lines = make_task({}, attempt=2)
    assert await kind.run(task) == Succeeded(None)
    assert seen == [
        (task.run_id, task.job_id, "nightly", "default", 2, task.fence),
        (str(task.run_id), task.scheduled_for, False),
    ]
    assert lines == [("log", "one"), ("log", "two")]


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


async def test_an_unknown_handler_fails_the_attempt(kind, make_task):
    outcome = await kind.run(make_task({"handler": "gone"}).task)
    assert outcome.reason is Reason.UNKNOWN_HANDLER
    assert "'gone'" in outcome.error


def test_needs_name_the_handler_or_else_the_job(kind):
    assert kind.needs({"handler": "reports.build"}, "Nightly report") == "python:reports.build"
    assert kind.needs({}, "Daily Data Cleanup") == "python:daily-data-cleanup"


def test_offers_and_rooms_follow_the_registered_handlers(registry, kind):
    async def quick(): ...
    def slow(): ...

    registry.register(quick)
    registry.register(slow)
    assert kind.offers() == ["python:quick", "python:slow"]
    assert kind.slot_class_of("python:quick") is SlotClass.INLINE
    assert kind.slot_class_of("python:slow") is SlotClass.PROCESS
    assert kind.slot_class_of("python:unknown") is SlotClass.INLINE


@pytest.mark.parametrize("name", ["os:system", "builtins:eval", "..x:y", "", "Reports"])
def test_names_that_are_no_handlers_are_refused_at_submission(kind, name):
    [fault] = kind.check({"handler": name})
    assert (fault.pointer, fault.code) == ("/handler", "function-not-registered")


def test_a_handler_field_of_the_wrong_type_is_refused(kind):
    assert [fault.code for fault in kind.check({"handler": 3})] == ["wrong-type"]


def test_a_known_signature_is_checked_at_submission(registry, kind):
    async def build(customer): ...

    registry.register(build)
    [fault] = kind.check({"handler": "build", "custommer": 1})
    assert fault.code == "signature-mismatch"
    assert "missing argument 'customer'" in fault.message
    assert kind.check({"handler": "build", "customer": 1}) == []
    assert kind.check({"anything": 1}) == []
