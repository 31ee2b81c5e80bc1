"""The table of figures of the kinds: what is run, its bar, what was measured, and whether that is enough.

Each row is a script beside this one, which says how it measures. Prints Markdown and writes it, with date and machine,
to `build/kinds.md`.

    python benchmarks/kinds_table.py --quick
    python benchmarks/kinds_table.py --rows command http
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from pairs import HERE, run
from table import BUILD, Extent, Figure, Row, machine, markdown, measure

MEMORY_MORE_MB_MAX = 100


def script(name: str, *words: str) -> dict[str, Any]:
    return run([sys.executable, str(HERE / name), *words])


def command(extent: Extent) -> list[Figure]:
    found = script("commands.py", "--seconds", extent.pick(5, 1), "--rounds", extent.pick(5, 1), "--json")
    figures = []
    for way, bar, work in (("none", 0.5, "without containment"), ("full", 0.25, "with full containment")):
        one = found[way]
        told = f"{one['ratio']:.2f} × ({one['per_second']:,}/s; by processor time {one['ratio_by_cost']:.2f} ×)"
        enough = one["ratio"] >= bar
        figures.append(Figure(f"command /bin/true, {work}", f"≥ {bar} × xargs -P2 -n1", told, enough))
    return figures


def http(extent: Extent) -> list[Figure]:
    found = script("http_calls.py", "--pairs", extent.pick(5, 1), "--seconds", extent.pick(5, 1))
    enough = found["ratio"] >= found["bar"]
    return [Figure("http", f"≥ {found['bar']} × a bare loop of the client", f"{found['ratio']:.2f} ×", enough)]


def workers(extent: Extent) -> list[Figure]:
    found = script("workers.py", "--seconds", extent.pick(5, 1), "--rounds", extent.pick(5, 1))
    rate, bar = statistics.median(found["runs_per_second"]), found["bar"]
    return [Figure("python in worker processes", f"≥ {bar:,}/s", f"{rate:,.0f}/s", rate >= bar)]


def logs(extent: Extent) -> list[Figure]:
    lines = int(extent.pick(1_000_000, 100_000))
    found = script("log_lines.py", "--lines", str(lines))["all kept"]
    rate, more = found["lines_per_second"], found["memory_more_mb"]
    bar = f"≥ 100,000 lines/s, executor < {MEMORY_MORE_MB_MAX} MB more"
    told = f"{rate:,.0f} lines/s, {more:.0f} MB more; left out {found['left_out']:.0f}"
    enough = rate >= 100_000 and more < MEMORY_MORE_MB_MAX and found["left_out"] == 0
    return [Figure(f"log of {lines:,} lines", bar, told, enough)]


def files(extent: Extent) -> list[Figure]:
    mb = extent.pick(1000, 50)
    found = script("kept_files.py", "--mb", mb, "--memory-max-mb", "inf")  # it is judged here
    figures = []
    for name in ("folder", "s3"):
        one = found[name]
        rates = ", ".join(
            f"{word} {one[f'{word}_mb_per_second']:.0f}"
            for word in ("put", "get", "upload", "download", "keep", "fetch")
        )
        more = {role: one[f"{role}_memory_more_mb"] for role in ("api", "executor", "scheduler", "client")}
        told = f"{rates} MB/s; more memory: " + ", ".join(f"{role} {mb_more:.0f} MB" for role, mb_more in more.items())
        enough = max(more.values()) < MEMORY_MORE_MB_MAX
        bar = f"every process < {MEMORY_MORE_MB_MAX} MB more"
        figures.append(Figure(f"{mb} MB kept and fetched, {name}", bar, told, enough))
    return figures


ROWS: dict[str, Row] = {"command": command, "http": http, "workers": workers, "logs": logs, "files": files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short form that shows that it works")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--output", type=Path, default=BUILD / "kinds.md")
    args = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    figures = measure(args.rows, Extent(args.quick, 5, 5), ROWS)
    text = markdown(figures, machine())
    args.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
