"""CI's check of speed: passes what is as fast as recorded, and nothing else."""

import importlib
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def ratchet(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("ratchet", "lifecycle_ratio", "pairs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("ratchet")


RECORDED = {"immediate": 0.8, "future": 0.7}


@pytest.mark.parametrize(
    ("found", "recorded", "faults"),
    [
        ({"immediate": 0.80, "future": 0.70}, RECORDED, []),
        ({"immediate": 0.73, "future": 0.64}, RECORDED, []),
        ({"immediate": 0.71, "future": 0.70}, RECORDED, ["immediate: 0.71 is below"]),
        ({"immediate": 0.2, "future": 0.2}, RECORDED, ["immediate: 0.20", "future: 0.20"]),
        ({"immediate": 2.0, "future": 2.0}, {"immediate": 0.8}, ["future: no ratio is recorded"]),
        (
            {"immediate": 2.0, "future": 2.0},
            {"immediate": None, "future": 0},
            ["immediate: no ratio", "future: no ratio"],
        ),
        ({"immediate": 0.8}, RECORDED, ["future: was not measured"]),
    ],
)
def test_it_fails_below_nine_tenths_of_the_record(ratchet, found, recorded, faults) -> None:
    said = ratchet.judge(found, recorded)
    assert len(said) == len(faults)
    assert all(line.startswith(fault) for line, fault in zip(said, faults, strict=True))


def test_the_record_has_a_place_for_both_modes(ratchet) -> None:
    assert set(json.loads((BENCHMARKS / "recorded.json").read_text())) == set(ratchet.MODES)


def test_a_pair_s_order_changes_and_its_ratio_does_not(ratchet, capsys: pytest.CaptureFixture[str]) -> None:
    pairs, asked = sys.modules["pairs"], []

    def rate(name: str, value: float) -> float:
        asked.append(name)
        return value

    found = pairs.ratios("x", 2, lambda: rate("ours", 50.0), lambda: rate("theirs", 100.0), "floor")
    assert found == [0.5, 0.5]
    assert asked == ["theirs", "ours", "ours", "theirs"]


def test_the_floor_is_what_it_was() -> None:
    shared = BENCHMARKS.parents[1] / "shared" / "bench" / "floor.py"
    if not shared.exists():
        pytest.skip("the shared floor is not here")
    assert (BENCHMARKS / "floor.py").read_bytes() == shared.read_bytes()
