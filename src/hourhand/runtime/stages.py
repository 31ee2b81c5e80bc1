"""Where the processor time of this process goes, by module: a sample per millisecond of it, kept in a file.

For measurements only: `hourhand bench … --stages` asks for it by naming a folder in the environment. A sample belongs
to the innermost of our own modules on the stack; time that the driver, the HTTP server or the event loop spend on their
own account belongs to none of them, and is told as such.
"""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

FOLDER_VARIABLE: Final = "HOURHAND_BENCH_STAGES"
SAMPLE_SECONDS: Final = 0.001
WRITE_EVERY: Final = 100
"""Samples between two writes of the file: a tenth of a second of processor time."""
OUTSIDE: Final = "driver, server and loop"
_PACKAGE: Final = str(Path(__file__).resolve().parents[1]) + os.sep
_NOT_A_STAGE: Final = ("cli" + os.sep, "wiring.py", os.path.join("runtime", "stages.py"))
"""They are below, or above, everything that runs."""


class StageSampler:
    def __init__(self, folder: Path, role: str) -> None:
        self._file = folder / f"{role}-{os.getpid()}.json"
        self._role = role
        self._samples: Counter[str] = Counter()
        self._stages: dict[str, str | None] = {}

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._take)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)

    def _take(self, _: int, frame: FrameType | None) -> None:
        self._samples[self._stage_of(frame)] += 1
        if self._samples.total() % WRITE_EVERY == 0:
            self._write()

    def _stage_of(self, frame: FrameType | None) -> str:
        while frame is not None:
            file = frame.f_code.co_filename
            stage = self._stages.get(file, "")
            if stage == "":
                stage = self._stages[file] = _stage_of_file(file)
            if stage is not None:
                return stage
            frame = frame.f_back
        return OUTSIDE

    def _write(self) -> None:
        told = {"role": self._role, "sample_seconds": SAMPLE_SECONDS, "samples": dict(self._samples)}
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(told))
        fresh.replace(self._file)


def _stage_of_file(file: str) -> str | None:
    """A module of ours as "executor.attempts"; None for what is not a stage."""
    if not file.startswith(_PACKAGE):
        return None
    inside = file.removeprefix(_PACKAGE)
    if inside.startswith(_NOT_A_STAGE):
        return None
    return inside.removesuffix(".py").replace(os.sep, ".")


def sample_stages(role: str) -> None:
    """Begins, if the environment asks for it."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and sys.platform == "linux":
        StageSampler(Path(folder), role).start()
