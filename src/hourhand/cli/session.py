"""Which server a command talks to, as whom, in which namespace, and how it prints.

The options are accepted before and after noun and verb; the last one given counts. For each: option, then
environment, then default.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from hourhand.cli.own_address import address_of
from hourhand.model.errors import BadConfiguration, Forbidden

if TYPE_CHECKING:
    from hourhand.client import Client

PORT_DEFAULT: Final = 8420
FORMATS: Final = ("table", "json", "yaml")

_Command = TypeVar("_Command", bound=Callable[..., Any])
_META: Final = "hourhand.session."


def session_options(command: _Command) -> _Command:
    """Adds the options every command that talks to a server has."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:  # contexts of a group and its command share `meta`, and the command is parsed later
        ctx.meta[_META + str(param.name)] = value


def _option(*names: str, **settings: Any) -> Callable[[_Command], _Command]:
    return click.option(*names, expose_value=False, callback=_remember, **settings)


_OPTIONS: Final = (
    _option("--server", metavar="URL", help="Address of the API. [env: HOURHAND_SERVER]"),
    _option("--token", metavar="TOKEN", help="Others see it in the process list; better HOURHAND_TOKEN[_FILE]."),
    _option("--namespace", metavar="NAME", help="Where to look and create. [env: HOURHAND_NAMESPACE]"),
    _option("-o", "--output", type=click.Choice(FORMATS), help="How data is printed; table by default."),
)


def output_format() -> str:
    return _given("output") or "table"


def server_address() -> str:
    given = _given("server") or _environment("HOURHAND_SERVER")
    if given:
        return given.rstrip("/")
    port = _environment("HOURHAND_PORT") or "0"
    if port == "0" or "://" in port:  # any port; what Kubernetes sets for a service of this name
        return address_of(_home()) or f"http://127.0.0.1:{PORT_DEFAULT}"
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadConfiguration([f"HOURHAND_PORT is {port!r}, which is not a port (1 to 65535)"])
    return f"http://127.0.0.1:{port}"


def token() -> str | None:
    return _given("token") or _environment("HOURHAND_TOKEN") or _token_of_named_file() or _token_of_home()


@contextmanager
def connected() -> "Iterator[Client]":
    """A client for the command at hand. What goes wrong leaves with advice that only the command line can give."""
    from hourhand.client import ApiProblem, Client

    sent = token()
    with Client(server_address(), sent, _given("namespace") or _environment("HOURHAND_NAMESPACE")) as client:
        try:
            yield client
        except ApiProblem as problem:
            if problem.status == 401:
                problem.add_note(_token_advice(sent))
            elif problem.status >= 500 and problem.instance:
                problem.add_note(f"The server's log knows it as {problem.instance}.")
            raise


def _given(name: str) -> str | None:
    value = click.get_current_context().meta.get(_META + name)
    assert value is None or isinstance(value, str)
    return value


def _environment(name: str) -> str | None:
    """An empty variable counts as not set: that is how shells and unit files unset one."""
    return os.environ.get(name) or None


def _token_of_named_file() -> str | None:
    named = _environment("HOURHAND_TOKEN_FILE")
    if named is None:
        return None
    try:
        found = Path(named).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration([f"HOURHAND_TOKEN_FILE: {named} cannot be read ({_why(error)})"]) from None
    if not found:
        raise BadConfiguration([f"HOURHAND_TOKEN_FILE: {named} is empty"])
    return found


def _token_of_home() -> str | None:
    path = _home_token_path()
    try:
        return path.read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Forbidden(f"the token file {path} cannot be read ({_why(error)})") from None


def _home_token_path() -> Path:
    return _home() / "token"


def _home() -> Path:
    return Path(_environment("HOURHAND_HOME") or ".hourhand")


def _token_advice(sent: str | None) -> str:
    if sent is not None:
        return "A token was sent, but it is not one that server knows."
    return f"No token was sent: set HOURHAND_TOKEN or HOURHAND_TOKEN_FILE; {_home_token_path()} does not exist."


def _why(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else "it is not text"
