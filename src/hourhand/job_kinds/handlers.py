"""Python functions that can be run as jobs, found by a stable name.

    from hourhand import Context, job

    @job("reports.build")
    async def build(ctx: Context, customer: str, days: int = 7) -> dict: ...

A name is all that travels: nothing a caller sends is ever imported or evaluated. `async def` handlers share
the executor's event loop, plain `def` handlers run in worker processes. What a handler accepts is worked
out once, at registration, because the call itself happens ten thousand times a second.

This module is imported by `import hourhand`; it stays free of everything slow.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload
from uuid import UUID

from hourhand.model.errors import BadConfiguration

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from asyncpg import Connection as DatabaseConnection
    from asyncpg import Record

    from hourhand.ports.job_kind import Task

    Connection = DatabaseConnection[Record]

GROUP: Final = "hourhand.handlers"
"""The entry points by which packages offer handlers."""
HANDLER_FIELD: Final = "handler"
"""The payload field that names the handler; it is never passed as an argument."""

SECRETS_FIELD: Final = "secrets"
"""The payload field with the names of the secrets that the handler may ask its context for."""

RESERVED_FIELDS: Final = frozenset({HANDLER_FIELD, SECRETS_FIELD})
"""Fields of the payload that are no arguments: who is called, and which secrets it may ask its context for."""

NAME_CHARS_MAX: Final = 200
"""The same as for jobs, which may be named after their handler."""

_NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class NoRetry(Exception):
    """Raised by a handler: the attempt failed and trying again cannot help."""


class RetryAfter(Exception):
    """Raised by a handler: the attempt failed, and the next one should wait this long."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"the handler asked to be tried again in {seconds:g} seconds")
        self.seconds = max(0.0, float(seconds))


class Snooze(Exception):
    """Raised by a handler: not now. The run goes back to the queue for this long, at most 7 days; that is no failure
    and uses up no retry."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"the handler asked to be run again in {seconds:g} seconds")
        self.seconds = max(0.0, float(seconds))


class RunCancelled(BaseException):
    """Raised inside a synchronous handler when its run is cancelled, so that its `finally` blocks run."""


class BadArguments(Exception):
    """The payload does not fit the handler's parameters."""


class Context:
    """What a handler may know of the run it works for."""

    __slots__ = ("_make_folder", "_outputs", "_task")

    def __init__(self, task: "Task", make_folder: "Callable[[Task], Path] | None" = None) -> None:
        self._task = task
        self._make_folder = make_folder
        self._outputs: Path | None = None
        """The folder for its files, once it was asked for."""

    @property
    def run_id(self) -> UUID:
        return self._task.run_id

    @property
    def job_id(self) -> UUID:
        return self._task.job_id

    @property
    def job_name(self) -> str:
        return self._task.job_name

    @property
    def namespace(self) -> str:
        return self._task.namespace

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self._task.attempt

    @property
    def index(self) -> int | None:
        """Of a run that goes to several executors: which of its parts this is, from 0 on. Else None."""
        return self._task.index

    @property
    def total(self) -> int | None:
        """How many such parts there are."""
        return self._task.total

    @property
    def fence_token(self) -> int:
        """Grows with every attempt of every run: whatever you write to can refuse a smaller one."""
        return self._task.fence

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of the run: hand it to services that ignore repetitions."""
        return str(self._task.run_id)

    @property
    def scheduled_time(self) -> datetime:
        """The time the run stands for; it does not change with retries."""
        return self._task.scheduled_for

    @property
    def payload(self) -> Mapping[str, Any]:
        return self._task.payload

    @property
    def cancelled(self) -> bool:
        """True once the run is to end. A synchronous handler that looks here is left to end by itself."""
        return self._task.stopping()

    def log(self, text: str) -> None:
        """Adds to the run's log."""
        from hourhand.job_kinds.lines import lines_of  # late: `import hourhand` must not load asyncio

        for line in lines_of(str(text)):
            self._task.log("log", line)

    def progress(self, percent: float | None, message: str = "") -> None:
        """Says how far the run has come: 0 to 100, or None where that is not known, and a few words. As often as
        wanted: only the newest word is kept, and that for as long as the run goes on."""
        self._task.progress(percent, message)

    def secret(self, name: str) -> str:
        """The value of a secret that the payload lists in `secrets`. It is not for logs, results or errors."""
        try:
            return self._task.secrets[name]
        except KeyError:
            raise NoRetry(f"the secret {name!r} was not given to this run: list it in the payload's secrets") from None

    def secret_bytes(self, name: str) -> bytes:
        """The same, for values that are no text."""
        return self.secret(name).encode("utf-8", "surrogateescape")

    @property
    def output_folder(self) -> "Path":
        """A folder of this attempt's own, made when it is first asked for. Files that are in it when the handler ends
        are kept as what the run has left; the folder itself goes."""
        if self._outputs is None:
            if self._make_folder is None:
                raise NoRetry("this executor keeps no files of runs")
            self._outputs = self._make_folder(self._task)
        return self._outputs

    def transaction(self, result: Any = None) -> "AbstractAsyncContextManager[Connection]":
        """`async with ctx.transaction() as db`: a transaction on Hourhand's database that completes this run when the
        block ends, with `result` as it is then. Both are committed, or neither. Raises RunTaken at the end of the block
        when the run is no longer this attempt's."""
        if self._task.transaction is None:
            raise NoRetry("ctx.transaction() needs an asynchronous handler: write `async def` instead of `def`")
        opened = self._task.transaction(partial(_storable, result))
        return _KeepingFirst(self, opened)

    async def _keep_outputs(self) -> None:
        if self._outputs is not None and self._task.keep_outputs is not None:
            await self._task.keep_outputs(self._outputs)


class _KeepingFirst:
    """A transaction before whose end the files of the output folder are kept, so that it can name them."""

    __slots__ = ("_context", "_opened")

    def __init__(self, context: Context, opened: "AbstractAsyncContextManager[Any]") -> None:
        self._context = context
        self._opened = opened

    async def __aenter__(self) -> Any:
        return await self._opened.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> Any:
        try:
            if error is None:
                await self._context._keep_outputs()
        except BaseException as fault:
            await self._opened.__aexit__(type(fault), fault, fault.__traceback__)
            raise
        return await self._opened.__aexit__(kind, error, trace)


def output_folder_of(context: Context) -> "Path | None":
    """The folder that a handler has asked for."""
    return context._outputs


def _storable(result: Any) -> Any:
    from hourhand.job_kinds.answers import outcome_of  # late: it is needed in executors only
    from hourhand.model.outcome import Failed

    outcome = outcome_of(result)
    if isinstance(outcome, Failed):
        raise NoRetry(outcome.error)
    return outcome.result


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a handler accepts beside its context."""

    takes_context: bool
    required: frozenset[str]
    accepted: frozenset[str]
    takes_any: bool
    """It has a `**keywords` parameter."""

    def misfit(self, given: Mapping[str, Any]) -> str | None:
        """What is wrong with these arguments, in one sentence, or None."""
        missing, extra = self.misfits(given)
        faults = [f"missing argument {_listed(missing)}"] if missing else []
        if extra:
            known = f"; it takes {_listed(sorted(self.accepted))}" if self.accepted else "; it takes none"
            faults.append(f"unexpected argument {_listed(extra)}{known}")
        return ", ".join(faults) or None

    def misfits(self, given: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """The arguments that are missing, and those that are too much."""
        names = given.keys() - RESERVED_FIELDS
        return sorted(self.required - names), [] if self.takes_any else sorted(names - self.accepted)


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered function, ready to be called."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    parameters: Parameters | None
    """None when it takes only the context: then the payload is the handler's own to read."""
    call: Callable[[Context], Any]
    """Calls the function with a run's arguments. Raises BadArguments when they do not fit."""

    def misfit(self, payload: Mapping[str, Any]) -> str | None:
        return self.parameters.misfit(payload) if self.parameters is not None else None


class HandlerRegistry:
    """Handlers by name. Two functions never share one."""

    def __init__(self) -> None:
        self.by_name: dict[str, Handler] = {}

    def __iter__(self) -> Iterator[Handler]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def register(self, function: Callable[..., Any], name: str | None = None) -> Handler:
        handler = _handler(function, _slug(function.__name__.replace("_", "-")) if name is None else name)
        earlier = self.by_name.get(handler.name)
        if earlier is not None:
            raise ValueError(
                f"two handlers are named {handler.name!r}: {_place(earlier.function)} and {_place(function)}; "
                "give one of them another name"
            )
        self.by_name[handler.name] = handler
        return handler


HANDLERS: Final = HandlerRegistry()
"""Where `@job` puts handlers."""


@overload
def job(name: str | None = None, /) -> Callable[[_Function], _Function]: ...
@overload
def job(function: _Function, /) -> _Function: ...
def job(name: Any = None, /) -> Any:
    """Makes a function a handler: `@job("reports.build")`, or `@job` to be named after the function."""
    if callable(name):
        HANDLERS.register(name)
        return name

    def register(function: _Function) -> _Function:
        HANDLERS.register(function, name)
        return function

    return register


def load_handlers(modules: Sequence[str]) -> HandlerRegistry:
    """Imports the modules that define handlers, and those that installed packages offer by entry points in the group
    `hourhand.handlers`. Tells everything that cannot be imported, one line each."""
    faults = [fault for module in modules if (fault := _import_fault(module)) is not None]
    from importlib.metadata import entry_points  # late: `import hourhand` must not load it

    faults += [fault for point in entry_points(group=GROUP) if (fault := _entry_fault(point)) is not None]
    if faults:
        raise BadConfiguration(faults)
    return HANDLERS


@lru_cache(maxsize=1024)  # asked for each job of a batch
def is_handler_name(text: str) -> bool:
    return len(text) <= NAME_CHARS_MAX and _NAME.fullmatch(text) is not None


def _slug(text: str) -> str:
    from hourhand.model.job import slug  # late: it brings schedules along, which programs with handlers do not need

    return slug(text)


def _import_fault(module: str) -> str | None:
    return _fault_of(lambda: importlib.import_module(module), f"handler module {module!r}")


def _entry_fault(point: "EntryPoint") -> str | None:
    package = f" of package {point.dist.name} {point.dist.version}" if point.dist is not None else ""

    def register() -> None:
        """A module registers its handlers by `@job`; anything else is a handler itself, under the entry's name."""
        found = point.load()
        known = HANDLERS.by_name.get(point.name)
        if not isinstance(found, ModuleType) and (known is None or known.function is not found):
            HANDLERS.register(found, point.name)

    return _fault_of(register, f"handler {point.name!r}{package}")


def _fault_of(load: Callable[[], object], what: str) -> str | None:
    before = dict(HANDLERS.by_name)
    try:
        load()
    except (Exception, SystemExit) as error:
        # What a half-imported module registered must not stay: its next import would find its own names taken.
        HANDLERS.by_name.clear()
        HANDLERS.by_name.update(before)
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return f"{what} cannot be imported: {line}{_error_place(error)}"
    return None


def _error_place(error: BaseException) -> str:
    """Where in the user's code an import failed; frames of the import machinery tell nothing."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and "importlib" not in file:
            place = f" ({file}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place


def _handler(function: Callable[..., Any], name: str) -> Handler:
    if not isinstance(name, str) or not is_handler_name(name):
        better = _slug(name) if isinstance(name, str) else ""
        hint = f"; {better!r} would do" if is_handler_name(better) else ""
        raise ValueError(
            f"{name!r} cannot be a handler's name: small letters and digits, joined by single '.', '-' or '_', "
            f"at most {NAME_CHARS_MAX} characters{hint}"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f"handler {name!r} is a generator: calling it would run nothing")
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    parameters = _parameters(function, name)
    if parameters.takes_context and not parameters.accepted and not parameters.takes_any:
        return Handler(name, function, is_async, None, function)
    return Handler(name, function, is_async, parameters, _caller(function, name, parameters))


def _parameters(function: Callable[..., Any], name: str) -> Parameters:
    parameters = list(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and _is_context(parameters[0])
    rest = parameters[1:] if takes_context else parameters
    named = [p for p in rest if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = frozenset(p.name for p in named if p.default is p.empty)
    for parameter in rest:
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
            raise ValueError(f"handler {name!r}: arguments are passed by name, so {parameter.name!r} cannot be filled")
    for reserved in sorted(RESERVED_FIELDS & required):
        raise ValueError(f"handler {name!r}: the parameter {reserved!r} cannot be filled, that field is no argument")
    accepted = frozenset(p.name for p in named) - RESERVED_FIELDS
    return Parameters(takes_context, required, accepted, any(p.kind is p.VAR_KEYWORD for p in rest))


def _is_context(parameter: inspect.Parameter) -> bool:
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        return False
    annotation = parameter.annotation
    if isinstance(annotation, str):  # the module defers its annotations
        annotation = Context if annotation.rpartition(".")[2] == Context.__name__ else None
    return parameter.name == "ctx" or annotation is Context


def _caller(function: Callable[..., Any], name: str, parameters: Parameters) -> Callable[[Context], Any]:
    required, accepted, takes_any = parameters.required, parameters.accepted, parameters.takes_any
    takes_context = parameters.takes_context

    def call(context: Context) -> Any:
        arguments = context.payload
        if HANDLER_FIELD in arguments or SECRETS_FIELD in arguments:
            arguments = {key: value for key, value in arguments.items() if key not in RESERVED_FIELDS}
        names = arguments.keys()
        if not (names >= required and (takes_any or names <= accepted)):
            raise BadArguments(f"handler {name!r}: {parameters.misfit(arguments)}")
        return function(context, **arguments) if takes_context else function(**arguments)

    return call


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    with suppress(AttributeError):
        return f"{function.__module__}.{function.__qualname__}" + (f" (line {code.co_firstlineno})" if code else "")
    return repr(function)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
