"""What is told: to programs one object, to people the same with units, and progress that does not flood a log."""

import io
import json
from pathlib import Path

import pytest

from hourhand.bench import plots
from hourhand.bench.report import KEYS, Line, Progress, as_json, as_table
from hourhand.model.errors import BadConfiguration

FACTS = {
    "bench": "lifecycle",
    "jobs": 450_000,
    "seconds": 31.25,
    "jobs_per_second": 14_400.0,
    "lateness_ms": {"p50": 3.14, "p99": 1234.5},
    "lost": 0,
    "cpu": {"api": 0.5},
    "tables": {"jobs": {"size_mb": 12.5, "dead": 1000}},
    "windows_percent": [0.5, 0.75],
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_json_is_one_object_of_the_same_keys() -> None:
    found = json.loads(as_json(FACTS))
    assert {key: value for key, value in found.items() if value is not None} == FACTS
    assert "\n" not in as_json(FACTS)


def test_what_a_measurement_has_nothing_of_is_there_and_empty() -> None:
    found = json.loads(as_json({"bench": "submit", "jobs": 5, "get_ms": {"p50": 1.0}}))
    assert found.keys() == {*KEYS, "get_ms"}
    assert (found["jobs"], found["lateness_ms"], found["early"]) == (5, None, None)


def test_the_table_has_units_and_thousands() -> None:
    lines = {name.strip(): value for name, value in (line.split("  ", 1) for line in _lines(as_table(FACTS)))}
    assert lines["jobs"] == "450,000"
    assert lines["seconds"] == "31.2 s"
    assert lines["jobs per second"] == "14,400/s"
    assert lines["lateness"] == "p50 3.14 ms   p99 1,234 ms"
    assert lines["tables, jobs"] == "size 12.5 MB   dead 1,000"
    assert lines["windows"] == "0.50 %   0.75 %"


def _lines(table: str) -> list[str]:
    rows = table.splitlines()
    width = max(len(row) - len(row.lstrip()) for row in rows)
    assert width > 0  # names are aligned to the right
    return [row.lstrip() for row in rows]


def test_progress_on_a_terminal_is_one_line_that_changes() -> None:
    out = Terminal()
    progress = Progress(out)
    progress.update("one")
    progress.update("two")
    progress.note("done")
    assert out.getvalue() == "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[Kdone\n"


def test_progress_elsewhere_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("hourhand.bench.report.time.monotonic", lambda: now[0])
    out = io.StringIO()
    progress = Progress(out)
    for _ in range(12):
        progress.update(f"at {now[0]:g}")
        now[0] += 1
    assert out.getvalue().splitlines() == ["at 100", "at 105", "at 110"]


def test_silence_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress.silent()
    progress.note("x")
    progress.update("y")
    progress.end()
    assert capsys.readouterr().err == ""


# --- plots ------------------------------------------------------------------------------------------------


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(BadConfiguration, match=r"pip install 'hourhand\[bench\]'"):
        plots.require_plots(tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.txt", "plot", "missing/a.png"])
def test_a_plot_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadConfiguration, match="--plot"):
        plots.require_plots(tmp_path / name)


@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_a_plot_has_a_panel_for_each_sort_of_curve(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    series = {
        "lateness, ms/p50": Line([0.0, 1.0], [1.0, 2.0]),
        "lateness, ms/p99": Line([0.0, 1.0], [10.0, 20.0]),
        "cpu, cores/api": Line([0.0, 1.0], [0.1, 0.2]),
    }
    path = tmp_path / f"plot{ending}"
    plots.draw(path, FACTS, series)
    assert path.stat().st_size > 1000


def test_the_title_names_what_was_measured() -> None:
    assert plots.title_of(FACTS) == "lifecycle, 450,000 jobs, lateness p50 3.1 ms, lateness p99 1,234.5 ms"
