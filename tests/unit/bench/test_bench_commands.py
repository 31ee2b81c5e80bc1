"""Every measurement explains itself, and mistakes are told before anything is started."""

import pytest
from click.testing import CliRunner

from hourhand.bench.steady import refuse_nothing
from hourhand.cli.bench import bench
from hourhand.cli.bench_running import _telling, settings_of
from hourhand.model.errors import WorldError

MODES = (
    "lifecycle",
    "immediate",
    "steady",
    "recurring",
    "burst",
    "submit",
    "read",
    "flight",
    "growth",
    "idle",
    "soak",
    "overload",
    "day",
)


def test_the_help_names_every_measurement() -> None:
    said = CliRunner().invoke(bench, ["--help"]).output
    assert all(f"\n  {mode} " in said for mode in MODES)
    assert sorted(bench.commands) == sorted(MODES)


@pytest.mark.parametrize("mode", MODES)
def test_every_option_says_what_it_is_for(mode: str) -> None:
    command = bench.commands[mode]
    assert command.help
    assert [param.name for param in command.params if not getattr(param, "help", None)] == []


@pytest.mark.parametrize("text", ["executor.slots_inline", "=3"])
def test_a_setting_needs_a_key_and_a_value(text: str) -> None:
    done = CliRunner().invoke(bench, ["burst", "--set", text])
    assert done.exit_code == 2
    assert "write KEY=VALUE" in done.output
    assert settings_of({"settings": ("a.b=1", "c.d=x=y")}) == {"a.b": "1", "c.d": "x=y"}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0"])
@pytest.mark.parametrize("words", ["steady --rate", "submit --seconds", "soak --minutes", "soak --compare"])
def test_what_is_no_number_to_measure_with_is_refused(words: str, text: str) -> None:
    done = CliRunner().invoke(bench, [*words.split(), text])
    assert done.exit_code == 2
    assert f"Invalid value for '{words.split()[1]}'" in done.output


def test_a_load_of_not_one_job_is_refused() -> None:
    with pytest.raises(WorldError, match="is not one job"):
        refuse_nothing(0.1, 5)
    refuse_nothing(0.2, 5)


def test_a_planner_alone_needs_a_cluster_of_its_own() -> None:
    done = CliRunner().invoke(bench, ["recurring", "--planner-only", "--server", "http://127.0.0.1:1"])
    assert done.exit_code == 2
    assert "cluster of its own" in done.output


def test_of_several_faults_the_one_that_says_something_is_told() -> None:
    fault = WorldError("a batch was answered 503")
    group = BaseExceptionGroup("tasks", [ValueError("x"), BaseExceptionGroup("more", [fault])])
    assert _telling(group) is fault
    assert isinstance(_telling(ExceptionGroup("tasks", [ValueError("x")])), ValueError)
