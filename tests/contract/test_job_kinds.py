"""What every job kind promises, whichever it is: the suite that authors of plugins run. A new kind adds one case."""

import asyncio
import atexit
import functools
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from container_engine import IMAGE, real_engine
from hourhand.job_kinds.registry import KindSettings, kinds_for_checking, kinds_for_running
from hourhand.ports.job_kind import SlotClass
from hourhand.testing.kinds import CHECKS, Check, KindCase
from seen_folders import seen_folder

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
SETTINGS = KindSettings(
    handler_modules=("hourhand.job_kinds.samples",),
    allow_private_targets=True,
    grace_seconds=0.2,
    worker_processes_max=2,
)
SHOUT = {"good": {"text": "hi", "times": 2}, "slow": {"text": "wait"}, "failing": {"text": "fail"}}


def case(kind: str, slot_class: SlotClass, *, settings: KindSettings = SETTINGS, **payloads: Any) -> KindCase:
    return KindCase(
        make=lambda: kinds_for_running(settings)[kind],
        checking=lambda: kinds_for_checking(settings)[kind],
        slot_class=slot_class,
        **payloads,
    )


def of_perl(folder: Path) -> KindSettings:
    """Where the user of jobs can reach it."""
    program = folder / "shout.pl"
    program.write_bytes((EXAMPLES / "shout-perl" / "shout.pl").read_bytes())
    program.chmod(0o755)
    return replace(SETTINGS, plugins={"shout": (str(program),)})


@functools.cache
def engine() -> tuple[str, ...]:
    """Of containers; a real one, where the machine has one."""
    with tempfile.TemporaryDirectory() as folder:
        words, why = real_engine(Path(folder))
    if words is None:
        pytest.skip(why)
    atexit.register(subprocess.run, [*words, "rmi", "--force", IMAGE], capture_output=True, timeout=60, check=False)
    return tuple(words)


def of_containers(**fields: Any) -> Callable[[Path], KindCase]:
    def make(_: Path) -> KindCase:
        settings = replace(SETTINGS, container_engine=engine())
        return case("container", SlotClass.PROCESS, settings=settings, **fields)

    return make


CASES: Mapping[str, Callable[[Path], KindCase]] = {
    "python, asynchronous": lambda _: case(
        "python",
        SlotClass.INLINE,
        good={"handler": "demo.hello"},
        slow={"handler": "demo.hello"},
        failing={"handler": "demo.flaky"},
        refused={"handler": "os:system"},
    ),
    "python, synchronous": lambda _: case(
        "python",
        SlotClass.PROCESS,
        good={"handler": "demo.crunch", "seconds": 0.01},
        slow={"handler": "demo.crunch", "seconds": 1000},
        failing={"handler": "demo.crunch", "seconds": "many"},
        refused={"handler": 1},
    ),
    "command": lambda _: case(
        "command",
        SlotClass.PROCESS,
        good={"argv": ["true"]},
        slow={"argv": ["sleep", "1000"]},
        failing={"argv": ["false"]},
        refused={"argv": "true"},
    ),
    "script": lambda _: case(
        "script",
        SlotClass.PROCESS,
        good={"source": "exit 0", "language": "bash"},
        slow={"source": "sleep 1000", "language": "bash"},
        failing={"source": "exit 1", "language": "bash"},
        refused={"source": "exit 0"},
    ),
    "http": lambda _: case(
        "http",
        SlotClass.INLINE,
        good={"url": "SERVER/ok"},
        slow={"url": "SERVER/slow"},
        failing={"url": "SERVER/missing"},
        refused={"url": "ftp://example.com/"},
    ),
    "container": of_containers(
        good={"image": IMAGE, "argv": ["/bin/true"], "pull": "never"},
        slow={"image": IMAGE, "argv": ["/bin/sleep", "1000"], "pull": "never"},
        failing={"image": IMAGE, "argv": ["/bin/sh", "-c", "exit 3"], "pull": "never"},
        refused={"image": "--privileged"},
    ),
    "a plugin in Perl": lambda folder: case(
        "shout", SlotClass.PROCESS, settings=of_perl(folder), refused={"text": "hi", "times": "many"}, **SHOUT
    ),
    "a plugin of a package": lambda _: KindCase(
        make=lambda: __import__("hourhand_shout").ShoutKind(),
        slot_class=SlotClass.INLINE,
        refused={"words": 1},
        **SHOUT,
    ),
}


@pytest.fixture
async def server() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/slow":
            await asyncio.Event().wait()
        return web.Response(status=200 if request.path == "/ok" else 404)

    runner = web.AppRunner(web.Application(), handler_cancellation=True, shutdown_timeout=0.1)
    runner.app.router.add_get("/{path}", answer)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def at(server: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.replace("SERVER", server) if isinstance(value, str) else value for name, value in payload.items()
    }


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def a_case(request: pytest.FixtureRequest, server: str, reachable: Path, monkeypatch: pytest.MonkeyPatch) -> KindCase:
    monkeypatch.syspath_prepend(str(EXAMPLES / "hourhand-shout" / "src"))
    made: KindCase = request.param(reachable)
    return replace(made, good=at(server, made.good), slow=at(server, made.slow), failing=at(server, made.failing))


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that the user of jobs may enter."""
    with seen_folder("hourhand-test-") as folder:
        yield folder


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_kind_keeps_its_promise(check: Check, a_case: KindCase) -> None:
    await check(a_case)


def test_the_suite_finds_a_kind_that_breaks_its_promises() -> None:
    sys.path.insert(0, str(EXAMPLES / "hourhand-shout" / "src"))
    try:
        from hourhand_shout import ShoutKind
    finally:
        sys.path.pop(0)

    class Careless(ShoutKind):
        def check(self, payload: Mapping[str, Any]) -> list[Any]:
            assert payload["text"]
            return []

        async def run(self, task: Any) -> Any:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.3)

    broken = KindCase(make=Careless, refused={"words": 1}, **SHOUT)
    found = []
    for check in CHECKS:
        try:
            asyncio.run(check(broken))  # type: ignore[arg-type]
        except (AssertionError, KeyError):
            found.append(check.__name__)
    assert {"faults_point_below_the_payload", "a_cancelled_attempt_raises_when_all_of_it_has_ended"} <= set(found)
