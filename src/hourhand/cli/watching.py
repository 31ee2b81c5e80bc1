"""`--wait` and `--follow`: stays with a run until it is final, and ends the command as the run ended."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import click

from hourhand.cli.exits import RunFailed
from hourhand.cli.printing import json_text, log_text, plain, say, show
from hourhand.cli.progress import ProgressShown
from hourhand.cli.session import output_format
from hourhand.cli.times import length_text
from hourhand.model.errors import HourhandError

if TYPE_CHECKING:
    from hourhand.client import Client, LogLineView, RunDetailView
    from hourhand.client.attempt_views import AttemptView

EXPLAIN_AFTER_SECONDS: Final = 3.0

_Command = TypeVar("_Command", bound=Callable[..., Any])


def wait_options(command: _Command) -> _Command:
    command = click.option("--follow", is_flag=True, help="With --wait: print the log as it is written.")(command)
    return click.option("--wait", is_flag=True, help="Wait for the run; exit 5 unless it succeeds.")(command)


def grep_options(command: _Command) -> _Command:
    command = click.option("--no-color", is_flag=True, help="Take colours out, and all that steers a terminal.")(
        command
    )
    command = click.option("-i", "--ignore-case", is_flag=True, help="With --grep: capital or small is the same.")(
        command
    )
    return click.option("--grep", metavar="TEXT", help="Only lines that hold this text.")(command)


def check_wait_options(wait: bool, follow: bool) -> None:
    if follow and not wait:
        raise click.UsageError("--follow needs --wait", click.get_current_context())


def watch_run(client: "Client", run_id: UUID, follow: bool = False, timeout_seconds: float | None = None) -> None:
    """Returns when the run has succeeded, its result printed. Raises RunFailed when it ended otherwise."""
    began = time.monotonic()
    try:
        _tell_why_it_waits(client, run_id, timeout_seconds)
        if follow:
            # Whoever asked for JSON reads one document from stdout; the log must not get in between.
            is_data = output_format() != "table"
            show_logs(client, run_id, client.follow_logs(run_id), lambda lines: print_lines(lines, err=is_data))
        left = None if timeout_seconds is None else max(timeout_seconds - (time.monotonic() - began), 0.0)
        run = _watched(client, run_id, left)
    except KeyboardInterrupt:
        say(f"run {run_id} goes on; stop it with: hourhand run cancel {run_id}")
        raise
    show(run, lambda: _print_result(run))
    if not run.succeeded:
        raise RunFailed(_failure(run))
    say(f"run {run.run_id} succeeded in {length_text(run.duration_ms)}")


def _watched(client: "Client", run_id: UUID, timeout_seconds: float | None) -> "RunDetailView":
    run: RunDetailView | None = None
    told = 0
    with ProgressShown() as shown:
        for run in client.watch_run(run_id, timeout_seconds):
            for attempt in run.attempts[told:]:  # or nobody would know why nothing happens until the next one
                shown.tell(_attempt_text(attempt, run))
            told = len(run.attempts)
            shown.show(run)
    assert run is not None
    return run


def _tell_why_it_waits(client: "Client", run_id: UUID, timeout_seconds: float | None) -> None:
    """Nobody likes to look at a command that says nothing: if the run is not taken soon, the reason is told, once."""
    if timeout_seconds is not None and timeout_seconds <= EXPLAIN_AFTER_SECONDS:
        return
    if client.wait_while_waiting(run_id, EXPLAIN_AFTER_SECONDS).waits:
        with contextlib.suppress(HourhandError):  # a hint, without which the wait goes on all the same
            why = client.explain_run(run_id)
            advice = f" ({why.advice})" if why.advice else ""
            say(f"run {run_id} {why.summary}{advice}")


def print_lines(
    lines: "Iterable[LogLineView]", err: bool = False, times: bool = False, color: bool | None = None
) -> None:
    """Log lines as text; the beginning of a further attempt is told on stderr."""
    attempt, coloured = None, False
    try:
        for line in lines:
            if attempt not in (None, line.attempt):
                coloured = _end_colours(coloured, err)
                say(f"--- attempt {line.attempt} ---")
            attempt = line.attempt
            stamp = f"{plain(line.at)} " if times and line.at else ""
            text = log_text(line.text, err=err, color=color)
            coloured = coloured or "\x1b" in text
            # Told not to judge by itself: it would take the colours out of what goes into a file.
            click.echo(stamp + text, err=err, color=True)
    finally:
        _end_colours(coloured, err)


def _end_colours(coloured: bool, err: bool) -> bool:
    """What a run has coloured, or hidden, must not colour or hide what comes after its log on the terminal."""
    if coloured and (sys.stderr if err else sys.stdout).isatty():
        from hourhand.model.log import NO_COLOUR

        click.echo(NO_COLOUR, nl=False, err=err, color=True)
    return False


def show_logs(
    client: "Client",
    run_id: UUID,
    lines: "Iterable[LogLineView]",
    show_them: "Callable[[Iterable[LogLineView]], None]",
    **wanted: Any,
) -> None:
    """The log of a run, or, where it went to several executors and so has none of its own, those of its parts."""
    shown = 0

    def counted() -> "Iterator[LogLineView]":
        nonlocal shown
        for line in lines:
            shown += 1
            yield line

    show_them(counted())
    if shown:
        return
    for part in client.run_parts(run_id):
        say(f"--- part {part.index + 1} of {part.total}, run {part.run_id} ---")
        show_them(client.log_lines(part.run_id, **wanted))


def show_lines(lines: "Iterable[LogLineView]", times: bool, color: bool | None) -> None:
    """Log lines in the format asked for; as JSON one object per line, as it comes."""
    match output_format():
        case "json":
            for line in lines:
                click.echo(json_text(plain(line), indent=None))
        case "yaml":
            show(list(lines), lambda: None)
        case _:
            print_lines(lines, times=times, color=color)


def _print_result(run: "RunDetailView") -> None:
    if isinstance(run.result, str):
        click.echo(log_text(run.result))
    elif run.result is not None:
        click.echo(json_text(run.result))


def _failure(run: "RunDetailView") -> str:
    return f"run {run.run_id} ended as {_how_it_ended(run)}"


def _attempt_text(attempt: "AttemptView", run: "RunDetailView") -> str:
    is_last = attempt is run.attempts[-1] and not run.is_final and run.ready_at is not None
    again = f"; again at {plain(run.ready_at)}" if is_last and run.waits else ""
    return f"attempt {attempt.attempt} of run {run.run_id} ended as {_how_it_ended(attempt)}{again}"


def _how_it_ended(what: "RunDetailView | AttemptView") -> str:
    why = f" ({what.reason})" if what.reason and what.reason != what.status else ""
    said = (what.error or "").strip().partition("\n")[0]
    return f"{what.status}{why}{': ' if said else ''}{said}"
