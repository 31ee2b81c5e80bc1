"""How far a run has come, while somebody waits for it: a bar on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hourhand.cli.printing import say

if TYPE_CHECKING:
    from hourhand.client import RunDetailView


def progress_text(percent: float | None, message: str) -> str:
    number = "" if percent is None else f"{percent:.0f} %"
    return f"{number}{', ' if number and message else ''}{message}"


class ProgressShown:
    """Shows what `show` is given. Nothing appears for runs that say nothing, and nothing but the newest stays."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._said: tuple[int, float | None, str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, run: "RunDetailView") -> None:
        progress = run.progress
        if progress is None:
            return
        said = (run.attempt, progress.percent, progress.message)
        if said == self._said:
            return
        self._said = said
        if sys.stderr.isatty():
            self._draw(progress.percent, progress.message)
        else:
            say(f"run {run.run_id}: {progress_text(progress.percent, progress.message)}")

    def tell(self, line: str) -> None:
        """A line that stays, above what is newest."""
        if self._bar is None:
            say(line)
        else:
            from hourhand.cli.exits import printable

            self._bar.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)

    def _draw(self, percent: float | None, message: str) -> None:
        from hourhand.cli.exits import printable

        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

            text = TextColumn("{task.description}", markup=False)
            columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), text)
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None)
            self._bar.start()
        total = None if percent is None else 100.0
        self._bar.update(self._task, total=total, completed=percent or 0.0, description=printable(message))
