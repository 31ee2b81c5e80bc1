"""`hourhand up`: everything on this machine, in the foreground, with one command; and what belongs to it."""

import asyncio
from pathlib import Path
from typing import Any

import click

from hourhand.cli.session import connected, session_options


@click.command(short_help="Start everything on this machine: database, API, scheduler, executor.")
@click.option("--host", help="Address to listen on; loopback by default (HOURHAND_HOST).")
@click.option("--port", type=int, help="Port to listen on; 8420 by default (HOURHAND_PORT).")
@click.option("--home", type=click.Path(file_okay=False), help="Data folder; .hourhand by default (HOURHAND_HOME).")
@click.option("--database", metavar="URL", help="Use this PostgreSQL instead of the embedded one.")
@click.option("--import", "modules", multiple=True, metavar="MODULE", help="Module with @job handlers; repeatable.")
@click.option("--config", "config_file", type=click.Path(dir_okay=False), help="Configuration file (TOML).")
def up(**given: Any) -> None:
    """Start everything on this machine: database, API, scheduler, executor."""
    from hourhand.cli.supervisor import Supervisor
    from hourhand.telemetry import set_up_logging

    config = _load(given)
    chosen = any(setting.key == "log.level" and setting.origin != "default" for setting in config.settings)
    set_up_logging("up", config.log.json, config.log.level if chosen else "warning")
    config_file = Path(given["config_file"]) if given["config_file"] else None
    asyncio.run(Supervisor(config, config_file, click.echo).run())


@click.command("login-link", short_help="Print a new one-time login link.")
@click.option("--home", type=click.Path(file_okay=False), help="Data folder; .hourhand by default (HOURHAND_HOME).")
@click.option("--database", metavar="URL", help="The PostgreSQL in use, when it is not the embedded one.")
@click.option("--config", "config_file", type=click.Path(dir_okay=False), help="Configuration file (TOML).")
def login_link(**given: Any) -> None:
    """Print a new one-time login link. It works once, within an hour."""
    from hourhand.cli.supervisor import new_login_link

    config = _load(given | {"host": None, "port": None, "modules": ()})
    click.echo(asyncio.run(new_login_link(config)))


@click.command(short_help="Add a handful of telling sample jobs to a running Hourhand.")
@session_options
def demo() -> None:
    """Add a handful of telling sample jobs to a running Hourhand."""
    from hourhand.cli.demo_jobs import DEMO_JOBS

    with connected() as client:
        for job in DEMO_JOBS:
            made = client.create_job(**job)
            click.echo(f"{made.name:<22} {made.job_id}  {job['description']}")
    click.echo("\nLook at them:  hourhand job list   hourhand run list   hourhand status", err=True)


def _load(given: dict[str, Any]) -> Any:
    from hourhand.config import load_config

    flags = {
        "home": given["home"] and Path(given["home"]),
        "api.host": given["host"],
        "api.port": given["port"],
        "database.url": given["database"],
        "kinds.handler_modules": given["modules"] or None,
    }
    path = Path(given["config_file"]) if given["config_file"] else None
    return load_config(path, flags={key: value for key, value in flags.items() if value is not None})
