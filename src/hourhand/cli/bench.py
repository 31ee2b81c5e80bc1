"""`hourhand bench`: measures what this machine does, on a cluster of its own or on a running one."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

_shared_options = [
    click.option("--server", metavar="URL", help="Measure a running Hourhand instead of a temporary one."),
    click.option("--token", envvar="HOURHAND_TOKEN", help="Token for --server."),
    click.option(
        "--witness",
        type=click.Path(dir_okay=False),
        envvar="HOURHAND_BENCH_WITNESS",
        help="With --server: the file its executors append to, when they do not say so themselves.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
]


def _shared(command: Any) -> Any:
    for option in reversed(_shared_options):
        command = option(command)
    return command


@click.group(short_help="Measure throughput and punctuality on this machine.")
def bench() -> None:
    """Measure throughput and punctuality on this machine."""


@bench.command()
@click.option("--seconds", type=click.FloatRange(1, 3600), default=30, show_default=True, help="How long to submit.")
@click.option("--mode", type=click.Choice(["immediate", "future"]), default="immediate", show_default=True)
@click.option("--batch", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Jobs per request.")
@click.option(
    "--ahead", type=click.IntRange(1), default=4000, show_default=True, help="Due but unfinished jobs at most."
)
@_shared
def lifecycle(as_json: bool, **given: Any) -> None:
    """Whole lives of no-op jobs: submitted over HTTP in batches, fallen due, run, recorded. Saturates the machine."""
    from hourhand.cli.bench_runs import measure_lifecycle, open_target

    async def measure() -> dict[str, Any]:
        async with open_target(given["server"], given["token"], _path(given["witness"]), _progress) as target:
            return await measure_lifecycle(
                target, given["seconds"], given["mode"], given["batch"], given["ahead"], _progress
            )

    _print(asyncio.run(measure()), as_json)


@bench.command()
@click.option("--seconds", type=click.FloatRange(1, 3600), default=20, show_default=True, help="How long to submit.")
@click.option("--rate", type=click.FloatRange(1, 5000), default=100, show_default=True, help="Jobs per second.")
@_shared
def immediate(as_json: bool, **given: Any) -> None:
    """Lightly loaded: from sending a request with one immediate job until its handler starts."""
    from hourhand.cli.bench_runs import measure_immediate, open_target

    async def measure() -> dict[str, Any]:
        async with open_target(given["server"], given["token"], _path(given["witness"]), _progress) as target:
            return await measure_immediate(target, given["seconds"], given["rate"], _progress)

    _print(asyncio.run(measure()), as_json)


def _path(given: str | None) -> Path | None:
    return Path(given) if given else None


def _progress(text: str) -> None:
    click.echo(text, err=True)


def _print(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result))
        return
    for key, value in result.items():
        shown = (
            "  ".join(f"{name} {_number(part)}" for name, part in value.items()) if isinstance(value, dict) else None
        )
        click.echo(f"{key.replace('_', ' '):>18}  {shown or _number(value)}")


def _number(value: Any) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
