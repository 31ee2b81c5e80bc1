"""CI's check of speed: passes what is as fast as recorded, and nothing else."""

import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FLOOR = "aa6283a868137af945368fc5209691ee29bdf094f7c2cb67c909e9c062aed2e9"
BARS = {"immediate": 0.8, "future": 0.7}


@pytest.fixture
def ratchet(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("ratchet", "pairs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("ratchet")


@pytest.mark.parametrize(
    ("found", "bars", "faults"),
    [
        ({"immediate": [0.80], "future": [0.70]}, BARS, []),
        ({"immediate": [0.73], "future": [0.64]}, BARS, []),
        ({"immediate": [0.71], "future": [0.70]}, BARS, ["immediate: 0.710 is below"]),
        ({"immediate": [0.2, 0.79, 0.81], "future": [0.70]}, BARS, []),
        ({"immediate": [0.99, 0.70, 0.71], "future": [0.70]}, BARS, ["immediate: 0.710 is below"]),
        ({"immediate": [0.2], "future": [0.2]}, BARS, ["immediate: 0.200", "future: 0.200"]),
        ({"immediate": [2.0], "future": [2.0]}, {"immediate": 0.8}, ["future: no ratio is recorded"]),
        ({"immediate": [2.0], "future": [2.0]}, {}, ["immediate: no ratio", "future: no ratio"]),
        ({"immediate": [0.8], "future": []}, BARS, ["future: was not measured"]),
    ],
)
def test_it_fails_when_the_median_is_below_nine_tenths_of_the_record(ratchet, found, bars, faults) -> None:
    said = ratchet.judge(found, bars)
    assert len(said) == len(faults)
    assert all(line.startswith(fault) for line, fault in zip(said, faults, strict=True))


# --- whose record -----------------------------------------------------------------------------------------


def test_a_python_is_held_to_its_own_record_and_an_unknown_one_to_the_lowest(ratchet) -> None:
    record = {"fast": {"immediate": 0.8, "future": 0.7}, "slow": {"immediate": 0.65, "future": 0.75}}
    assert ratchet.bars_for(record, "fast") == ratchet.Bars({"immediate": 0.8, "future": 0.7}, True)
    assert ratchet.bars_for(record, "new") == ratchet.Bars({"immediate": 0.65, "future": 0.7}, False)


@pytest.mark.parametrize("record", [{}, {"this": {}}, {"this": {"immediate": None, "future": 0}}])
def test_an_empty_record_does_not_pass_for_a_good_one(ratchet, record) -> None:
    bars = ratchet.bars_for(record, "this")
    assert bars.ratios == {}
    assert len(ratchet.judge({"immediate": [9.0], "future": [9.0]}, bars.ratios)) == 2


def test_what_is_kept_has_a_ratio_of_both_modes_for_each_build(ratchet) -> None:
    for build, entry in json.loads((BENCHMARKS / "recorded.json").read_text()).items():
        assert build.startswith(("CPython", "PyPy"))
        assert all(0 < entry[mode] < 2 for mode in ratchet.MODES)
        assert entry["seconds"] == ratchet.SECONDS  # of other lengths it would not be comparable


def test_a_record_is_not_lowered_unless_told_to(ratchet) -> None:
    record = {"this": {"immediate": 0.8, "future": 0.7}, "other": {"immediate": 0.5, "future": 0.5}}
    lower = {"immediate": [0.7, 0.75, 0.9], "future": [0.9, 0.9, 0.9]}
    with pytest.raises(SystemExit, match=r"immediate 0.800 → 0.750"):
        ratchet.merged(record, "this", lower, lower=False)
    fresh = ratchet.merged(record, "this", lower, lower=True)
    assert (fresh["this"]["immediate"], fresh["this"]["future"]) == (0.75, 0.9)
    assert fresh["other"] == record["other"]
    assert ratchet.merged({}, "this", lower, lower=False)["this"]["immediate"] == 0.75


# --- how often it looks -----------------------------------------------------------------------------------


def pairs_of(ratios: dict[str, list[float]], asked: list[str]) -> Callable[[str, int], Awaitable[float]]:
    async def pair(mode: str, number: int) -> float:
        asked.append(mode)
        return ratios[mode][number]

    return pair


async def test_two_pairs_of_each_mode_are_enough_when_they_are_clearly_well(ratchet) -> None:
    asked: list[str] = []
    found = await ratchet.look(pairs_of({"immediate": [0.8, 0.78], "future": [0.7, 0.69]}, asked), BARS)
    assert asked == ["immediate", "future"] * 2
    assert ratchet.judge(found, BARS) == []


async def test_an_outlier_gets_its_mode_three_pairs_more_and_does_not_decide(ratchet) -> None:
    asked: list[str] = []
    ratios = {"immediate": [0.4, 0.8, 0.79, 0.8, 0.78], "future": [0.7, 0.69]}
    found = await ratchet.look(pairs_of(ratios, asked), BARS)
    assert (asked.count("immediate"), asked.count("future")) == (5, 2)
    assert ratchet.judge(found, BARS) == []


async def test_a_real_loss_is_still_one_after_five_pairs(ratchet) -> None:
    asked: list[str] = []
    lost = [ratio * 0.87 for ratio in (0.79, 0.81, 0.8, 0.83, 0.78)]
    found = await ratchet.look(pairs_of({"immediate": lost, "future": [0.7, 0.7]}, asked), BARS)
    assert len(found["immediate"]) == 5
    assert len(ratchet.judge(found, BARS)) == 1


def test_what_others_take_of_the_machine_does_not_count(ratchet) -> None:
    alone = {"jobs_per_second": 20_000.0, "cpu": {"a": 1.5, "b": 0.3}, "machine": {"idle": 0.15, "disk_wait": 0.05}}
    beside = {"jobs_per_second": 10_000.0, "cpu": {"a": 0.75, "b": 0.15}, "machine": {"idle": 0.1, "disk_wait": 0.0}}
    assert ratchet.unhindered(alone, "immediate") == pytest.approx(10_000)
    assert ratchet.unhindered(beside, "immediate") == pytest.approx(10_000)
    waiting = {**alone, "jobs_per_second": 10_000.0, "cpu": {"a": 0.9}, "machine": {"idle": 1.1, "disk_wait": 0.0}}
    # To wait where nobody is in the way is to be slow; but future jobs must wait for their time.
    assert ratchet.unhindered(waiting, "immediate") == pytest.approx(5_000)
    assert ratchet.unhindered(waiting, "future") == pytest.approx(10_000 / 0.9)


@pytest.mark.parametrize(("crowded", "ratio", "measured"), [(2, 0.8, 3), (99, 0.3, 9)])
async def test_pairs_beside_which_others_take_much_are_set_aside_but_not_for_ever(
    ratchet, monkeypatch: pytest.MonkeyPatch, crowded: int, ratio: float, measured: int
) -> None:
    taken = []

    def found(rate: float, stolen: float) -> dict[str, Any]:
        machine = {"busy": 1.5, "idle": 0.5 - stolen, "disk_wait": 0.0, "stolen": stolen}
        return {"jobs_per_second": rate * (2 - stolen) / 2, "cpu": {"all": 1.5}, "machine": machine}

    async def floor(self: Any, mode: str) -> dict[str, Any]:
        return found(20_000.0, 0.0)

    async def ours(self: Any, mode: str) -> dict[str, Any]:
        taken.append(mode)
        return found(6_000.0, 0.51) if len(taken) <= crowded else found(16_000.0, 0.0)

    monkeypatch.setattr(ratchet.Sides, "_floor", floor)
    monkeypatch.setattr(ratchet.Sides, "_ours", ours)
    sides = ratchet.Sides(None, "", 0)
    assert await sides.pair("immediate", 0) == pytest.approx(ratio)
    assert len(taken) == measured


# --- rounds -----------------------------------------------------------------------------------------------


def test_a_pair_s_order_changes_and_its_ratio_does_not(ratchet, capsys: pytest.CaptureFixture[str]) -> None:
    pairs, asked = sys.modules["pairs"], []

    def rate(name: str, value: float) -> float:
        asked.append(name)
        return value

    found = pairs.ratios("x", 2, lambda: rate("ours", 50.0), lambda: rate("theirs", 100.0), "floor")
    assert found == [0.5, 0.5]
    assert asked == ["theirs", "ours", "ours", "theirs"]


def test_figures_of_a_server_that_may_forget_or_of_work_that_is_missing_do_not_count(ratchet) -> None:
    pairs = sys.modules["pairs"]
    good = {"settings": dict.fromkeys(pairs.DURABLE, "on"), "lost": 0, "doubled": 0}
    pairs.refuse_unsound("x", good)
    with pytest.raises(SystemExit, match="fsync"):
        pairs.refuse_unsound("x", {**good, "settings": {**good["settings"], "fsync": "off"}})
    with pytest.raises(SystemExit, match="lost"):
        pairs.refuse_unsound("x", {**good, "lost": 3})


def test_the_floor_is_what_it_was() -> None:
    """Byte for byte, wherever this runs: all ratios are shares of it."""
    assert sha256((BENCHMARKS / "floor.py").read_bytes()).hexdigest() == FLOOR
