"""The kind `script`: runs source text of a language, or code that was uploaded before.

An executor offers the languages whose interpreters it has; a run in another language waits for one that does.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from hourhand.job_kinds.artifact_cache import ArtifactCache, ArtifactUnavailable, place_files
from hourhand.job_kinds.interpreters import find_interpreters
from hourhand.job_kinds.programs import Program, ProgramRunner
from hourhand.job_kinds.script_payload import file_name, language_of, need_of, script_faults
from hourhand.job_kinds.secret_files import environment_of, with_secret_files
from hourhand.job_kinds.work_folders import Account, account_for
from hourhand.model.artifacts import read_reference
from hourhand.model.errors import Fault
from hourhand.model.outcome import Failed, Outcome, clipped
from hourhand.model.secret_refs import filled
from hourhand.model.states import Reason
from hourhand.model.work_folder import CODE_FOLDER
from hourhand.ports.artifact_stores import ArtifactRow
from hourhand.ports.job_kind import SlotClass, Task


@dataclass(frozen=True, slots=True)
class ScriptSettings:
    interpreters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Further languages, and others than the usual programs for those that are known: the command's first words."""
    run_as: str | None = "nobody"
    """The user that scripts run as when the executor is root, who must be able to start the interpreters."""


class ScriptKind:
    name = "script"

    def __init__(
        self,
        programs: ProgramRunner | None = None,
        settings: ScriptSettings | None = None,
        artifacts: ArtifactCache | None = None,
    ) -> None:
        """Without `artifacts` nothing that was uploaded can be run here."""
        self.slot_class_of: Callable[[str], SlotClass] = self._slot_class_of
        self._programs = programs or ProgramRunner()
        self._settings = settings or ScriptSettings()
        self._artifacts = artifacts
        self._account: Account | None = None
        self._interpreters: Mapping[str, Sequence[str]] = {}

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        return script_faults(payload)

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return need_of(payload)

    def offers(self) -> Sequence[str]:
        uploaded = [] if self._artifacts is None else [self.name]
        return [*uploaded, *(f"script:{language}" for language in self._interpreters)]

    async def open(self) -> None:
        await self._programs.open()
        if self._artifacts is not None:
            await self._artifacts.open()
        self._account = account_for(self._settings.run_as)
        self._interpreters = find_interpreters(self._settings.interpreters, self._programs.path, self._account)

    async def close(self) -> None:
        await self._programs.close()

    async def run(self, task: Task) -> Outcome:
        payload = task.payload
        faults = script_faults(payload)
        if faults:  # checked at submission already; a stored job may be older than a rule
            message = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            return Failed(Reason.BAD_ARGUMENTS, clipped(message), retryable=False)
        language = language_of(payload)
        interpreter = () if language is None else self._interpreters.get(language)
        if interpreter is None:
            advice = "install one, or name it in kinds.interpreters"
            return Failed(Reason.NOT_STARTED, f"this executor has no interpreter for {language!r}: {advice}")
        if "artifact" in payload:
            return await self._run_artifact(task, interpreter)
        cwd = payload.get("cwd", "")
        file = file_name(language or "", cwd)
        program = Program(
            [*interpreter, _way_out_of(cwd) + file, *payload.get("args", ())],
            environment_of(task),
            cwd,
            payload.get("stdin"),
            payload.get("ok_exit_codes", (0,)),
            {file: payload["source"].encode("utf-8", "replace")},
        )
        return await self._programs.run(task, with_secret_files(program, task))

    async def _run_artifact(self, task: Task, interpreter: Sequence[str]) -> Outcome:
        reference = read_reference(task.payload["artifact"])
        if self._artifacts is None or reference is None:
            return Failed(Reason.NOT_STARTED, "this executor has no way to uploaded code")
        try:
            row = await self._artifacts.find(task.namespace, reference)
            async with self._artifacts.held(row) as files:
                task.log("log", f"artifact {row.name} sha256:{row.digest}")
                program = self._program_of(filled(task.payload, task.secrets), row, files, interpreter)
                return await self._programs.run(task, with_secret_files(program, task))
        except ArtifactUnavailable as missing:
            return Failed(Reason.NOT_STARTED, clipped(str(missing)), retryable=missing.may_pass)

    def _program_of(
        self, payload: Mapping[str, Any], row: ArtifactRow, files: Path, interpreter: Sequence[str]
    ) -> Program:
        """The code lies in a folder of its own inside the attempt's, in which the program starts."""
        cwd = payload.get("cwd", "")
        if "argv" in payload:
            argv = payload["argv"]
        else:
            entry = _way_out_of(cwd) + payload.get("entry", row.name)
            argv = [*interpreter, entry, *payload.get("args", ())]

        def prepare(folder: Path) -> None:
            facts = folder.stat()  # who the attempt is was decided by then
            owner = None if self._account is None else (facts.st_uid, facts.st_gid)
            try:
                place_files(files, folder / CODE_FOLDER, owner)
            except (
                FileNotFoundError
            ) as error:  # removed by another executor that shares the cache: fetched anew next time
                raise OSError(errno.EAGAIN, "the artifact was removed from the cache meanwhile") from error

        return Program(
            argv,
            payload.get("env", {}),
            str(PurePosixPath(CODE_FOLDER, cwd)),
            payload.get("stdin"),
            payload.get("ok_exit_codes", (0,)),
            prepare=prepare,
        )

    def _slot_class_of(self, need: str) -> SlotClass:
        return SlotClass.PROCESS if need in self.offers() else SlotClass.INLINE


def _way_out_of(cwd: str) -> str:
    """From the folder in which the script starts to the one that its file lies in. Never empty, so that no name is
    taken for an option."""
    return "../" * len(PurePosixPath(cwd).parts) or "./"
