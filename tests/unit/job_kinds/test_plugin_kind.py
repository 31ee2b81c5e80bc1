import asyncio
import json
import sys
import textwrap

import pytest

from hourhand.job_kinds import plugin_hello, registry
from hourhand.job_kinds.lines import LINE_BYTES_MAX
from hourhand.job_kinds.plugin import PluginKind
from hourhand.job_kinds.plugin_hello import ask_hello
from hourhand.job_kinds.plugin_protocol import Description, HelloFault, read_message
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.job_kinds.registry import KindSettings, kinds_for_checking, kinds_for_running
from hourhand.model.errors import BadConfiguration
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.states import Reason

PATH = "/usr/bin:/bin"


def python(source: str) -> list[str]:
    return ["/usr/bin/python3", "-u", "-c", textwrap.dedent(source)]


@pytest.fixture
async def attempt(make_task):
    made = []

    async def run(source, payload=None, **settings):
        kind = PluginKind(
            "demo", python(source), ProgramRunner(ProgramSettings(grace_seconds=0.3)), Description({}), **settings
        )
        await kind.open()
        made.append(kind)
        logged = make_task(payload or {}, kind="demo")
        seen = []
        logged.task.progress = lambda percent, message: seen.append((percent, message))
        return await kind.run(logged.task), logged, seen

    yield run
    for kind in made:
        await kind.close()


async def test_what_is_said_becomes_log_progress_and_result(attempt):
    outcome, logged, progress = await attempt(
        """
        import json, sys
        request = json.loads(sys.stdin.readline())
        print(json.dumps({"type": "log", "message": "one\\ntwo"}))
        print(json.dumps({"type": "progress", "percent": 250, "message": "far"}))
        print(json.dumps({"type": "progress", "percent": None}))
        print("to stderr", file=sys.stderr)
        print(json.dumps({"type": "result", "value": {"payload": request["payload"], "attempt": request["attempt"]}}))
        """,
        {"n": 1, "secrets": ["TOKEN"]},
    )
    assert outcome == Succeeded({"payload": {"n": 1}, "attempt": 1})
    assert logged.of("log") == ["one", "two"]
    assert logged.of("stderr") == ["to stderr"]
    assert progress == [(100.0, "far"), (None, "")]


async def test_a_failure_is_told_with_its_wish_for_another_try(attempt):
    outcome, _, _ = await attempt("""print('{"type": "fail", "message": "later", "retry": true, "retry_after": 30}')""")
    assert outcome == Failed(Reason.EXCEPTION, "later", True, 30)
    outcome, _, _ = await attempt("""print('{"type": "fail", "message": "never", "retry": false}'); exit(3)""")
    assert outcome == Failed(Reason.EXCEPTION, "never", False, None)


async def test_nothing_that_is_said_can_name_a_run_a_state_or_a_time(attempt):
    lines = [
        {"type": "state", "state": "succeeded"},
        {"type": "result", "value": 1, "state": "cancelled", "run_id": "0", "next_due": "2000-01-01", "uid": 0},
        {"type": "result", "value": 2},
    ]
    outcome, logged, _ = await attempt(f"import json\nfor line in {lines!r}: print(json.dumps(line))")
    assert outcome == Succeeded(1)
    assert "no type 'state'" in logged.of("log")[0]
    assert "after the attempt was over" in logged.of("log")[1]


async def test_lines_that_are_no_messages_are_text_and_are_told_only_so_often(attempt):
    outcome, logged, _ = await attempt("for n in range(1000): print('garbage', n)\nprint('[1]')\nprint('{}')")
    assert isinstance(outcome, Failed)
    assert "without a result" in outcome.error
    assert "1002 of its 1002 lines" in outcome.error
    assert len(logged.of("stdout")) == 1002
    assert len(logged.of("log")) == 21


async def test_a_result_may_be_large(attempt):
    outcome, _, _ = await attempt("""import json\nprint(json.dumps({"type": "result", "value": "x" * 200_000}))""")
    assert outcome == Succeeded("x" * 200_000)
    outcome, _, _ = await attempt("""import json\nprint(json.dumps({"type": "result", "value": "x" * 1_000_000}))""")
    assert outcome.result.encoded == b'"' + b"x" * 1_000_000 + b'"', "too large for a row: it goes to a blob"


async def test_a_line_that_is_too_long_is_no_message(attempt):
    outcome, logged, _ = await attempt(
        """import json\nprint(json.dumps({"type": "result", "value": "x" * 1_100_000}))"""
    )
    assert isinstance(outcome, Failed)
    assert "no messages" in outcome.error
    assert max(map(len, logged.of("stdout"))) <= LINE_BYTES_MAX + 2, "in the log it has lines of a usual length"


async def test_a_result_that_no_database_would_store_is_made_storable_or_refused(attempt):
    """Written as it is, it would fail the write of a whole batch of outcomes."""
    outcome, _, _ = await attempt(r"""print('{"type": "result", "value": {"a\\u0000b": "c\\u0000"}}')""")
    assert outcome == Succeeded({"a␀b": "c␀"})
    outcome, logged, _ = await attempt(r"""print('{"type": "result", "value": "\\ud800"}')""")
    assert isinstance(outcome, Failed)
    assert "without a result" in outcome.error
    assert "is not JSON" in logged.of("log")[0]


async def test_a_message_that_is_out_of_all_bounds_takes_no_other_along(attempt):
    outcome, _, progress = await attempt(
        """
        print('{"type": "progress", "percent": ' + "9" * 4000 + "}")
        print('{"type": "result", "value": 1}')
        """
    )
    assert outcome == Succeeded(1)
    assert progress == [(100.0, "")]


async def test_a_message_of_many_lines_is_logged_at_once_and_a_flood_of_them_is_made_to_wait(make_task, until):
    source = """
    import json
    for _ in range(50):
        print(json.dumps({"type": "log", "message": "x\\n" * 5000}))
    print('{"type": "result", "value": 1}')
    """
    kind = PluginKind("demo", python(source), ProgramRunner(ProgramSettings(grace_seconds=0.3)), Description({}))
    await kind.open()
    logged = make_task({}, kind="demo")
    taken, room = [], asyncio.get_running_loop().create_future()

    class Log:
        def __call__(self, stream, text):
            raise AssertionError("one by one")

        def many(self, stream, texts):
            taken.append(len(texts))
            return room

    logged.task.log = Log()
    running = asyncio.create_task(kind.run(logged.task))
    await until(lambda: taken)
    for _ in range(100):
        await asyncio.sleep(0)
    assert sum(taken) < 50 * 5000, "what is not read waits in the pipe, and so does the program"
    assert taken[0] == 5000
    room.set_result(None)
    assert await running == Succeeded(1)
    assert sum(taken) == 50 * 5000
    await kind.close()


async def test_a_secret_that_is_no_text_is_told_in_base64(make_task):
    source = """
    import json, sys
    print(json.dumps({"type": "result", "value": json.loads(sys.stdin.readline())["secrets"]}))
    """
    kind = PluginKind("demo", python(source), ProgramRunner(), Description({}))
    await kind.open()
    logged = make_task({}, kind="demo")
    logged.task.secrets = {"key": b"\x80\xff\x00".decode("utf-8", "surrogateescape"), "word": "hush é"}
    assert await kind.run(logged.task) == Succeeded({"key": {"base64": "gP8A"}, "word": "hush é"})
    await kind.close()


@pytest.mark.parametrize(
    ("end", "reason"),
    [("raise SystemExit(4)", Reason.EXIT_CODE), ("import os; os.kill(os.getpid(), 9)", Reason.SIGNAL)],
)
async def test_a_result_does_not_count_when_the_executable_crashes_after_it(attempt, end, reason):
    outcome, _, _ = await attempt(f"""print('{{"type": "result", "value": 1}}')\n{end}""")
    assert isinstance(outcome, Failed)
    assert outcome.reason is reason


async def test_an_executable_that_does_not_hear_is_killed_when_cancelled(make_task, until, alive):
    source = (
        "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(os.getpid(), flush=True)\ntime.sleep(1000)"
    )
    kind = PluginKind("demo", python(source), ProgramRunner(ProgramSettings(grace_seconds=0.2)), None)
    await kind.open()
    logged = make_task({}, kind="demo")
    running = asyncio.create_task(kind.run(logged.task))
    await until(lambda: logged.of("stdout"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await kind.close()


async def test_an_executable_that_hears_may_say_its_last_words(make_task, until):
    source = """
    import signal, sys, time
    def leave(*_):
        print('{"type": "log", "message": "leaving"}', flush=True)
        sys.exit(0)
    signal.signal(15, leave)
    print('{"type": "log", "message": "here"}', flush=True)
    time.sleep(1000)
    """
    kind = PluginKind("demo", python(source), ProgramRunner(ProgramSettings(grace_seconds=10)), None)
    await kind.open()
    logged = make_task({}, kind="demo")
    running = asyncio.create_task(kind.run(logged.task))
    await until(lambda: logged.of("log") == ["here"])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert logged.of("log") == ["here", "leaving"]
    await kind.close()


async def test_a_request_may_be_as_large_as_a_payload(attempt):
    outcome, _, _ = await attempt(
        """
        import json, sys
        size = len(json.loads(sys.stdin.readline())["payload"]["text"])
        print(json.dumps({"type": "result", "value": size}))
        """,
        {"text": "x" * 250_000},
    )
    assert outcome == Succeeded(250_000)


@pytest.mark.parametrize(
    "line",
    [
        "", "null", "[]", "{", '{"type": 1}', '{"type": "log"}', '{"type": "log", "message": 1}', '{"message": "x"}',
        '{"type": "progress", "percent": "50"}', '{"type": "progress", "percent": NaN}', '{"type": "fail"}',
        '{"type": "fail", "message": "x", "retry": "no"}', '{"type": "fail", "message": "x", "retry_after": -1}',
        "[" * 50_000, '{"type": "result", "value": NaN}', '{"type": "result", "value": 1e999}',
    ],
)  # fmt: skip
def test_what_is_no_message_is_told_why(line):
    assert isinstance(read_message(line), str)


# --- hello ------------------------------------------------------------------------------------------------


def answering(answer: object) -> list[str]:
    return python(f"print({answer if isinstance(answer, str) else json.dumps(answer)!r})")


def test_an_executable_introduces_itself():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert ask_hello(answering({"type": "hello", "api_version": 1, "schema": schema}), PATH, None).schema == schema


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/nowhere/plugin"], "could not be started"),
        (answering({"type": "hello", "api_version": 2}), "speaks version 2"),
        (answering({"type": "hello"}), "lacks api_version"),
        (answering({"type": "hello", "api_version": True}), "lacks api_version"),
        (answering({"type": "result"}), '"type": "hello"'),
        (answering("'no json'"), "not JSON"),
        (answering({"type": "hello", "api_version": 1, "schema": {"oneOf": []}}), "oneOf is not understood"),
        (python("pass"), "without an answer"),
        (python("import sys; sys.stdout.write('x' * 1_000_000)"), "longer than"),
    ],
)
def test_an_introduction_that_is_none_is_told_in_words(command, words):
    with pytest.raises(HelloFault, match=words):
        ask_hello(command, PATH, None)


def test_an_executable_that_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(plugin_hello, "HELLO_SECONDS_MAX", 0.2)
    with pytest.raises(HelloFault, match="did not answer"):
        ask_hello(python("import time; time.sleep(1000)"), PATH, None)


def test_a_plugin_that_cannot_be_used_keeps_an_executor_from_starting_and_tells_the_api_why():
    too_new = KindSettings(
        plugins={"demo": tuple(answering({"type": "hello", "api_version": 9})), "gone": ("/nowhere",)}
    )
    with pytest.raises(BadConfiguration) as caught:
        kinds_for_running(too_new)
    assert [fault.partition(":")[2].split(":")[0].strip() for fault in caught.value.faults] == ["demo", "gone"]

    kinds = kinds_for_checking(too_new)
    [fault] = kinds["demo"].check({})
    assert (fault.code, "version 9" in fault.message) == ("plugin-unusable", True)
    assert kinds["gone"].check({"anything": 1}) == [], "the executable may be on executors only"

    hello = {"type": "hello", "api_version": 1, "schema": {"$ref": "http://127.0.0.1/evil.json"}}
    [fault] = kinds_for_checking(KindSettings(plugins={"demo": tuple(answering(hello))}))["demo"].check({})
    assert (fault.pointer, fault.code) == ("", "remote-ref")


def test_the_api_checks_payloads_by_the_schema():
    schema = {
        "type": "object",
        "required": ["n"],
        "additionalProperties": False,
        "properties": {"n": {"type": "integer"}},
    }
    hello = {"type": "hello", "api_version": 1, "schema": schema}
    kinds = kinds_for_checking(KindSettings(plugins={"demo": tuple(answering(hello))}))
    found = kinds["demo"].check({"m": 1, "secrets": ["TOKEN"]})
    assert [(fault.pointer, fault.code) for fault in found] == [("/n", "required"), ("/m", "unknown-field")]


def test_a_package_made_for_another_version_is_refused(monkeypatch):
    from importlib.metadata import EntryPoint

    points = [EntryPoint("later", f"{__name__}:make_later", registry.GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    with pytest.raises(BadConfiguration, match="made for version 2"):
        kinds_for_running(KindSettings())


def make_later(settings):
    kind = PluginKind("later", ["true"], ProgramRunner(), None)
    kind.api_version = 2
    return kind
