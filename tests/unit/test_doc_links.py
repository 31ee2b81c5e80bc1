"""Links between pages lead somewhere, and what is promised names tests that exist."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
EVERY_PAGE: Final = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.M | re.S)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", EVERY_PAGE, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _BLOCK.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(target)
    assert broken == []


def test_guarantees_begin_with_what_is_not_promised() -> None:
    page = (ROOT / "docs" / "internals" / "guarantees.md").read_text()
    assert page.partition("\n\n")[2].startswith("An effect may repeat")


@pytest.mark.parametrize("name", ["guarantees.md", "bad-input.md"])
def test_every_promise_names_tests_that_exist(name: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "internals" / name).read_text()))
    known = {
        test for path in (ROOT / "tests").rglob("test_*.py") for test in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert named - known == set()
    assert len(named) >= 15
