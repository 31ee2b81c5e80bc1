import subprocess
import sys
from pathlib import Path

import pytest

from hourhand.job_kinds import handlers
from hourhand.job_kinds.handlers import BadArguments, Context, HandlerRegistry, load_handlers
from hourhand.model.errors import BadConfiguration
from hourhand.model.job import NAME_CHARS_MAX as JOB_NAME_CHARS_MAX


@pytest.fixture
def registry():
    return HandlerRegistry()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that can be imported, and forgets it afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = dict(handlers.HANDLERS.by_name)

    def write(name: str, text: str) -> str:
        Path(tmp_path, f"{name}.py").write_text(text)
        return name

    yield write
    handlers.HANDLERS.by_name.clear()
    handlers.HANDLERS.by_name.update(before)


def called(registry, function, payload, make_task):
    return registry.register(function, "x").call(Context(make_task(payload).task))


def test_a_handler_without_a_name_is_named_after_its_function(registry):
    def build_report(): ...

    assert registry.register(build_report).name == "build-report"


def test_handlers_and_jobs_may_have_names_of_the_same_length():
    assert handlers.NAME_CHARS_MAX == JOB_NAME_CHARS_MAX


def test_two_handlers_cannot_share_a_name(registry):
    def first(): ...
    def second(): ...

    registry.register(first, "same")
    with pytest.raises(ValueError, match=r"two handlers are named 'same'.*first.*second"):
        registry.register(second, "same")


@pytest.mark.parametrize("name", ["", "os:system", "..x", "A", "a b", "a__b", "a.", "é", "x" * 201])
def test_a_name_that_no_job_could_reach_is_refused(registry, name):
    with pytest.raises(ValueError, match="cannot be a handler's name"):
        registry.register(lambda: None, name)


def test_a_bad_name_comes_with_a_better_one(registry):
    with pytest.raises(ValueError, match=r"'reports\.build-all' would do"):
        registry.register(lambda: None, "Reports.Build all")


def test_functions_that_could_never_run_are_refused(registry):
    def generator():
        yield

    async def async_generator():
        yield

    def positional(a, /): ...
    def needs_handler(handler): ...

    for function in (generator, async_generator, positional, needs_handler):
        with pytest.raises(ValueError, match="handler 'x'"):
            registry.register(function, "x")


def test_payload_fields_become_keyword_arguments(registry, make_task):
    def handler(ctx, a, *, b=2, **rest):
        return ctx.attempt, a, b, rest

    assert called(registry, handler, {"handler": "x", "a": 1, "c": 3}, make_task) == (1, 1, 2, {"c": 3})


def test_a_context_is_recognised_by_its_annotation_also_as_text(registry, make_task):
    def handler(me: "Context", a):
        return me.job_name, a

    assert called(registry, handler, {"a": 1}, make_task) == ("nightly", 1)


def test_a_handler_that_takes_only_its_context_reads_the_payload_itself(registry, make_task):
    def handler(ctx):
        return ctx.payload

    assert called(registry, handler, {"anything": 1}, make_task) == {"anything": 1}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({}, "missing argument 'a'"),
        ({"a": 1, "z": 2}, "unexpected argument 'z'; it takes 'a', 'b'"),
        ({"b": 1, "ctx": 2}, "missing argument 'a', unexpected argument 'ctx'"),
    ],
)
def test_arguments_that_do_not_fit_are_named(registry, make_task, payload, said):
    def handler(ctx, a, b=1): ...

    with pytest.raises(BadArguments, match=said):
        called(registry, handler, payload, make_task)


def test_a_handler_without_parameters_accepts_no_arguments(registry, make_task):
    with pytest.raises(BadArguments, match="unexpected argument 'a'; it takes none"):
        called(registry, lambda: None, {"a": 1}, make_task)


def test_modules_are_imported_for_their_handlers(module):
    name = module("good_handlers", "from hourhand import job\n@job\ndef tidy_up(): ...\n")
    assert load_handlers([name]).by_name["tidy-up"].is_async is False
    assert load_handlers([name]) is handlers.HANDLERS, "a second time changes nothing"


def test_every_module_that_cannot_be_imported_is_told_in_one_line(module):
    broken = module("broken_handlers", "x = 1\nraise RuntimeError('a\\nb')\n")
    with pytest.raises(BadConfiguration) as caught:
        load_handlers([broken, "not.there"])
    first, second = caught.value.faults
    assert first.startswith("handler module 'broken_handlers' cannot be imported: RuntimeError: a b (")
    assert first.endswith("broken_handlers.py:2)")
    assert second == "handler module 'not.there' cannot be imported: ModuleNotFoundError: No module named 'not'"


def test_a_module_that_failed_half_way_leaves_no_handlers(module):
    name = module("half_handlers", "from hourhand import job\n@job('half')\ndef half(): ...\nboom\n")
    for _ in range(2):
        with pytest.raises(BadConfiguration, match="NameError"):
            load_handlers([name])
    assert "half" not in handlers.HANDLERS.by_name


def test_importing_hourhand_loads_nothing_slow():
    slow = ("asyncio", "aiohttp", "msgspec", "hourhand.model.cron")
    code = f"import hourhand, sys; print([name for name in {slow} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.fixture
def package(tmp_path, module):
    """Installs a package with entry points, as far as Python can tell."""

    def install(name, **points):
        facts = tmp_path / f"{name}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{point.replace('__', '.')} = {place}" for point, place in points.items()]
        (facts / "entry_points.txt").write_text("\n".join([f"[{handlers.GROUP}]", *lines, ""]))

    return install


def test_a_package_offers_functions_and_modules_by_entry_points(module, package):
    module("bills", "def send(ctx, to): ...\nasync def check(): ...\n")
    module("more_bills", "from hourhand import job\n@job('bills.more')\ndef more(): ...\n")
    package(
        "billing",
        bills__send="bills:send",
        bills__check="bills:check",
        more="more_bills",
        bills__more="more_bills:more",
    )
    known = load_handlers([]).by_name
    assert {name for name in known if name.startswith("bills.")} == {"bills.send", "bills.check", "bills.more"}
    assert known["bills.check"].is_async
    assert load_handlers([]).by_name == known, "a second time changes nothing"


def test_every_broken_entry_point_is_told_with_its_package(module, package):
    module("broken_bills", "raise RuntimeError('no licence')")
    package("billing", bills__send="broken_bills:send", Bad__Name="os.path:join", gone="os:no_such_thing")
    with pytest.raises(BadConfiguration) as caught:
        load_handlers([])
    assert len(caught.value.faults) == 3
    assert any("handler 'bills.send' of package billing 1.0 cannot be imported: RuntimeError: no licence" in fault
               for fault in caught.value.faults)  # fmt: skip
