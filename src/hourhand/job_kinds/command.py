"""The kind `command`: runs a program of the machine with its arguments."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hourhand.job_kinds.command_payload import command_faults
from hourhand.job_kinds.programs import Program, ProgramRunner
from hourhand.job_kinds.secret_files import environment_of, with_secret_files
from hourhand.model.errors import Fault
from hourhand.model.outcome import Failed, Outcome, clipped
from hourhand.model.states import Reason
from hourhand.ports.job_kind import SlotClass, Task


class CommandKind:
    name = "command"

    def __init__(self, programs: ProgramRunner | None = None, allow_shell: bool = False) -> None:
        self.slot_class_of: Callable[[str], SlotClass] = self._slot_class_of
        self._programs = programs or ProgramRunner()
        self._allow_shell = allow_shell

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        return command_faults(payload, self._allow_shell)

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return self.name

    def offers(self) -> Sequence[str]:
        return [self.name]

    async def open(self) -> None:
        await self._programs.open()

    async def close(self) -> None:
        await self._programs.close()

    async def run(self, task: Task) -> Outcome:
        payload = task.payload
        faults = command_faults(payload, self._allow_shell)
        if faults:  # checked at submission already; a stored job may be older than a rule
            message = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            return Failed(Reason.BAD_ARGUMENTS, clipped(message), retryable=False)
        program = Program(
            ["sh", "-c", payload["argv"]] if payload.get("shell") else payload["argv"],
            environment_of(task),
            payload.get("cwd", ""),
            payload.get("stdin"),
            payload.get("ok_exit_codes", (0,)),
        )
        return await self._programs.run(task, with_secret_files(program, task))

    def _slot_class_of(self, need: str) -> SlotClass:
        return SlotClass.PROCESS if need == self.name else SlotClass.INLINE
