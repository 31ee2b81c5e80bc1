"""What is measured beside the load of a grown cluster: what cannot be measured is told, and the rest is measured."""

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hourhand.bench.readers import UNDER_WAY_MAX, Readers
from hourhand.bench.wire import Answered
from hourhand.model.errors import WorldError

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MODULES = ("pairs", "submit_ratio", "table", "stays_fast")


@pytest.fixture
def stays_fast(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("stays_fast")


class Answers:
    """A wire on which each question is answered by the next of some answers, the last one for ever."""

    def __init__(self, *answers: Answered | Exception) -> None:
        self._answers = list(answers)

    async def __aenter__(self) -> "Answers":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def get(self, path: str) -> Answered:
        said = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(said, Exception):
            raise said
        return said


class Asked:
    def __init__(self, wire: Any) -> None:
        self.wire = lambda: wire


async def test_a_part_that_cannot_be_measured_is_short_and_says_why(
    stays_fast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def broken(*_: object) -> AsyncIterator[None]:
        raise ExceptionGroup("several", [WorldError("one"), WorldError("one"), RuntimeError("two\nand more")])
        yield

    async def settle(_: object) -> None: ...

    monkeypatch.setitem(stays_fast.BESIDE, "readers", broken)
    monkeypatch.setattr(stays_fast, "_settle", settle)
    asked = stays_fast.Asked(10.0, 1.0, 1.0, 0)
    figure, cost = await stays_fast._try_part("readers", "readers", 1, None, asked)
    assert (figure.enough, cost) == (False, None)
    assert figure.measured == "not measured: WorldError: one; RuntimeError: two"


def test_what_is_measured_again_with_nothing_beside_it_says_after_what(stays_fast: Any) -> None:
    parts = ["nothing", "nothing", "pinned", "nothing", "nothing"]
    names = [stays_fast._named(name, parts[:number]) for number, name in enumerate(parts)]
    again = "nothing, after pinned, for the 2. time"
    assert names == ["nothing", "nothing, for the 2. time", "pinned", "nothing, after pinned", again]


def test_the_cost_is_compared_by_medians_and_only_where_all_are_known(stays_fast: Any) -> None:
    assert stays_fast._compared([100.0, 90.0, 101.0], [119.0, 300.0, 80.0]).enough
    assert not stays_fast._compared([100.0], [121.0]).enough
    assert not stays_fast._compared([100.0, None], [100.0]).enough


def test_the_cost_before_the_first_report_is_compared_with_that_at_the_end(stays_fast: Any) -> None:
    assert stays_fast._ends(list(stays_fast.PARTS)) == ([0, 1, 5], [11, 12, 13])
    assert stays_fast._ends(["nothing", "readers"]) == ([0], []), "nothing to compare with"


@pytest.mark.parametrize(("worst", "enough"), [(100.0, True), (101.0, False)])
def test_a_part_with_one_bad_minute_is_short(stays_fast: Any, worst: float, enough: bool) -> None:
    room = {"size_mb": 1.0, "dead_max": 0, "dead": 0}
    found = {
        "lateness_ms": {"p50": 1.0, "p99": 2.0, "p99.9": 3.0},
        "p99_worst_minute_ms": worst,
        "tables": {"live_runs": room, "timetable": room},
        "writes": {"checkpoints": 0, "vacuums": 0},
        "cpu": {}, "seconds": 180.0, "jobs": 1, "lost": 0, "doubled": 0, "early": 0, "plot": "x",
    }  # fmt: skip
    assert stays_fast._told("pinned", found).enough is enough


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answered(503, b"busy", 1), "was answered 503"),
        (WorldError("the server hung up"), "the server hung up"),
        (TimeoutError(), "TimeoutError"),
    ],
)
async def test_a_reader_who_is_refused_is_counted_and_asks_on(answer: Answered | Exception, said: str) -> None:
    readers = Readers(Asked(Answers(answer, Answered(200, b"{}"))), 1000.0)  # type: ignore[arg-type]
    async with readers:
        while "search_ms" not in readers.facts():
            await asyncio.sleep(0.001)
    facts = readers.facts()
    assert facts["refused"] == 1
    assert said in facts["refused_said"]


async def test_who_does_not_get_answers_does_not_gather_without_end() -> None:
    class Silent(Answers):
        async def get(self, path: str) -> Answered:
            await asyncio.Event().wait()
            raise AssertionError

    readers = Readers(Asked(Silent()), 100_000.0)  # type: ignore[arg-type]
    async with readers:
        while not readers.facts():
            await asyncio.sleep(0.001)
    assert f"{UNDER_WAY_MAX} questions" in readers.facts()["refused_said"]
