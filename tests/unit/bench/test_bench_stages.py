"""Where the time of a Python process goes, from the samples that it leaves."""

import json
from pathlib import Path

import pytest

from hourhand.bench.stages import read_samples, shares_between, stages_of


def leave(folder: Path, name: str, role: str, **samples: int) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"role": role, "sample_seconds": 0.001, "samples": samples}))


def test_samples_of_all_processes_of_a_role_are_added(tmp_path: Path) -> None:
    leave(tmp_path, "executor-1", "executor", claim=3, run=1)
    leave(tmp_path, "executor-2", "executor", claim=2)
    leave(tmp_path, "api-3", "api", read=5)
    assert read_samples(tmp_path) == {"executor": {"claim": 5, "run": 1}, "api": {"read": 5}}


def test_only_what_was_sampled_meanwhile_counts() -> None:
    before = {"executor": {"start": 100, "run": 10}}
    after = {"executor": {"start": 100, "run": 40, "claim": 10}, "api": {"read": 4}}
    assert shares_between(before, after) == {"executor": {"run": 0.75, "claim": 0.25}, "api": {"read": 1.0}}
    assert shares_between(after, after) == {}


def test_shares_divide_what_the_kernel_counted_for_the_role() -> None:
    told = stages_of({"executor": 2.0, "postgres executor": 1.0}, 100_000, {"executor": {"run": 0.75, "claim": 0.25}})
    assert told["python"]["executor"] == pytest.approx(20.0)
    assert told["python, executor"] == pytest.approx({"run": 15.0, "claim": 5.0})
    assert told["all"]["sum"] == pytest.approx(30.0)
