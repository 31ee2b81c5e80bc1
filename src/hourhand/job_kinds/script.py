"""The kind `script`: runs source text of a language, or code that was uploaded before.

An executor offers the languages whose interpreters it has; a run in another language waits for one that does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from hourhand.job_kinds.interpreters import SUFFIXES, find_interpreters
from hourhand.job_kinds.programs import Program, ProgramRunner
from hourhand.job_kinds.script_payload import language_of, need_of, script_faults
from hourhand.job_kinds.work_folders import account_for
from hourhand.model.errors import Fault
from hourhand.model.outcome import Failed, Outcome, clipped
from hourhand.model.states import Reason
from hourhand.ports.job_kind import SlotClass, Task


@dataclass(frozen=True, slots=True)
class ScriptSettings:
    interpreters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Further languages, and others than the usual programs for those that are known: the command's first words."""
    run_as: str | None = "nobody"
    """The user that scripts run as when the executor is root, who must be able to start the interpreters."""


class ScriptKind:
    name = "script"

    def __init__(self, programs: ProgramRunner | None = None, settings: ScriptSettings | None = None) -> None:
        self.slot_class_of: Callable[[str], SlotClass] = self._slot_class_of
        self._programs = programs or ProgramRunner()
        self._settings = settings or ScriptSettings()
        self._interpreters: Mapping[str, Sequence[str]] = {}

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        return script_faults(payload)

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return need_of(payload)

    def offers(self) -> Sequence[str]:
        return [f"script:{language}" for language in self._interpreters]

    async def open(self) -> None:
        await self._programs.open()
        account = account_for(self._settings.run_as)
        self._interpreters = find_interpreters(self._settings.interpreters, self._programs.path, account)

    async def close(self) -> None:
        await self._programs.close()

    async def run(self, task: Task) -> Outcome:
        payload = task.payload
        faults = script_faults(payload)
        if faults:  # checked at submission already; a stored job may be older than a rule
            message = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            return Failed(Reason.BAD_ARGUMENTS, clipped(message), retryable=False)
        language = language_of(payload)
        interpreter = self._interpreters.get(language or "")
        if language is None or interpreter is None:
            return Failed(Reason.NOT_STARTED, f"this executor has no interpreter for {language!r}")
        cwd = payload.get("cwd", "")
        file = _file_name(language, cwd)
        program = Program(
            [*interpreter, _way_out_of(cwd) + file, *payload.get("args", ())],
            payload.get("env", {}),
            cwd,
            payload.get("stdin"),
            payload.get("ok_exit_codes", (0,)),
            {file: payload["source"].encode("utf-8", "replace")},
        )
        return await self._programs.run(task, program)

    def _slot_class_of(self, need: str) -> SlotClass:
        return SlotClass.PROCESS if need in self.offers() else SlotClass.INLINE


def _file_name(language: str, cwd: str) -> str:
    name = f"script{SUFFIXES.get(language, '')}"
    return f"_{name}" if PurePosixPath(cwd).parts[:1] == (name,) else name


def _way_out_of(cwd: str) -> str:
    """From the folder in which the script starts to the one that its file lies in. Never empty, so that no name is
    taken for an option."""
    return "../" * len(PurePosixPath(cwd).parts) or "./"
