"""The options that every verb "pause" and every verb "resume" has, and how they are read."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hourhand.cli.printing import say, show

if TYPE_CHECKING:
    from hourhand.client import PauseDone, ResumeDone

_Command = TypeVar("_Command", bound=Callable[..., Any])


def pause_options(command: _Command) -> _Command:
    command = click.option("--until", metavar="TIME", help="Goes on by itself then: +2h, 06:00.")(command)
    return click.option("--reason", metavar="TEXT", help="Shown to whoever asks why something does not run.")(command)


def resume_options(command: _Command) -> _Command:
    words = click.Choice(["none", "last", "all"])
    return click.option(
        "--catch-up", type=words, help="What is run of that which fell into the pause; none by default."
    )(command)


def until_of(text: str | None) -> datetime | None:
    """The instant that a person means. Raises click.BadParameter."""
    if text is None:
        return None
    from hourhand.cli.times import TimeFault, parse_time

    try:
        return parse_time(text, datetime.now(UTC))
    except TimeFault as fault:
        raise click.BadParameter(str(fault), param_hint="--until") from None


def until_words(until: datetime | None) -> str:
    from hourhand.cli.times import local_time

    return "" if until is None else f" until {local_time(until)}"


def show_paused(done: "PauseDone", what: str) -> None:
    held = f"{done.jobs} {'job is' if done.jobs == 1 else 'jobs are'} held"
    show(done, lambda: say(f"{what} is paused{until_words(done.until)}: {held}; what runs goes on"))
    for run_id in done.too_late:
        say(f"too late for run {run_id}: an executor already has it")


def show_resumed(done: "ResumeDone", what: str) -> None:
    show(done, lambda: say(f"{what} goes on" if done.was_paused else f"{what} was not paused"))
