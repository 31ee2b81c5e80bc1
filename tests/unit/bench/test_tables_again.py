"""What is measured again because others or the host took too much meanwhile, which measurement counts, what is told."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CALM, BUSY = 0.02, 0.82
ROW_SECONDS = 100.0
Try = tuple[bool | None, float]
"""Whether it is enough, and the cores that others took."""


class Bench:
    """Rows whose measurements are known beforehand, each of which takes a hundred seconds."""

    def __init__(self, scripts: Callable[[str], Any]) -> None:
        self.table = scripts("table")
        self.asked: list[str] = []
        self.now = 0.0

    def row(self, name: str, *tries: Try, **more: Any) -> Callable[[Any], Any]:
        """Says `a1`, `a2` and so on as what was measured."""

        def measured(_: Any) -> Any:
            number = self.asked.count(name)
            enough, others = tries[min(number, len(tries) - 1)]
            self.asked.append(name)
            self.now += ROW_SECONDS
            if enough is None:
                raise SystemExit(f"{name}{number + 1} broke")
            noted(others)
            return [self.table.Figure(name, "≤ 5 ms", f"{name}{number + 1}", enough, **more)]

        return measured

    def measure(self, until: float = 10_000.0, **rows: Any) -> list[Any]:
        extent = self.table.Extent(False, 5, 30.0)
        return list(self.table.measure(list(rows), extent, rows, until, lambda: self.now))


def noted(*others: float) -> None:
    sys.modules["pairs"].noted_others.extend(others)  # type: ignore[attr-defined]


@pytest.fixture
def bench(scripts: Callable[[str], Any]) -> Bench:
    return Bench(scripts)


# --- figures with absolute bars ---------------------------------------------------------------------------


def test_what_is_short_beside_others_is_measured_again_at_the_end_and_both_are_told(bench: Bench) -> None:
    a = bench.row("a", (False, BUSY), (True, CALM))
    found = bench.measure(a=a, b=bench.row("b", (True, CALM)), c=bench.row("c", (True, CALM)))
    assert bench.asked == ["a", "b", "c", "a"]
    assert [each.work for each in found] == ["a", "b", "c"]
    assert (found[0].enough, found[0].others) == (True, CALM)
    assert found[0].measured == "a2; before, beside 0.82 cores of others: a1"


def test_what_is_short_beside_calm_others_stands(bench: Bench) -> None:
    [found] = bench.measure(a=bench.row("a", (False, 0.05), (True, CALM)))
    assert (bench.asked, found.enough, found.measured) == (["a"], False, "a1")


def test_what_passes_stands_whatever_others_took(bench: Bench) -> None:
    [found] = bench.measure(a=bench.row("a", (True, BUSY), (False, CALM)))
    assert (bench.asked, found.enough, found.measured) == (["a"], True, "a1")


def test_what_is_short_beside_calm_others_the_second_time_is_short(bench: Bench) -> None:
    [found] = bench.measure(a=bench.row("a", (False, BUSY), (False, CALM), (True, CALM)))
    assert bench.asked == ["a", "a"]
    assert (found.enough, found.measured) == (False, "a2; before, beside 0.82 cores of others: a1")


def test_it_is_measured_three_times_more_at_most_and_the_one_beside_the_fewest_others_counts(bench: Bench) -> None:
    [found] = bench.measure(a=bench.row("a", (False, 0.9), (False, 0.7), (False, 0.3), (False, 0.5), (True, CALM)))
    assert bench.asked == ["a"] * 4
    assert (found.enough, found.others) == (False, 0.3)
    assert found.measured == (
        "a3; before, beside 0.90 cores of others: a1; before, beside 0.70 cores of others: a2; "
        "after, beside 0.50 cores of others: a4"
    )


def test_what_passes_beside_more_than_it_fell_short_beside_was_lucky_and_does_not_count(bench: Bench) -> None:
    [found] = bench.measure(a=bench.row("a", (False, 0.3), (True, 0.9), (True, 0.3), (False, 0.3)))
    assert bench.asked == ["a"] * 4
    assert (found.enough, found.others) == (False, 0.3)
    assert found.measured.startswith("a1; after, beside 0.90 cores of others: a2")


def test_what_is_lost_the_second_time_counts_whatever_others_took_then(bench: Bench) -> None:
    def runs(_: Any) -> Any:
        bench.asked.append("a")
        lost = len(bench.asked) == 2
        noted(0.9 if lost else 0.3)
        return [bench.table.Figure("a", "≤ 5 ms", "6 ms", False, own_fault=lost)]

    [found] = bench.measure(a=runs)
    assert len(bench.asked) == 2
    assert (found.enough, found.others) == (False, 0.9)


def test_rows_take_turns_when_they_are_measured_again(bench: Bench) -> None:
    bench.measure(a=bench.row("a", (False, BUSY)), b=bench.row("b", (False, BUSY), (False, BUSY), (True, CALM)))
    assert bench.asked == ["a", "b", "a", "b", "a", "b", "a"]


@pytest.mark.parametrize(("until", "times"), [(199.0, 1), (200.0, 2), (299.0, 2), (300.0, 3)])
def test_a_row_is_begun_again_only_if_the_time_that_it_took_still_fits(bench: Bench, until: float, times: int) -> None:
    bench.measure(until, a=bench.row("a", (False, BUSY)))
    assert bench.asked == ["a"] * times


def test_a_table_that_does_not_say_until_when_measures_everything_once(bench: Bench) -> None:
    rows = {"a": bench.row("a", (False, BUSY), (True, CALM))}
    [found] = bench.table.measure(["a"], bench.table.Extent(False, 5, 30.0), rows)
    assert (bench.asked, found.enough) == (["a"], False)


@pytest.mark.parametrize(("names", "quick", "again"), [(["idle"], False, True), (["idle"], True, False)])
def test_a_minute_of_the_forty_is_left_and_a_short_form_repeats_nothing(
    bench: Bench, names: list[str], quick: bool, again: bool
) -> None:
    seconds = bench.table.seconds_for_all(names, quick=quick)
    assert seconds == 39 * 60 if again else seconds < 0


@pytest.mark.parametrize("name", ["growth", "soak", "day", "overload"])
def test_with_a_row_that_takes_long_nothing_is_measured_again(bench: Bench, name: str) -> None:
    assert bench.table.seconds_for_all(["idle", name], quick=False) < 0


@pytest.mark.parametrize(("words", "again"), [([], True), (["--quick"], False)])
def test_the_command_measures_again_within_its_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], again: bool
) -> None:
    table, asked = bench.table, list[Any]()

    def measure(names: list[str], extent: Any, until: float) -> list[Any]:
        asked.extend([names, extent.spare.seconds, until])
        return [table.Figure("idle", "", "", True)]

    monkeypatch.setattr(table, "measure", measure)
    monkeypatch.setattr(table, "machine", list)
    monkeypatch.setattr(table, "BUILD", tmp_path)
    monkeypatch.setattr(sys, "argv", ["table.py", *words, "--output", str(tmp_path / "figures.md")])
    began = time.monotonic()
    with pytest.raises(SystemExit, match="0"):
        table.main()
    assert asked[:2] == [table.USUAL, table.ASIDE_SECONDS_MAX if again else 0.0]
    assert (began + 39 * 60 <= asked[2] <= time.monotonic() + 39 * 60) if again else asked[2] < 0


def test_of_several_runs_the_one_beside_which_others_took_most_decides(bench: Bench) -> None:
    def runs(_: Any) -> Any:
        bench.asked.append("a")
        noted(*((0.0, 0.0, BUSY) if len(bench.asked) == 1 else (0.0, 0.0, 0.0)))
        return [bench.table.Figure("a", "≤ 5 ms", "6 ms", False)]

    [found] = bench.measure(a=runs)
    assert len(bench.asked) == 2
    assert found.measured == "6 ms; before, beside 0.82 cores of others: 6 ms"


def test_what_no_neighbour_can_cause_stands(bench: Bench) -> None:
    [found] = bench.measure(a=bench.row("a", (False, BUSY), (True, CALM), own_fault=True))
    assert (bench.asked, found.enough) == (["a"], False)


def test_a_ratio_is_not_measured_again_because_its_rounds_were(bench: Bench) -> None:
    [found] = bench.measure(a=bench.row("a", (False, BUSY), (True, CALM), ratio=True))
    assert (bench.asked, found.enough) == (["a"], False)


def test_a_row_that_broke_is_not_tried_again_and_one_that_breaks_the_second_time_tells_it(bench: Bench) -> None:
    broke, breaks = bench.row("a", (None, BUSY)), bench.row("b", (False, BUSY), (None, BUSY), (True, CALM))
    found = bench.measure(a=broke, b=breaks)
    assert bench.asked == ["a", "b", "b", "b"]
    assert (found[0].enough, found[0].measured) == (None, "a1 broke")
    assert found[1].measured == "b3; before, beside 0.82 cores of others: b1; before, not measured: b2 broke"


def test_only_what_did_not_stand_is_replaced_when_a_row_of_several_figures_is_measured_again(bench: Bench) -> None:
    def two(_: Any) -> Any:
        bench.asked.append("a")
        first = len(bench.asked) == 1
        noted(BUSY if first else CALM)
        figure = bench.table.Figure
        return [figure("x", "", f"x{len(bench.asked)}", first), figure("y", "", f"y{len(bench.asked)}", not first)]

    found = bench.measure(a=two)
    assert [(each.measured, each.enough) for each in found] == [
        ("x1", True),
        ("y2; before, beside 0.82 cores of others: y1", True),
    ]


def test_the_picture_is_of_the_measurement_that_counts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench.table, "PLOTS", tmp_path)
    row = bench.row("a", (False, 0.9), (False, 0.3), (False, 0.5), plot="a")

    def drawn(extent: Any) -> Any:
        figures = row(extent)
        (tmp_path / "a.png").write_text(figures[0].measured)
        return figures

    [found] = bench.measure(until=300.0, a=drawn)
    assert found.measured.startswith("a2;")
    assert (tmp_path / "a.png").read_text() == "a2"


# --- what is whose fault ----------------------------------------------------------------------------------


def steady(**wrong: int) -> dict[str, Any]:
    late = {"p50": 1.0, "p99": 940.1, "p99.9": 950.0, "max": 960.0}
    return {"lateness_ms": late, "lost": 0, "doubled": 0, "early": 0, "misdated": 0, **wrong}


@pytest.mark.parametrize(
    ("wrong", "own_fault"),
    [({}, False), ({"lost": 1}, True), ({"doubled": 1}, True), ({"early": 1}, True)],
)
@pytest.mark.parametrize("name", ["steady-10000", "steady-200-before", "steady-200-meanwhile", "steady-5000"])
def test_to_be_late_may_be_the_fault_of_others_and_to_lose_something_is_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, wrong: dict[str, int], own_fault: bool
) -> None:
    monkeypatch.setattr(bench.table, "bench", lambda *_, **__: steady(**wrong))
    monkeypatch.setattr(bench.table, "plotted", lambda *_, **__: steady(**wrong))
    [found] = bench.table.ROWS[name](bench.table.Extent(False, 5, 30.0))
    assert (found.enough, found.own_fault) == (False, own_fault)


@pytest.mark.parametrize(
    ("name", "own_fault"),
    [("steady-10000", True), ("steady-200-before", True), ("steady-200-meanwhile", False), ("steady-5000", False)],
)
def test_a_run_for_another_time_may_be_the_fault_of_others_only_where_its_job_is_submitted_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, own_fault: bool
) -> None:
    monkeypatch.setattr(bench.table, "bench", lambda *_, **__: steady(misdated=3))
    monkeypatch.setattr(bench.table, "plotted", lambda *_, **__: steady(misdated=3))
    [found] = bench.table.ROWS[name](bench.table.Extent(False, 5, 30.0))
    assert (found.enough, found.own_fault) == (False, own_fault)


def test_a_flight_of_which_a_run_failed_is_not_measured_away(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"in_flight_max": 10_000, "lost": 0, "doubled": 0, "executor_mb": 144.0, "executor_tree_mb": 152.0}
    monkeypatch.setattr(bench.table, "plotted", lambda *_: found | {"ended": {"succeeded": 9999, "failed": 1}})
    [figure] = bench.table.ROWS["flight-async"](bench.table.Extent(False, 5, 30.0))
    assert (figure.enough, figure.own_fault) == (False, True)


def test_of_what_is_measured_several_times_the_first_is_drawn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(bench.table, "bench", lambda *_, **__: steady())
    monkeypatch.setattr(bench.table, "plotted", lambda name, *_, **__: drawn.append(name) or steady())
    bench.table.ROWS["steady-200-before"](bench.table.Extent(False, 5, 30.0))
    assert drawn == ["steady-200-before"]


@pytest.mark.parametrize(
    ("each", "told", "enough"),
    [([2.0, 4.9], "2.0, 4.9", True), ([8.0, 6.0], "8.0, 6.0", False), ([2.0, 9.0, 3.0], "2.0, 9.0, 3.0", True),
     ([9.0, 2.0, 7.0], "9.0, 2.0, 7.0", False)],
)  # fmt: skip
def test_of_200_a_second_a_third_run_decides_where_two_do_not_agree(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, each: list[float], told: str, enough: bool
) -> None:
    left = iter(each)

    def run(*_: str, **__: object) -> dict[str, Any]:
        found = steady()
        return found | {"lateness_ms": found["lateness_ms"] | {"p99": next(left)}}

    monkeypatch.setattr(bench.table, "bench", run)
    monkeypatch.setattr(bench.table, "plotted", run)
    [found] = bench.table.ROWS["steady-200-before"](bench.table.Extent(False, 5, 30.0))
    assert (found.measured.partition(";")[0], found.enough) == (f"p99 of each {told}", enough)
    assert next(left, None) is None


def test_batches_are_drawn_from_the_first_of_their_own_rounds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    table, ran = bench.table, list[tuple[str, ...]]()
    rounds = [table.Round({"bare": 1.0, "hourhand": 1.0}, 0.0)]
    monkeypatch.setattr(table.submit_ratio, "measure_requests", lambda *_: (rounds, rounds))
    monkeypatch.setattr(table.submit_ratio, "run", lambda _: {"per_second": 1.0})
    monkeypatch.setattr(table, "bench", lambda *words, **_: ran.append(words) or {"submit_per_second": 1.0})
    monkeypatch.setattr(table, "plotted", lambda *words, **_: ran.append(words) or {"submit_per_second": 1.0})
    table.submit(table.Extent(False, 3, 30.0))
    batch = ("submit", "--mode", "batch", "--seconds", "15.0")
    assert ran[:3] == [("submit-batch", *batch), batch, batch]
    assert [words[0] for words in ran[3:]] == ["submit-single", "read"]


# --- rounds -----------------------------------------------------------------------------------------------


class Host:
    """A machine on which each side takes ten seconds, of which the host takes what was said beforehand."""

    def __init__(self, pairs: Any, monkeypatch: pytest.MonkeyPatch, *stolen: float) -> None:
        self.pairs = pairs
        self.asked: list[str] = []
        self._stolen = stolen
        self._at = (0.0, 0.0)
        monkeypatch.setattr(pairs, "look", lambda: self._at)

    def side(self, name: str, rate: float = 100.0) -> Callable[[], float]:
        def run() -> float:
            cores = self._stolen[len(self.asked)] if len(self.asked) < len(self._stolen) else 0.0
            self.asked.append(name)
            self._at = (self._at[0] + 10.0, self._at[1] + cores * 10.0)
            noted(float(len(self.asked)))
            return rate * len(self.asked)

        return run

    def rounds(self, count: int, spare: Any = None) -> list[Any]:
        sides = {name: self.side(name) for name in ("floor", "hourhand")}
        return list(self.pairs.rounds("x", count, sides, spare))


def test_what_the_host_took_is_told_in_cores_and_not_of_too_short_a_time(scripts: Any) -> None:
    pairs = scripts("pairs")
    assert pairs.stolen_cores((100.0, 7.0), (110.0, 13.1)) == pytest.approx(0.61)
    assert pairs.stolen_cores((100.0, 7.0), (100.5, 7.4)) == 0.0
    assert pairs.look()[1] >= 0.0


def test_a_round_beside_which_the_host_took_much_is_set_aside_measured_again_and_told(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = scripts("pairs")
    host = Host(pairs, monkeypatch, 0.25, 0.0, 0.1, 0.61)
    found = host.rounds(2)
    assert [each.counts for each in found] == [True, False, True]
    assert host.asked == ["floor", "hourhand", "hourhand", "floor", "hourhand", "floor"]  # the same order once more
    assert pairs.shares_of(found, "floor") == pytest.approx([2.0, 5 / 6])
    assert "pair 2 is set aside: the host took 0.61 cores" in capsys.readouterr().err
    assert pairs.told_share(found, "floor") == (
        "1.42 × (0.83 to 2.00; 350 of 350/s); 1 round set aside, beside which the host took 0.61 cores: 0.75 ×"
    )
    assert pairs.noted_others == [1.0, 2.0, 5.0, 6.0]  # what others took is that of the rounds that count


def test_two_rounds_are_set_aside_at_most(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = scripts("pairs")
    found = Host(pairs, monkeypatch, *[0.5] * 99).rounds(3)
    assert [each.counts for each in found] == [False, False, True, True, True]
    told = pairs.told_share(found, "floor")
    assert told.endswith("; 2 rounds set aside, beside which the host took 0.50 and 0.50 cores: 2.00 and 1.33 ×")


def test_rounds_are_set_aside_only_while_there_is_time_to_spare(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = scripts("pairs")
    spare = pairs.Spare(39.0)  # for one round of two sides, and not for two
    found = Host(pairs, monkeypatch, *[0.5] * 99).rounds(2, spare)
    assert [each.counts for each in found] == [False, True, True]
    assert spare.seconds == pytest.approx(19.0)


def test_gets_are_set_aside_with_the_submissions_of_their_round(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_ratio, pairs = scripts("submit_ratio"), scripts("pairs")
    host = Host(pairs, monkeypatch, 0.5)

    def rates(of: str, _: float) -> dict[str, float]:
        rate = host.side(of)()
        return {"submit_per_second": rate, "gets_per_second": rate * 10}

    monkeypatch.setattr(submit_ratio, "_rates", rates)
    singles, gets = submit_ratio.measure_requests(1, 1.0)
    assert [(each.counts, each.rates["bare"]) for each in singles] == [(False, 100.0), (True, 300.0)]
    assert [(each.counts, each.rates["bare"]) for each in gets] == [(False, 1000.0), (True, 3000.0)]


def test_a_short_form_sets_nothing_aside_and_the_whole_table_no_more_than_it_has_time_for(bench: Bench) -> None:
    table = bench.table
    assert table.aside_seconds(table.USUAL, quick=True) == 0.0
    assert table.aside_seconds(table.USUAL, quick=False) == table.ASIDE_SECONDS_MAX
    assert table.aside_seconds(["submit"], quick=False) > 3600


def test_rows_share_the_time_that_there_is_for_rounds_set_aside(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    table, given = bench.table, list[Any]()
    extent = table.Extent(False, 1, 30.0, table.Spare(150.0))

    def rounds(_: str, __: int, sides: dict[str, Callable[[], float]], spare: Any) -> list[Any]:
        given.append(spare)
        return [table.Round({side: measure() for side, measure in sides.items()}, 0.0)]

    rates = dict.fromkeys(("jobs_per_second", "submit_per_second", "gets_per_second", "per_second"), 1.0)
    for name in ("floor", "bench", "plotted"):
        monkeypatch.setattr(table, name, lambda *_, **__: rates)
    for name in ("_rates", "run"):
        monkeypatch.setattr(table.submit_ratio, name, lambda *_: rates)
    for module in (table, table.submit_ratio):
        monkeypatch.setattr(module, "rounds", rounds)
    table.lifecycle_future(extent)
    table.submit(extent)
    assert [each is extent.spare for each in given] == [True, True, True]
