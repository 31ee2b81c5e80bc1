"""The kind `python`: runs functions of this machine's own code, chosen by name.

Asynchronous handlers run in the executor's event loop and cost a few microseconds; they must await, because nothing
but the executor's end stops one that does not. Synchronous handlers run in worker processes, which can be killed.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import CoroutineType
from typing import Any, Final

from hourhand.job_kinds.abandonable import LeftBehind, rest_of
from hourhand.job_kinds.answers import outcome_of, outcome_raised
from hourhand.job_kinds.handlers import (
    HANDLER_FIELD,
    Context,
    HandlerRegistry,
    is_handler_name,
    output_folder_of,
)
from hourhand.job_kinds.output_folders import OutputFolders
from hourhand.job_kinds.payload_checks import wrong_type
from hourhand.job_kinds.signatures import FACT, KnownSignatures, signature_faults, signatures_of
from hourhand.job_kinds.worker_pool import WorkerPool, WorkerPoolSettings
from hourhand.model.errors import Fault
from hourhand.model.job import slug
from hourhand.model.outcome import NOTHING_SAID, Failed, Outcome, clipped
from hourhand.model.secret_refs import SECRETS_FIELD, secret_list_faults
from hourhand.model.states import Reason
from hourhand.ports.job_kind import SlotClass, Task

_PREFIX: Final = "python:"


class PythonKind:
    name = "python"

    def __init__(self, handlers: HandlerRegistry, settings: WorkerPoolSettings | None = None) -> None:
        self.slot_class_of: Callable[[str], SlotClass] = self._slot_class_of
        self._handlers = handlers.by_name
        self._settings = settings or WorkerPoolSettings()
        self._pool: WorkerPool | None = None
        self.known = KnownSignatures()
        """What executors elsewhere have said of their handlers; whoever hears it fills it."""
        self.left_behind = LeftBehind()
        self._outputs = OutputFolders(self._settings.work_root)

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        if SECRETS_FIELD in payload:
            return secret_list_faults(payload[SECRETS_FIELD]) + self._handler_faults(payload)
        return self._handler_faults(payload)

    def _handler_faults(self, payload: Mapping[str, Any]) -> list[Fault]:
        if HANDLER_FIELD not in payload:
            return []
        name = payload[HANDLER_FIELD]
        pointer = f"/{HANDLER_FIELD}"
        if not isinstance(name, str):
            return [wrong_type(pointer, "a string", name)]
        if not is_handler_name(name):
            better = slug(name)
            hint = f"did you mean {better!r}?" if ":" not in name and is_handler_name(better) else None
            message = "is not the name of a handler; names are registered with @job and look like 'reports.build'"
            return [Fault(pointer, "function-not-registered", message, hint)]
        handler = self._handlers.get(name)
        if handler is None:
            return self.known.faults(name, payload)
        return signature_faults(name, handler.parameters, payload) if handler.parameters is not None else []

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return _PREFIX + self._handler_name(payload, job_name)

    def offers(self) -> Sequence[str]:
        return [_PREFIX + name for name in self._handlers]

    def facts(self) -> dict[str, Any]:
        """What others should know of the handlers here."""
        return {FACT: signatures_of(self._handlers.values())}

    async def open(self) -> None:
        if self._handlers:
            self._outputs.open()
        if any(not handler.is_async for handler in self._handlers.values()):
            self._pool = WorkerPool(self._settings, self._outputs)
            await self._pool.open()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None
        await asyncio.to_thread(self._outputs.close)

    async def run(self, task: Task) -> Outcome:
        handler = self._handlers.get(self._handler_name(task.payload, task.job_name))
        if handler is None:
            return self._unknown_handler(task)
        if not handler.is_async:
            assert self._pool is not None, "run is called between open and close"
            return await self._pool.run(task, handler.name)
        context = Context(task, self._outputs.make)
        at_once = False
        try:
            work = handler.call(context)
            if type(work) is CoroutineType or isinstance(work, Coroutine):
                try:
                    waited = work.send(None)
                except StopIteration as end:  # most have nothing to wait for, and so nobody can have cancelled them
                    value, at_once = end.value, True
                else:
                    value = await rest_of(work, waited, self._settings.grace_seconds, self.left_behind)
            else:
                value = await work
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: they must not end the executor
            if _is_being_cancelled():
                await self._drop_outputs(context, task)
                raise asyncio.CancelledError from error
            outcome: Outcome = outcome_raised(error)
        else:
            if not at_once and _is_being_cancelled():  # the handler kept the cancellation to itself
                await self._drop_outputs(context, task)
                raise asyncio.CancelledError
            outcome = NOTHING_SAID if value is None else outcome_of(value)
        if output_folder_of(context) is not None:
            await self._outputs.keep(task)
        return outcome

    async def _drop_outputs(self, context: Context, task: Task) -> None:
        if output_folder_of(context) is not None:
            await self._outputs.drop(task)

    def _slot_class_of(self, need: str) -> SlotClass:
        handler = self._handlers.get(need.removeprefix(_PREFIX))
        return SlotClass.INLINE if handler is None or handler.is_async else SlotClass.PROCESS

    def _handler_name(self, payload: Mapping[str, Any], job_name: str) -> str:
        name = payload.get(HANDLER_FIELD)
        if isinstance(name, str):
            return name
        return job_name if job_name in self._handlers else slug(job_name)

    def _unknown_handler(self, task: Task) -> Failed:
        name = self._handler_name(task.payload, task.job_name)
        known = ", ".join(sorted(self._handlers)) or "none"
        return Failed(Reason.UNKNOWN_HANDLER, clipped(f"this executor has no handler {name!r}; it has: {known}"))


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
