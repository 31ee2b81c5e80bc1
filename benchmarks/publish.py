"""Puts what was measured last into the documentation: tables between their marks, and the plots they name.

Each block of a page begins with `<!-- measured: NAME -->` and ends with `<!-- end of NAME -->`. What has not been
measured is left as it is.

    python benchmarks/publish.py
    python benchmarks/publish.py --blocks cost-model
"""

import argparse
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
PAGES = ROOT / "docs" / "internals"
BLOCKS = {
    "figures": "performance.md",
    "figures-long": "performance.md",
    "stays-fast": "performance.md",
    "kinds": "performance.md",
    "cost-model": "scale.md",
}
_PLOT = re.compile(r"!\[[^\]]*\]\(plots/([\w.-]+)\)")


def replaced(page: str, name: str, text: str) -> str:
    """The page with another text in the block of that name, and everything else as it was."""
    begin, end = f"<!-- measured: {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"the page has no block {name}: it begins with {begin.strip()} and ends with {end}")
    return f"{before}{begin}{text.strip()}\n{end}{after}"


def plots_in(text: str) -> list[str]:
    return _PLOT.findall(text)


def publish(name: str, build: Path = BUILD, pages: Path = PAGES) -> bool:
    """Says whether there was something to publish."""
    measured = build / f"{name}.md"
    if not measured.exists():
        return False
    text, page = measured.read_text(), pages / BLOCKS[name]
    page.write_text(replaced(page.read_text(), name, text))
    for plot in plots_in(text):
        (pages / "plots").mkdir(exist_ok=True)
        shutil.copyfile(build / "plots" / plot, pages / "plots" / plot)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", nargs="+", choices=list(BLOCKS), default=list(BLOCKS))
    args = parser.parse_args()
    for name in args.blocks:
        print(f"{name:13} {'published' if publish(name) else 'has not been measured'}")


if __name__ == "__main__":
    main()
