"""The kind `container`: runs an image through podman or docker, where the executor has an engine that answers.

The command line of the engine runs with the executor's own rights; what it runs does not: no capabilities, no new
privileges, the user of jobs, the limits that were declared, no network unless asked for. After every attempt, however
it ended, the container is removed and it is looked whether it is gone.
"""

import asyncio
import os
import resource
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, Final

from hourhand.job_kinds.child import to_the_end
from hourhand.job_kinds.container_payload import container_faults
from hourhand.job_kinds.interpreters import find_program
from hourhand.job_kinds.programs import Program, ProgramRunner
from hourhand.job_kinds.progress_files import PROGRESS_FILE, PROGRESS_VARIABLE
from hourhand.job_kinds.secret_files import environment_of
from hourhand.job_kinds.work_folders import Account, account_for
from hourhand.model.errors import Fault
from hourhand.model.outcome import Failed, Outcome, clipped
from hourhand.model.states import Reason
from hourhand.model.work_folder import OWN_BEGINNING
from hourhand.ports.job_kind import SlotClass, Task
from hourhand.runtime.machine import usable_memory

ENGINES: Final = ("podman", "docker")
_CHECK_SECONDS_MAX: Final = 10.0
_REMOVE_SECONDS_MAX: Final = 20.0
_REMOVE_ROUNDS_MAX: Final = 10
_ENGINE_FAILED: Final = 125
"""The exit code with which engines say that they, and not the program, have failed."""
_PROCESSES_OF_USER: Final = 16_384
"""Of all containers together, as the kernel counts them; the limit of one container is that of its processes."""
_MEMORY_SHARE: Final = 2
"""One that has no end meets its own limit, not the machine's, at which the kernel would end whoever is largest."""
_ENV_FILE: Final = f"{OWN_BEGINNING}env"


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    engine: Sequence[str] = ()
    """The command of the engine; none: podman or docker, whichever answers."""
    run_as: str | None = "nobody"
    """The user inside the container when the executor is root; None keeps that of the image."""
    pids_max: int = 512
    open_files_max: int = 4096
    memory_bytes_max: int | None = None
    """Memory that a container may take, unless its job declares another number; None: half of ours, as programs."""


class ContainerKind:
    name = "container"

    def __init__(self, programs: ProgramRunner, settings: ContainerSettings | None = None) -> None:
        """`programs` runs the command line of the engine, as the executor's own user."""
        self.slot_class_of: Callable[[str], SlotClass] = self._slot_class_of
        self._programs = programs
        self._settings = settings or ContainerSettings()
        self._memory_max = self._settings.memory_bytes_max or usable_memory() // _MEMORY_SHARE
        self._engine: Sequence[str] | None = None
        self._account: Account | None = None

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        return container_faults(payload)

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return self.name

    def offers(self) -> Sequence[str]:
        return [] if self._engine is None else [self.name]

    async def open(self) -> None:
        await self._programs.open()
        self._account = account_for(self._settings.run_as)
        if self._engine is None:
            self._engine = await self._find_engine()

    async def close(self) -> None:
        await self._programs.close()

    async def run(self, task: Task) -> Outcome:
        faults = container_faults(task.payload)
        if faults:  # checked at submission already; a stored job may be older than a rule
            message = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            return Failed(Reason.BAD_ARGUMENTS, clipped(message), retryable=False)
        if self._engine is None:
            advice = "it needs podman or docker, or what kinds.container_engine names"
            return Failed(Reason.NOT_STARTED, f"this executor has no container engine that answers: {advice}")
        for name, value in environment_of(task).items():
            if "\n" in value or "\r" in value:  # of a secret; it would become a variable of its own
                message = f"the secret in the variable {name} has a line end, which containers are not given"
                return Failed(Reason.BAD_ARGUMENTS, message, retryable=False)
        container = f"hourhand-{task.run_id}-{task.fence}"
        try:
            outcome = await self._programs.run(task, self._program(task, container, self._engine))
        finally:
            # The engine's command line may be gone while what it started is not.
            await to_the_end(lambda _: self._remove(container, task))
        if isinstance(outcome, Failed) and outcome.result == {"exit_code": _ENGINE_FAILED}:
            return Failed(Reason.NOT_STARTED, clipped(_not_started(outcome.error)))
        return outcome

    def _program(self, task: Task, container: str, engine: Sequence[str]) -> Program:
        payload = task.payload
        head = [*engine, "run", "--rm", "--name", container, *self._limits(task)]
        head += ["--network", payload.get("network", "none"), "--pull", payload.get("pull", "missing")]
        head += [
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
            "--workdir",
            payload.get("workdir", "/work"),
        ]
        if "stdin" in payload:
            head.append("--interactive")
        if self._account is not None:
            head += ["--user", f"{self._account.user_id}:{self._account.group_id}"]
        # Only the shell knows the folder. Everything else is quoted for it, or handed over as its arguments.
        line = f'exec {shlex.join(head)} --env-file "$PWD/{_ENV_FILE}" --volume "$PWD:/work" "$@"'
        return Program(
            ["/bin/sh", "-c", line, "sh", payload["image"], *payload.get("argv", ())],
            stdin=payload.get("stdin"),
            ok_exit_codes=payload.get("ok_exit_codes", (0,)),
            files={_ENV_FILE: _env_file(task)},
            prepare=self._hand_over,
            contained=False,
        )

    def _limits(self, task: Task) -> list[str]:
        settings, declared = self._settings, task.resources
        files = settings.open_files_max
        # Engines ask for a million otherwise, which an executor with a limit of its own may not give.
        _, most = resource.getrlimit(resource.RLIMIT_NPROC)
        processes = _PROCESSES_OF_USER if most == resource.RLIM_INFINITY else min(most, _PROCESSES_OF_USER)
        limits = ["--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}"]
        limits += ["--pids-limit", str((declared and declared.pids) or settings.pids_max)]
        memory = (declared and declared.memory) or self._memory_max
        limits += ["--memory", f"{memory}b", "--memory-swap", f"{memory}b"]
        if declared is not None and declared.cpu is not None:
            limits += ["--cpus", f"{declared.cpu:g}"]
        return limits

    def _hand_over(self, folder: Path) -> None:
        """The folder is mounted into the container, where the user of jobs must be able to write."""
        if self._account is not None:
            for place in (folder, *folder.iterdir()):
                os.chown(place, self._account.user_id, self._account.group_id)

    async def _remove(self, container: str, task: Task) -> None:
        """Removes the container and looks whether it is gone."""
        assert self._engine is not None
        for round_ in range(_REMOVE_ROUNDS_MAX):
            if await _ask([*self._engine, "container", "inspect", container], _REMOVE_SECONDS_MAX) not in (0, None):
                return  # there is none: nearly always at the first look
            await _ask([*self._engine, "rm", "--force", container], _REMOVE_SECONDS_MAX)
            await asyncio.sleep(0.1 * round_)
        task.log("log", f"the container {container} could not be removed; it may still run")

    async def _find_engine(self) -> Sequence[str] | None:
        candidates = [self._settings.engine] if self._settings.engine else [(name,) for name in ENGINES]
        for words in candidates:
            program = find_program(words[0], self._programs.path, None)
            # A client without an engine is no engine: `info` asks the one that would do the work.
            if program and await _ask([program, *words[1:], "info"], _CHECK_SECONDS_MAX) == 0:
                return [program, *words[1:]]
        return None

    def _slot_class_of(self, need: str) -> SlotClass:
        return SlotClass.PROCESS if need == self.name and self._engine is not None else SlotClass.INLINE


def _not_started(error: str) -> str:
    """Why the engine refused, as the first line: the last one that it says. What it said before follows."""
    first, *said = error.splitlines()
    *before, why = said or [first]
    return "\n".join([f"the container could not be started: {why}", *before])


def _env_file(task: Task) -> bytes:
    told = {
        **environment_of(task),
        "HOME": "/work",
        "HOURHAND_RUN_ID": str(task.run_id),
        "HOURHAND_JOB_ID": str(task.job_id),
        "HOURHAND_JOB_NAME": " ".join(task.job_name.split()),
        "HOURHAND_NAMESPACE": task.namespace,
        "HOURHAND_ATTEMPT": str(task.attempt),
        "HOURHAND_FENCE_TOKEN": str(task.fence),
        "HOURHAND_SCHEDULED_TIME": task.scheduled_for.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    told[PROGRESS_VARIABLE] = f"/work/{PROGRESS_FILE}"
    if task.total is not None:
        told |= {"HOURHAND_INDEX": str(task.index), "HOURHAND_TOTAL": str(task.total)}
    if task.keep_outputs is not None:
        told["HOURHAND_OUTPUT_DIR"] = "/work/output"
    return "".join(f"{name}={value}\n" for name, value in told.items()).encode("utf-8", "replace")


async def _ask(command: Sequence[str], seconds_max: float) -> int | None:
    """The exit code of a short command; None when it did not end in time."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return 127
    try:
        async with asyncio.timeout(seconds_max):
            return await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
