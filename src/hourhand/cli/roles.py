"""`hourhand api|scheduler|executor`: one role each, any number of copies, against one PostgreSQL."""

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any

import click

_PR_SET_PDEATHSIG = 1


def _common(command: Callable[..., None]) -> Callable[..., None]:
    options = [
        click.option("--database", metavar="URL", help="PostgreSQL to use (HOURHAND_DATABASE_URL)."),
        click.option("--schema", metavar="NAME", help="Schema that holds the tables."),
        click.option("--name", help="What this node is called; the host's name by default."),
        click.option("--config", "config_file", type=click.Path(dir_okay=False), help="Configuration file (TOML)."),
        click.option("--ready-fd", type=int, hidden=True, help="Written to once the node is ready."),
        click.option("--die-with", type=int, hidden=True, help="Process id of the parent to die with."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command(short_help="Serve the REST API.")
@_common
@click.option("--host", help="Address to listen on; loopback by default.")
@click.option("--port", type=int, help="Port to listen on; 8420 by default (HOURHAND_PORT).")
def api(**given: Any) -> None:
    """Serve the REST API."""
    _run("api", given, {"api.host": given.pop("host"), "api.port": given.pop("port")})


@click.command(short_help="Plan runs and watch over nodes.")
@_common
def scheduler(**given: Any) -> None:
    """Plan runs and watch over nodes."""
    _run("scheduler", given, {})


@click.command(short_help="Run jobs.")
@_common
@click.option("--import", "modules", multiple=True, metavar="MODULE", help="Module with @job handlers; repeatable.")
@click.option("--queue", "queues", multiple=True, help="Queue to take runs from; repeatable, * for all.")
@click.option("--label", "labels", multiple=True, help="What this executor has: gpu, zone=eu; repeatable.")
@click.option("--resource", "resources", multiple=True, help="How much it has: gpu=2, memory=8GB; repeatable.")
@click.option("--slots", type=int, help="Attempts at once inside the executor.")
@click.option("--process-slots", type=int, help="Attempts at once as processes.")
def executor(**given: Any) -> None:
    """Run jobs."""
    flags = {
        "kinds.handler_modules": given.pop("modules") or None,
        "executor.queues": given.pop("queues") or None,
        "executor.labels": given.pop("labels") or None,
        "executor.resources": given.pop("resources") or None,
        "executor.slots_inline": given.pop("slots"),
        "executor.slots_process": given.pop("process_slots"),
    }
    _run("executor", given, flags)


def _run(role: str, given: dict[str, Any], flags: dict[str, Any]) -> None:
    from pathlib import Path

    from hourhand.config import load_config
    from hourhand.model.errors import BadConfiguration
    from hourhand.telemetry import set_up_logging

    if given["die_with"] is not None:
        _die_with(given["die_with"])
    flags |= {"database.url": given["database"], "database.schema": given["schema"], "name": given["name"]}
    path = Path(given["config_file"]) if given["config_file"] else None
    config = load_config(path, flags={key: value for key, value in flags.items() if value is not None})
    set_up_logging(role, config.log.json, config.log.level)
    if not config.database.url:
        raise BadConfiguration([f"hourhand {role} needs a database: give --database URL, or use `hourhand up`"])
    _serve(role, config, given["ready_fd"])


def _serve(role: str, config: Any, ready_fd: int | None) -> None:
    import uvloop

    from hourhand.wiring import require_migrated, run_role

    def ready() -> None:
        if ready_fd is not None:
            os.write(ready_fd, b"1")
            os.close(ready_fd)

    async def main() -> None:
        await require_migrated(config, role)
        await run_role(config, role, ready)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def _die_with(parent: int) -> None:
    """Ends this process when its parent dies, also when that is killed. Nothing of `hourhand up` is left behind."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), signal.SIGKILL)
