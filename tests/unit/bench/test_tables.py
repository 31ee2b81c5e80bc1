"""What the tables of figures say: the words of a row, what others took, what is computed, and where it is published."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
BENCHMARKS = ROOT / "benchmarks"


# --- rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("full", "word"), [(10_000_000, "10000000"), (120, "120"), (0.25, "0.25"), (30.0, "30")])
def test_how_much_is_measured_is_written_as_commands_read_it(scripts: Any, full: float, word: str) -> None:
    extent = scripts("table").Extent(quick=False, pairs=5, seconds=30)
    assert extent.pick(full, 1) == word


def test_a_row_says_its_bar_what_was_measured_and_whether_that_is_enough(scripts: Any) -> None:
    table = scripts("table")
    figures = [
        table.Figure("a", "≤ 5 ms", "4 ms", True, 0.25),
        table.Figure("b", "≤ 5 ms", "6 ms", False),
        table.Figure("c", "", "it broke", None),
    ]
    lines = table.markdown(figures, ["today", "two cores"]).splitlines()
    assert lines[0] == "today; two cores"
    assert lines[-3:] == [
        "| a | ≤ 5 ms | 4 ms | pass | 0.25 |",
        "| b | ≤ 5 ms | 6 ms | short |  |",
        "| c |  | it broke | not measured |  |",
    ]


def test_a_row_that_breaks_says_why_and_the_others_are_measured(scripts: Any) -> None:
    table = scripts("table")

    def breaks(_: Any) -> Any:
        raise SystemExit("first line\nthe disk is full")

    def works(_: Any) -> Any:
        sys.modules["pairs"].noted_others.append(0.5)  # type: ignore[attr-defined]
        return [table.Figure("x", "≤ 1", "1", True)]

    found = table.measure(["bad", "good"], table.Extent(True, 1, 1.0), {"bad": breaks, "good": works})
    assert [(each.work, each.enough, each.others) for each in found] == [("bad", None, None), ("x", True, 0.5)]
    assert found[0].measured == "the disk is full"


@pytest.mark.parametrize(
    ("verdicts", "quick", "good"),
    [
        ([True, True], False, True),
        ([True, False], False, False),
        ([True, False], True, True),
        ([True, None], True, False),
        ([True, None], False, False),
    ],
)
def test_a_short_form_is_good_when_all_could_be_measured(
    scripts: Any, verdicts: list[bool | None], quick: bool, good: bool
) -> None:
    table = scripts("table")
    figures = [table.Figure("a", "≤ 5 ms", "4 ms", verdict) for verdict in verdicts]
    assert table.are_good(figures, quick=quick) is good


@pytest.mark.parametrize("key", ["lost", "doubled", "early"])
def test_a_rate_of_what_did_not_happen_as_it_should_is_refused(scripts: Any, key: str) -> None:
    pairs = scripts("pairs")
    durable = dict.fromkeys(pairs.DURABLE, "on")
    pairs.refuse_unsound("bench", {"settings": durable, key: 0})
    with pytest.raises(SystemExit, match=key):
        pairs.refuse_unsound("bench", {"settings": durable, key: 1})


def test_a_floor_that_is_not_durable_or_not_whole_is_refused(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = scripts("pairs")
    told = {**dict.fromkeys(pairs.DURABLE, "on"), "jobs": 10, "stored": 10}
    for fault in ({"fsync": "off"}, {"stored": 9}):
        monkeypatch.setattr(pairs, "run", lambda _, fault=fault: {**told, **fault})
        with pytest.raises(SystemExit, match="floor"):
            pairs.floor("future", 1)


def test_programs_for_the_administrator_are_found_whatever_the_environment(
    scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PATH")
    said = "import json, os; print(json.dumps({'path': os.environ['PATH'].split(':')}))"
    assert {"/usr/bin", "/usr/sbin"} <= set(scripts("pairs").run([sys.executable, "-c", said])["path"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_is_ended_from_outside_waits_until_its_command_has_cleared_away(number: int, tmp_path: Path) -> None:
    clears = tmp_path / "clears.py"
    clears.write_text(
        "import pathlib, time\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "try:\n    (here / 'began').touch(); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(1); (here / 'cleared').touch()\n"
    )
    row = f"lambda _: pairs.run([sys.executable, {str(clears)!r}])"
    outer = f"import pairs, sys, table; table.measure(['a', 'b'], None, dict.fromkeys('ab', {row}))"
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    with subprocess.Popen([sys.executable, "-c", outer], env=environment, stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "began").exists():
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(30) == -signal.SIGINT  # and no other row was begun
    assert (tmp_path / "cleared").exists()


@pytest.mark.parametrize(
    ("counts", "fault"),
    [
        ({}, ""),
        ({"rows": 0, "most": 0, "missed": 0}, "no row"),
        ({"rows": 101, "most": 2}, "more than one row"),
        ({"missed": 100 * 1440}, "told as missed"),
        ({"runs": 99}, "run what is newest"),
    ],
)
def test_an_outage_that_left_too_little_behind_is_a_fault_as_one_that_left_too_much(
    scripts: Any, counts: dict[str, int], fault: str
) -> None:
    told = {"rows": 100, "most": 1, "missed": 100 * 3 * 1440, "runs": 100, **counts}
    found = scripts("outage").faults(100, **told)
    assert bool(found) == bool(fault)
    assert fault in "; ".join(found)


def test_every_figure_that_is_asked_for_has_a_row(scripts: Any) -> None:
    table = scripts("table")
    asked = {"lifecycle-immediate", "lifecycle-future", "steady-10000", "steady-200-before", "steady-200-meanwhile"}
    asked |= {"steady-5000", "recurring", "planner", "burst-5000", "burst-10000", "burst-100000", "immediate"}
    asked |= {"submit", "flight-async", "flight-http", "flight-process", "growth", "soak", "idle"}
    assert asked <= table.ROWS.keys()
    assert set(table.LONG) <= table.ROWS.keys()
    assert {"growth", "soak"} <= set(table.LONG)


def test_shares_are_of_one_round_and_their_median_counts(scripts: Any) -> None:
    pairs = scripts("pairs")
    rates = [{"hourhand": 50.0, "floor": 100.0}, {"hourhand": 90.0, "floor": 100.0}, {"hourhand": 30.0, "floor": 50.0}]
    found = [pairs.Round(each, 0.0) for each in rates]
    assert pairs.shares_of(found, "floor") == [0.5, 0.9, 0.6]
    assert pairs.told_share(found, "floor") == "0.60 × (0.50 to 0.90; 50 of 100/s)"


def test_several_sides_take_turns_and_who_is_first_changes(scripts: Any) -> None:
    pairs, asked = scripts("pairs"), []

    def side(name: str) -> Any:
        return lambda: asked.append(name) or 1.0

    pairs.rounds("x", 2, {name: side(name) for name in ("floor", "hourhand", "peer")})
    assert asked == ["floor", "hourhand", "peer", "peer", "hourhand", "floor"]


def test_gets_and_submissions_of_a_round_belong_together(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_ratio, numbers = scripts("submit_ratio"), iter(range(1, 9))

    def rates(of: str, _: float) -> dict[str, float]:
        number = float(next(numbers))
        return {"submit_per_second": number, "gets_per_second": number * 10}

    monkeypatch.setattr(submit_ratio, "_rates", rates)
    singles, gets = submit_ratio.measure_requests(2, 1.0)
    assert [each.rates for each in singles] == [{"bare": 1.0, "hourhand": 2.0}, {"hourhand": 3.0, "bare": 4.0}]
    assert [each.rates for each in gets] == [{"bare": 10.0, "hourhand": 20.0}, {"hourhand": 30.0, "bare": 40.0}]


def test_what_others_took_is_what_was_busy_beyond_ours_and_what_the_host_took(scripts: Any) -> None:
    pairs = scripts("pairs")
    found = {"machine": {"busy": 1.8, "stolen": 0.1, "idle": 0.1}, "cpu": {"api": 0.5, "postgres api": 1.0}}
    assert pairs.others_of(found) == pytest.approx(0.4)
    assert pairs.others_of({"machine": {}, "cpu": {}}) is None


# --- costs ------------------------------------------------------------------------------------------------


def test_what_postgres_counted_is_told_for_each_run(scripts: Any) -> None:
    cost_model = scripts("cost_model")
    before = {"wal_bytes": 100.0, "wal_records": 0.0, "wal_pages": 0.0, "fsyncs": 1.0, "commits": 5.0}
    after = {"wal_bytes": 80_100.0, "wal_records": 500.0, "wal_pages": 10.0, "fsyncs": 3.0, "commits": 25.0}
    rows = {"runs inserted": 100.0, "live_runs inserted": 100.0, "live_runs updated": 200.0, "nodes updated": 0.1}
    found = cost_model.between({**before, "at": 1.0}, {**after, **rows, "at": 2.0})
    assert (found["runs"], found["wal_bytes"], found["wal_records"], found["wal_pages"]) == (100, 800.0, 5.0, 0.1)
    assert (found["fsyncs"], found["commits"]) == (2.0, 20.0)
    assert found["rows"] == {"runs inserted": 1.0, "live_runs inserted": 1.0, "live_runs updated": 2.0}


def test_what_a_rate_needs_is_its_cost_by_cores_that_are_not_full(scripts: Any) -> None:
    cost_model = scripts("cost_model")
    stages = {"python": {"sum": 60.0, "api": 20.0, "executor": 40.0}, "postgres": {"sum": 72.0, "bench": 2.0}}
    costs = cost_model.needs_per_run({"stages_us": stages})
    assert costs == {"api": 20.0, "scheduler": 0.0, "executor": 40.0, "postgres": 70.0}
    assert cost_model.needed(costs, 10_000) == {"api": 1, "scheduler": 1, "executor": 1, "postgres": 1}
    assert cost_model.needed(costs, 30_000) == {"api": 1, "scheduler": 1, "executor": 2, "postgres": 3}


def costly() -> dict[str, Any]:
    def work(executor: float, scheduler: float) -> dict[str, Any]:
        python = {"sum": 0.0, "executor": executor, "scheduler": scheduler}
        return {
            "stages_us": {"python": python, "postgres": {"sum": 72.0, "bench": 2.0}},
            "books": {"wal_bytes": 2000.0},
        }

    request = {"api": 70.0, "postgres": 35.0}
    return {
        "immediate": work(20.0, 0.0),
        "future": work(20.0, 0.0),
        "recurring": work(20.0, 70.0),
        "requests": {"single": request, "batch": {"api": 7.0, "postgres": 7.0}, "get": request},
        "rest": {"executor more": {"postgres": 0.0002}},
    }


def test_what_a_server_carries_grows_with_its_cores(scripts: Any) -> None:
    lines = scripts("cost_model")._sizes(costly()).splitlines()
    assert "| 1 | 10,000/s | 10,000/s | 10,000/s | 20 MB |" in lines
    assert "| 8 | 80,000/s | 80,000/s | 80,000/s | 160 MB |" in lines


def test_from_when_on_one_of_each_is_too_few(scripts: Any) -> None:
    lines = scripts("cost_model")._thresholds(costly()).splitlines()
    assert "| one executor | runs without work of their own | 35,000/s |" in lines
    assert "| one scheduler | occurrences of recurring jobs | 10,000/s |" in lines
    assert "| one scheduler | jobs that run once, beyond the horizon | not reached |" in lines
    assert "| one API process | jobs in batches | 100,000/s |" in lines
    assert "| one core of PostgreSQL | single submissions, stored and not yet run | 20,000/s |" in lines
    assert "| a tenth of a core of PostgreSQL | executors at rest | 500 |" in lines


# --- publishing -------------------------------------------------------------------------------------------


def test_a_block_of_a_page_is_replaced_and_nothing_else(scripts: Any, tmp_path: Path) -> None:
    publish = scripts("publish")
    build, pages = tmp_path / "build", tmp_path / "pages"
    for folder in (build / "plots", pages):
        folder.mkdir(parents=True)
    page = "# Title\n\n<!-- measured: figures -->\nold\n<!-- end of figures -->\n\nLast words.\n"
    (pages / "performance.md").write_text(page)
    assert not publish.publish("figures", build, pages)
    (build / "figures.md").write_text("new\n\n![burst](plots/burst-5000.png)\n")
    (build / "plots" / "burst-5000.png").write_bytes(b"picture")
    assert publish.publish("figures", build, pages)
    assert (pages / "performance.md").read_text() == page.replace("old", "new\n\n![burst](plots/burst-5000.png)")
    assert (pages / "plots" / "burst-5000.png").read_bytes() == b"picture"


def test_every_block_has_its_place_in_the_documentation(scripts: Any) -> None:
    publish = scripts("publish")
    for name, page in publish.BLOCKS.items():
        text = (publish.PAGES / page).read_text()
        assert publish.replaced(text, name, "x") != text
    with pytest.raises(SystemExit, match="no block"):
        publish.replaced("nothing", "figures", "x")
