"""Judges a recorded history: `python -m tests.chaos.check FOLDER` prints the report; the exit code is the verdict."""

import re
import sys
from pathlib import Path

import msgspec
from tests.chaos.history import History, read_history
from tests.chaos.report import Report, judge

EXIT_CODES = {"pass": 0, "fail": 1, "unknown": 3}
API_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"

__all__ = ["EXIT_CODES", "check_folder", "judge", "with_documented_problems"]


def check_folder(folder: Path) -> Report:
    return judge(with_documented_problems(read_history(folder), API_PAGE.read_text(encoding="utf-8")))


def with_documented_problems(history: History, page: str) -> History:
    """Fills in the problem codes from the reference, where the recorder did not."""
    if history.settings.problem_codes:
        return history
    table = page.partition("<!-- problems -->")[2].lstrip().partition("\n\n")[0]
    cells = [row.split("|")[2] for row in table.splitlines() if row.startswith("|")]
    codes = {code for cell in cells for code in re.findall(r"`([a-z-]+)`", cell)}
    settings = msgspec.structs.replace(history.settings, problem_codes=tuple(sorted(codes)))
    return msgspec.structs.replace(history, settings=settings)


if __name__ == "__main__":
    report = check_folder(Path(sys.argv[1]))
    print(report.text())
    sys.exit(EXIT_CODES[report.verdict])
