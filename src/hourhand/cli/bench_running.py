"""What all commands of `hourhand bench` share: their options, and the way from these to a printed result."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from hourhand.model.errors import HourhandError

if TYPE_CHECKING:
    from hourhand.bench.report import Measured, Progress
    from hourhand.bench.target import Target

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Measure = Callable[["Target", "Progress"], Awaitable["Measured"]]

_SHARED_OPTIONS: Final = (
    click.option("--server", metavar="URL", help="Measure a running Hourhand instead of a temporary one."),
    click.option("--token", envvar="HOURHAND_TOKEN", help="Token for --server."),
    click.option(
        "--witness",
        type=click.Path(dir_okay=False),
        envvar="HOURHAND_BENCH_WITNESS",
        help="With --server: the file its executors append to, when they do not say so themselves.",
    ),
)
_OUTPUT_OPTIONS: Final = (
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of the temporary cluster (executor.slots_inline=20000); repeatable.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    click.option("--plot", type=click.Path(dir_okay=False), help="Draw the course into this .png, .svg or .pdf."),
)


def shared_options(command: _Command) -> _Command:
    """The options of everything that can be measured on a running cluster too."""
    for option in reversed((*_SHARED_OPTIONS, *_OUTPUT_OPTIONS)):
        command = option(command)
    return command


def own_only(command: _Command) -> _Command:
    """The options of what needs a cluster of its own."""
    for option in reversed(_OUTPUT_OPTIONS):
        command = option(command)
    return command


def take_shared(given: dict[str, Any]) -> dict[str, Any]:
    """Takes the options that all have out of those that were given."""
    shared = {name: given.pop(name, None) for name in ("server", "token", "witness")}
    return shared | {name: given.pop(name) for name in ("settings", "as_json", "plot")}


def settings_of(shared: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for text in shared["settings"]:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set {text}: write KEY=VALUE")
        found[key] = value
    return found


def run_on_target(
    shared: Mapping[str, Any], measure: _Measure, needed: Mapping[str, str] | None = None, *, stages: bool = False
) -> None:
    """Measures on a target. `needed`: settings of a temporary cluster that the measurement cannot do without. `stages`:
    its processes are to say where their time goes."""
    from hourhand.bench.stages import SETTING
    from hourhand.bench.target import open_target

    async def on_target(progress: "Progress") -> "Measured":
        witness = Path(shared["witness"]) if shared["witness"] else None
        with tempfile.TemporaryDirectory(prefix="hourhand-bench-") as folder:
            sampled = {SETTING: folder} if stages and shared["server"] is None else {}
            settings = {**(needed or {}), **sampled, **settings_of(shared)}
            async with open_target(shared["server"], shared["token"], witness, settings, progress) as target:
                return await measure(target, progress)

    run_alone(shared, on_target)


def run_alone(shared: Mapping[str, Any], measure: Callable[["Progress"], Awaitable["Measured"]]) -> None:
    import uvloop

    from hourhand.bench.ending import cancel_once_by_signals
    from hourhand.bench.plots import draw, require_plots
    from hourhand.bench.report import Progress, as_json, as_table
    from hourhand.telemetry import set_up_logging

    set_up_logging("bench", False, "warning")  # what is wrong goes to stderr, and stdout is for the result alone
    plot = Path(shared["plot"]) if shared["plot"] else None
    if plot is not None:
        require_plots(plot)

    async def main() -> "Measured":
        task = asyncio.current_task()
        assert task is not None
        cancel_once_by_signals(task)
        try:
            return await measure(Progress())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except BaseExceptionGroup as several:
            raise _telling(several) from several

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        measured = runner.run(main())
    click.echo(as_json(measured.facts) if shared["as_json"] else as_table(measured.facts))
    if plot is not None:
        draw(plot, measured.facts, measured.series)


def _telling(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of the faults of tasks that ran side by side, the one that says something: mostly all say the same."""
    faults: list[BaseException] = []
    for fault in several.exceptions:
        faults.append(_telling(fault) if isinstance(fault, BaseExceptionGroup) else fault)
    return next((fault for fault in faults if isinstance(fault, HourhandError)), faults[0])
