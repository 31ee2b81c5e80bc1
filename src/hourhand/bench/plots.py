"""Draws a measurement: one picture, one panel above the other, over the seconds since it began.

Needs matplotlib, which only this module imports, and late: nobody else has to wait for it or to have it.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hourhand.bench.report import Facts, Line
from hourhand.model.errors import BadConfiguration

REMEDY: Final = "--plot needs matplotlib: pip install 'hourhand[bench]'"
ENDINGS: Final = (".png", ".svg", ".pdf")
COLOURS: Final = {
    "api": "C0", "postgres api": "C9", "scheduler": "C2", "postgres scheduler": "C8", "executor": "C3",
    "postgres executor": "C1", "client": "C7", "postgres autovacuum": "C4", "postgres checkpointer": "C5",
    "postgres walwriter": "C6", "postgres": "C4", "supervisor": "C5", "postgres other": "0.75",
    "postgres background writer": "gold", "postgres bench": "0.3",
    "jobs": "C0", "timetable": "C2", "live_runs": "C3", "runs": "C1",
}  # fmt: skip
"""The same colour in every picture."""
_POINTS_FEW: Final = 12
"""Up to so many, each is marked: a line of one point would not be seen."""
_HEAD_ROOM: Final = 1.08
_LEGEND_INCHES: Final = 0.26
"""Of a panel for each of its names, so that they do not run into those of the next."""


def require_plots(path: Path) -> None:
    """Refuses before the measurement what would fail after it."""
    if path.suffix.lower() not in ENDINGS:
        raise BadConfiguration([f"--plot {path}: the name must end in {', '.join(ENDINGS)}"])
    if not path.absolute().parent.is_dir():
        raise BadConfiguration([f"--plot {path}: there is no such folder"])
    _pyplot()


def draw(path: Path, facts: Facts, series: Mapping[str, Line]) -> None:
    """`series`: curves by panel and name, "lateness, ms/p99"."""
    pyplot = _pyplot()
    panels: dict[str, dict[str, Line]] = {}
    for key, line in series.items():
        panel, _, name = key.partition("/")
        if line.values:
            panels.setdefault(panel, {})[name] = line
    if not panels:
        return
    heights = [max(2.6, _LEGEND_INCHES * len(lines)) for lines in panels.values()]
    figure, axes = pyplot.subplots(
        len(panels), 1, sharex=True, squeeze=False, figsize=(10, sum(heights)), height_ratios=heights
    )
    for axis, (panel, lines) in zip(axes[:, 0], panels.items(), strict=True):
        for place, (name, line) in enumerate(lines.items()):
            marker = "o" if len(line.values) <= _POINTS_FEW else ""
            colour = COLOURS.get(name, f"C{place}")
            axis.plot(line.seconds, line.values, label=name, color=colour, linewidth=1.2, marker=marker, markersize=3)
        top = max(max(line.values) for line in lines.values())
        axis.set_ylim(0, top * _HEAD_ROOM or 1)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axis.set_ylabel(panel)
        axis.grid(alpha=0.3)
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    axes[0, 0].set_title(title_of(facts), fontsize="medium")
    axes[-1, 0].set_xlim(left=0)
    axes[-1, 0].set_xlabel("seconds since the measurement began")
    figure.align_ylabels()
    figure.savefig(path, bbox_inches="tight", dpi=110)
    pyplot.close(figure)


def title_of(facts: Facts) -> str:
    bench, mode, late = str(facts["bench"]), str(facts.get("mode") or ""), facts.get("lateness_ms") or {}
    words = [bench if mode in ("", bench) else f"{bench} {mode}"]
    words += [f"{facts['rate']:,g} a second" if facts.get("rate") else ""]
    words += [f"{facts['jobs']:,} jobs" if facts.get("jobs") else ""]
    words += [f"lateness {name} {late[name]:,.1f} ms" for name in ("p50", "p99") if name in late]
    return ", ".join(word for word in words if word)


def _pyplot() -> Any:
    try:
        importlib.import_module("matplotlib").use("Agg")  # no window: files only
        return importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise BadConfiguration([REMEDY]) from None
