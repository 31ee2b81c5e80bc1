"""What pictures show: nothing that did not happen, and each value where it belongs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hourhand.bench import plots
from hourhand.bench.course import Course, Sample, Table
from hourhand.bench.report import Line
from hourhand.bench.telling import curves_of
from hourhand.bench.witness import Witnessed

BEGIN = 1_000_000.0
MICROS = 1_000_000


def sample(at: float, tables: dict[str, Table], cpu: float = 0.0) -> Sample:
    return Sample(BEGIN + at, {"api": cpu}, {}, tables, 0, {}, {"wal_mb": at * 10})


def course_of(samples: list[Sample], tmp_path: Path) -> Course:
    file = tmp_path / "witness"
    file.touch()
    target: Any = SimpleNamespace(witness=file)
    course = Course(target, None)  # type: ignore[arg-type]
    course.samples = samples
    return course


def witnessed_at(seconds: list[float]) -> Witnessed:
    found = Witnessed()
    for number, second in enumerate(seconds):
        found.lows.append(number)
        found.dues.append(int((BEGIN + second) * MICROS))
        found.starts.append(int((BEGIN + second) * MICROS) + 2000)
    return found


def test_a_measurement_that_ends_within_a_second_does_not_look_like_a_fall(tmp_path: Path) -> None:
    course = course_of([sample(0, {}), sample(1, {}), sample(2, {}), sample(2.25, {})], tmp_path)
    found = curves_of(course, witnessed_at([0.1, 0.2, 1.1, 1.2, 2.1]))
    assert found["throughput, per second/runs started"] == Line([0.5, 1.5], [2.0, 2.0])


def test_a_second_in_which_nothing_started_is_shown_as_one(tmp_path: Path) -> None:
    course = course_of([sample(0, {}), sample(3, {})], tmp_path)
    found = curves_of(course, witnessed_at([0.1, 2.1]))
    assert found["throughput, per second/runs started"].values == [1.0, 0.0, 1.0]


def test_sizes_of_tables_are_drawn_only_where_they_were_asked_for(tmp_path: Path) -> None:
    first, last = {"runs": Table(1_000_000, 0, 0)}, {"runs": Table(6_000_000, 0, 0)}
    looks = [sample(0, first), *(sample(at, first) for at in (1, 2, 3, 4)), sample(5, last)]
    found = course_of(looks, tmp_path).lines_over_time()
    assert found["tables, MB/runs"] == Line([0.0, 5.0], [1.0, 6.0])


def test_what_was_counted_over_a_time_stands_in_its_middle(tmp_path: Path) -> None:
    found = course_of([sample(0, {}), sample(1, {}, 0.5), sample(2, {}, 0.75)], tmp_path).lines_over_time()
    assert found["processor, cores/api"] == Line([0.5, 1.5], [0.5, 0.25])
    assert found["log (WAL), MB per second/written"] == Line([0.5, 1.5], [10.0, 10.0])


def test_cores_that_the_host_took_are_drawn_and_only_where_it_took_any(tmp_path: Path) -> None:
    calm, name = [sample(0, {}), sample(1, {}, 0.5), sample(2, {}, 1.0)], "processor, cores/taken by the host"
    assert name not in course_of(calm, tmp_path).lines_over_time()
    taken = [replace(each, machine={"stolen": stolen}) for each, stolen in zip(calm, (7.0, 7.0, 7.5), strict=True)]
    assert course_of(taken, tmp_path).lines_over_time()[name] == Line([0.5, 1.5], [0.0, 0.5])


def test_a_panel_without_values_is_left_out_and_a_single_value_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    drawn: list[Any] = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    series = {"lateness, ms/p50": Line([0.5], [1.0]), "tables, MB/runs": Line([], [])}
    plots.draw(tmp_path / "a.png", {"bench": "burst", "mode": "burst"}, series)
    [axis] = drawn[0].axes
    assert axis.get_ylabel() == "lateness, ms"
    assert axis.lines[0].get_marker() == "o"
