"""How a command ends: the exit codes, the one table that leads to them, and the one line that says why."""

import os
import re
import traceback
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

import click

from hourhand.model import errors


class ExitCode(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    RUN_FAILED = 5
    NO_INPUT = 66
    UNREACHABLE = 69
    NO_PERMISSION = 77
    CONFIGURATION = 78
    INTERRUPTED = 130


class RunFailed(errors.HourhandError):
    """A run that was waited for did not succeed."""

    code = "run-failed"


class NoInput(errors.HourhandError):
    """A file that was named cannot be read or holds nothing."""

    code = "no-input"


EXIT_CODES: Final[Mapping[type[BaseException] | int, ExitCode]] = {
    # What the server answered, by HTTP status; any other status is a plain error.
    400: ExitCode.USAGE,
    401: ExitCode.NO_PERMISSION,
    403: ExitCode.NO_PERMISSION,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    412: ExitCode.CONFLICT,
    422: ExitCode.USAGE,
    429: ExitCode.UNREACHABLE,
    502: ExitCode.UNREACHABLE,
    503: ExitCode.UNREACHABLE,
    504: ExitCode.UNREACHABLE,
    # What was raised here; the nearest class counts.
    RunFailed: ExitCode.RUN_FAILED,
    NoInput: ExitCode.NO_INPUT,
    errors.InvalidFields: ExitCode.USAGE,
    errors.MalformedBody: ExitCode.USAGE,
    errors.InvalidParameter: ExitCode.USAGE,
    errors.NotFound: ExitCode.NOT_FOUND,
    errors.Conflict: ExitCode.CONFLICT,
    errors.Unauthenticated: ExitCode.NO_PERMISSION,
    errors.Forbidden: ExitCode.NO_PERMISSION,
    errors.Overloaded: ExitCode.UNREACHABLE,
    errors.ServerUnreachable: ExitCode.UNREACHABLE,
    errors.DatabaseUnavailable: ExitCode.UNREACHABLE,
    errors.DatabaseUnsuitable: ExitCode.CONFIGURATION,
    errors.BlobsUnsuitable: ExitCode.CONFIGURATION,
    errors.HomeUnusable: ExitCode.CONFIGURATION,
    errors.PortTaken: ExitCode.CONFIGURATION,
    errors.BadConfiguration: ExitCode.CONFIGURATION,
    click.UsageError: ExitCode.USAGE,
    click.FileError: ExitCode.NO_INPUT,
    click.Abort: ExitCode.INTERRUPTED,
    KeyboardInterrupt: ExitCode.INTERRUPTED,
}


def exit_code_of(error: BaseException) -> ExitCode:
    status = getattr(error, "status", None)  # asked for by name: importing ApiProblem would load the whole client
    if isinstance(status, int):
        return EXIT_CODES.get(status, ExitCode.ERROR)
    for kind in type(error).__mro__:
        if kind in EXIT_CODES:
            return EXIT_CODES[kind]
    return ExitCode.ERROR


def report(error: BaseException) -> ExitCode:
    """Says on stderr what went wrong and gives the exit code. A traceback only for those who ask for one."""
    if os.environ.get("HOURHAND_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return ExitCode.USAGE
    first, *more = _lines(error)
    click.echo(f"hourhand: {first}", err=True)
    for line in more:
        click.echo(f"  {line}", err=True)
    return exit_code_of(error)


def _lines(error: BaseException) -> Iterator[str]:
    match error:
        case click.Abort() | KeyboardInterrupt():
            yield "interrupted"
        case click.UsageError():
            yield _tidy(error.format_message())
            if error.ctx is not None:
                yield f"Try: {error.ctx.command_path} --help"
        case click.ClickException():
            yield _tidy(error.format_message())
        case errors.BadConfiguration():
            yield "the configuration has a fault" if len(error.faults) == 1 else "the configuration has faults"
            yield from map(printable, error.faults)
        case errors.HourhandError():
            yield from _message_lines(error)
            yield from _fault_lines(error)
        case OSError() if error.strerror:
            yield f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        case _:
            said = " ".join(str(error).split())
            yield printable(f"unexpected {type(error).__name__}{': ' if said else ''}{said}")
            yield "This is a fault of Hourhand. HOURHAND_DEBUG=1 shows where it happened."
    yield from getattr(error, "__notes__", [])


def _message_lines(error: errors.HourhandError) -> Iterator[str]:
    faults = _faults(error)
    if _of_the_whole(faults):
        yield printable(_told(faults[0]))
    elif faults and all(fault.message in str(error) for fault in faults):  # the message only repeats what follows
        yield "1 field is wrong" if len(faults) == 1 else f"{len(faults)} fields are wrong"
    else:
        yield from map(printable, str(error).splitlines() or [error.code])


def _fault_lines(error: errors.HourhandError) -> Iterator[str]:
    faults = _faults(error)
    if not _of_the_whole(faults):
        yield from (printable(f"{fault.pointer or '/'}: {_told(fault)}") for fault in faults)


def _of_the_whole(faults: list[errors.Fault]) -> bool:
    """What was sent has no fields, such as a file: the one thing that is wrong with it is all there is to say."""
    return len(faults) == 1 and faults[0].pointer in ("", "/")


def _told(fault: errors.Fault) -> str:
    hint = f" ({fault.hint})" if fault.hint else ""
    told = set(re.findall(r"[\w./-]+", fault.message + hint))
    allowed = fault.allowed or ()
    # All of them or none: those that are left would look as if they were all there is.
    is_news = any(word not in told and f" {word}" not in fault.message for word in allowed)
    return f"{fault.message}{hint}" + (f" [one of {', '.join(allowed)}]" if is_news else "")


def _faults(error: errors.HourhandError) -> list[errors.Fault]:
    """Of InvalidFields, or of an ApiProblem."""
    faults: list[errors.Fault] = getattr(error, "faults", None) or getattr(error, "errors", [])
    return faults


def _tidy(message: str) -> str:
    """Click's sentences as we write them: no capital at the start, no full stop at the end."""
    message = " ".join(message.split())
    return (message[:1].lower() + message[1:]).removesuffix(".")


def printable(text: str) -> str:
    """Text of others without what would steer the terminal."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
