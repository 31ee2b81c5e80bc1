import asyncio
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from hourhand.job_kinds.answers import encoded_result
from hourhand.job_kinds.handlers import Context, HandlerRegistry, NoRetry, RetryAfter, Snooze
from hourhand.job_kinds.python import PythonKind
from hourhand.job_kinds.worker_pool import WorkerPoolSettings
from hourhand.model.outcome import Failed, Snoozed, Succeeded
from hourhand.model.retry import RetryPolicy
from hourhand.model.run_blobs import RESULT_BYTES_HARD_MAX, LargeResult
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


@dataclass
class Measured:
    value: float | None


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, [1.5, -math.inf], {"a": {"b": (None, math.nan)}}, Measured(math.nan)],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_number_that_json_does_not_have_fails_the_attempt(run, value, is_async):
    async def handler():
        return value

    outcome = await run(handler) if is_async else encoded_result(value)
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.EXCEPTION
    assert "not JSON: the number" in outcome.error


@pytest.mark.parametrize("value", [[None], {"null": 1.5}, "null", Measured(None), {"a": {None, 1}}])
async def test_what_is_meant_as_null_stays_null(run, value):
    async def handler():
        return value

    assert isinstance(await run(handler), Succeeded)


async def test_bytes_become_base64_and_times_become_text(run):
    async def handler():
        return [b"\xff\x00", datetime(2026, 1, 2, tzinfo=UTC)]

    assert await run(handler) == Succeeded(["/wA=", "2026-01-02T00:00:00Z"])


async def test_a_result_above_the_limit_is_not_worth_a_retry(run):
    async def handler():
        return "x" * RESULT_BYTES_HARD_MAX

    outcome = await run(handler)
    assert (outcome.reason, outcome.retryable) == (Reason.RESULT_TOO_LARGE, False)


async def test_a_result_that_is_too_large_for_a_row_is_handed_on_as_it_is(run):
    async def handler():
        return "x" * (256 * 1024)

    assert await run(handler) == Succeeded(LargeResult(b'"' + b"x" * (256 * 1024) + b'"'))


@pytest.fixture
async def opened(registry, tmp_path):
    kinds = []

    async def open_kind(function):
        registry.register(function, "x")
        kind = PythonKind(registry, WorkerPoolSettings(work_root=str(tmp_path)))
        kinds.append(kind)
        await kind.open()
        return kind

    yield open_kind
    for kind in kinds:
        await kind.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name == "report.txt"] == []


def keeping(task):
    kept = []

    async def keep(folder):
        kept.append({path.name: path.read_text() for path in folder.iterdir()})

    task.keep_outputs = keep
    return kept


@pytest.mark.parametrize("fails", [False, True])
async def test_files_in_the_output_folder_are_kept_when_the_handler_ends(opened, make_task, fails):
    async def handler(ctx):
        (ctx.output_folder / "report.txt").write_text("done")
        assert ctx.output_folder == ctx.output_folder
        if fails:
            raise ValueError("too late")

    task = make_task({"handler": "x"}).task
    kept = keeping(task)
    outcome = await (await opened(handler)).run(task)

    assert isinstance(outcome, Failed) is fails
    assert kept == [{"report.txt": "done"}]


async def test_a_handler_that_leaves_no_files_has_no_folder(opened, make_task):
    async def handler(ctx): ...

    task = make_task({"handler": "x"}).task
    kept = keeping(task)
    await (await opened(handler)).run(task)

    assert kept == []


async def test_files_of_a_cancelled_handler_go_with_it(opened, make_task):
    under_way = asyncio.Event()

    async def handler(ctx):
        (ctx.output_folder / "report.txt").write_text("half")
        under_way.set()
        await asyncio.Event().wait()

    task = make_task({"handler": "x"}).task
    kept = keeping(task)
    running = asyncio.create_task((await opened(handler)).run(task))
    await under_way.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert kept == []


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
    missing, extra = kind.check({"handler": "build", "custommer": 1})
    assert (missing.pointer, missing.code) == ("/customer", "signature-mismatch")
    assert (extra.pointer, extra.code, extra.hint) == ("/custommer", "signature-mismatch", "did you mean 'customer'?")
    assert kind.check({"handler": "build", "customer": 1, "secrets": ["a"]}) == []
    assert [fault.code for fault in kind.check({"handler": "build", "customer": 1, "secrets": [""]})] == [
        "invalid-reference"
    ]
    assert kind.check({"handler": "build", "customer": 1}) == []
    assert kind.check({"anything": 1}) == []


def told_by(*handlers, **more):
    """The facts of an executor with these handlers, after a journey as JSON."""
    registry = HandlerRegistry()
    for name, function in handlers:
        registry.register(function, name)
    kind = PythonKind(registry)
    return json.loads(json.dumps({"offers": {"inline": list(kind.offers())}, **kind.facts(), **more}))


def free(ctx): ...


def old(month, rows=1): ...


def new(month, year): ...


def codes(kind, payload):
    return [(fault.pointer, fault.code) for fault in kind.check({"handler": "r.build", **payload})]


def test_payloads_are_checked_by_what_executors_say_of_their_handlers(kind):
    kind.known.learn([told_by(("r.build", old))])
    assert codes(kind, {"month": 1}) == []
    assert codes(kind, {"month": 1, "rows": 2}) == []
    assert codes(kind, {"moth": 1, "x": 2}) == [
        ("/month", "signature-mismatch"),
        ("/moth", "signature-mismatch"),
        ("/x", "signature-mismatch"),
    ]
    assert kind.check({"handler": "r.other", "x": 1}) == [], "it may be there tomorrow"


def test_while_executors_differ_a_payload_must_fit_one_of_them(kind):
    kind.known.learn([told_by(("r.build", old)), told_by(("r.build", new))])
    assert codes(kind, {"month": 1, "rows": 2}) == []
    assert codes(kind, {"month": 1, "year": 2}) == []
    assert codes(kind, {"month": 1, "rows": 1, "year": 2}) == [("/year", "signature-mismatch")]


def test_an_executor_that_says_nothing_of_a_handler_leaves_it_unjudged(kind):
    silent = {"offers": {"inline": ["python:r.build"]}}
    for other in (silent, told_by(("r.build", free))):
        kind.known.learn([told_by(("r.build", old)), other])
        assert codes(kind, {"x": 1}) == []


@pytest.mark.parametrize("told", [3, [], {"r.build": 3}, {"r.build": [["a"], 3, True]}, {"r.build": [[1], [], False]}])
def test_what_is_told_in_no_right_form_is_passed_over(kind, told):
    kind.known.learn([{"handlers": told, "offers": {"inline": [3, "python:r.build"], "process": 7}}])
    assert codes(kind, {"x": 1}) == []


def test_what_is_told_is_bounded():
    def many(): ...

    exec_parameters = ", ".join(f"p{number}" for number in range(51))
    space = {}
    exec(f"def wide({exec_parameters}): ...", space)
    told = told_by(*((f"h{number}", many) for number in range(250)), ("wide", space["wide"]))["handlers"]
    assert len(told) == 200
    assert "wide" not in told_by(("wide", space["wide"]))["handlers"]


async def test_progress_and_secrets_reach_asynchronous_handlers(registry, kind, make_task):
    async def build(ctx, steps):
        ctx.progress(50, "half")
        ctx.progress(None)
        return [ctx.secret("word"), steps]

    registry.register(build)
    task = make_task({"handler": "build", "steps": 2, "secrets": ["word"]}).task
    said = []
    task.progress = lambda percent, message: said.append((percent, message))
    task.secrets = {"word": "hush"}
    assert await kind.run(task) == Succeeded(["hush", 2])
    assert said == [(50, "half"), (None, "")]
