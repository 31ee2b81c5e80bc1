"""Kinds that are an executable in any language, speaking JSON lines: see docs/reference/kinds/plugins.md.

The executable is started once per attempt, contained like any other program. A kind of this sort can do nothing that a
command could not: what it prints becomes log, progress and the outcome of its own attempt.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from hourhand.job_kinds.answers import outcome_of
from hourhand.job_kinds.lines import lines_of, many_of
from hourhand.job_kinds.plugin_protocol import (
    LINE_BYTES_MAX,
    Description,
    Fail,
    HelloFault,
    Log,
    Progress,
    Result,
    read_message,
    run_request,
)
from hourhand.job_kinds.plugin_schema import faults_by
from hourhand.job_kinds.programs import Program, ProgramRunner
from hourhand.model.errors import Fault
from hourhand.model.outcome import Failed, Outcome, Succeeded, clipped
from hourhand.model.secret_refs import SECRETS_FIELD
from hourhand.model.states import Reason
from hourhand.ports.job_kind import SlotClass, Task

_WRONG_TOLD_MAX: Final = 20
"""Lines that are no messages, told of one by one; of the others only the number."""


class PluginKind:
    """`description` is None where the executable could not be asked; `fault` says why it cannot be used at all."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        programs: ProgramRunner,
        description: Description | None,
        fault: HelloFault | None = None,
    ) -> None:
        self.name = name
        self.slot_class_of: Callable[[str], SlotClass] = self._slot_class_of
        self._command = command
        self._programs = programs
        self._description = description
        self._fault = fault

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        if self._fault is not None:
            whole = Fault("", "plugin-unusable", str(self._fault))
            said = f"the plugin {self.name!r} cannot be used: "
            return [replace(fault, message=said + fault.message) for fault in self._fault.faults or [whole]]
        if self._description is None:
            return []  # executors have the executable, and check it there
        return faults_by(self._description.schema, _own(payload))

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return self.name

    def offers(self) -> Sequence[str]:
        return [self.name]

    async def open(self) -> None:
        await self._programs.open()

    async def close(self) -> None:
        await self._programs.close()

    async def run(self, task: Task) -> Outcome:
        faults = self.check(task.payload)
        if faults:  # checked at submission already; the executable may be another one by now
            message = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            return Failed(Reason.BAD_ARGUMENTS, clipped(message), retryable=False)
        talk = _Talk(task)
        inner = msgspec.structs.replace(task, log=talk)
        request = run_request(task, _own(task.payload))
        program = Program(self._command, stdin=request, line_bytes_max=LINE_BYTES_MAX)
        try:
            ended = await self._programs.run(inner, program)
        finally:
            task.usage = inner.usage
            talk.finish()
        return talk.outcome(ended)

    def _slot_class_of(self, need: str) -> SlotClass:
        return SlotClass.PROCESS if need == self.name else SlotClass.INLINE


class _Talk:
    """What one attempt says. It is what its program logs to: whoever floods it is made to wait, as every program is."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._log = many_of(task.log)
        self._said: Result | Fail | None = None
        self._lines = self._wrong = 0

    def __call__(self, stream: str, line: str) -> None:
        self.many(stream, [line])

    def many(self, stream: str, lines: list[str]) -> "asyncio.Future[None] | None":
        if stream != "stdout":
            return self._log(stream, lines)
        waits = [wait for line in lines for wait in self._take(line) if wait is not None]
        return waits[-1] if waits else None

    def _take(self, line: str) -> "list[asyncio.Future[None] | None]":
        """Says what to wait for before more is read."""
        self._lines += 1
        match read_message(line):
            case Log(message):
                return [self._log("log", list(lines_of("\n".join(message.splitlines()))))]
            case Progress(percent, message):
                self._task.progress(percent, message)
            case (Result() | Fail()) as said:
                if self._said is None:
                    self._said = said
                else:
                    return self._tell(line, "comes after the attempt was over")
            case str(why):
                return self._tell(line, why)
        return []

    def finish(self) -> None:
        if self._wrong > _WRONG_TOLD_MAX:
            self._task.log("log", f"plugin: {self._wrong} lines in all were no messages")

    def outcome(self, ended: Outcome) -> Outcome:
        """What was said counts if the executable has also ended well; a failure counts in any case."""
        match ended, self._said:
            case ((Succeeded() | Failed()), Fail(message, retry, retry_after)):
                return Failed(Reason.EXCEPTION, clipped(message) or "failed", retry, retry_after)
            case Succeeded(), Result(value):
                return outcome_of(value)
            case Succeeded(), None:
                wrong = f"; {self._wrong} of its {self._lines} lines were no messages" if self._wrong else ""
                return Failed(Reason.EXCEPTION, f"the plugin ended without a result{wrong}", retryable=True)
            case _:
                return ended

    def _tell(self, line: str, why: str) -> "list[asyncio.Future[None] | None]":
        self._wrong += 1
        waits = [self._log("stdout", list(lines_of(line)))]
        if self._wrong <= _WRONG_TOLD_MAX:
            waits.append(self._log("log", [f"plugin: line {self._lines} {why}"]))
        return waits


def _own(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What is the plugin's of a payload."""
    return {name: value for name, value in payload.items() if name != SECRETS_FIELD}
