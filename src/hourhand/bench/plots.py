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
        panels.setdefault(panel, {})[name] = line
    if not panels:
        return
    figure, axes = pyplot.subplots(len(panels), 1, sharex=True, squeeze=False, figsize=(10, 2.6 * len(panels)))
    for axis, (panel, lines) in zip(axes[:, 0], panels.items(), strict=True):
        for name, line in lines.items():
            axis.plot(line.seconds, line.values, label=name, linewidth=1.2)
        axis.set_ylabel(panel)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    axes[0, 0].set_title(title_of(facts), fontsize="medium")
    axes[-1, 0].set_xlabel("seconds")
    figure.savefig(path, bbox_inches="tight", dpi=110)
    pyplot.close(figure)


def title_of(facts: Facts) -> str:
    late = facts.get("lateness_ms") or {}
    words = [str(facts["bench"]), f"{facts['jobs']:,} jobs" if "jobs" in facts else ""]
    words += [f"late {name} {late[name]:,.1f} ms" for name in ("p50", "p99") if name in late]
    return ", ".join(word for word in words if word)


def _pyplot() -> Any:
    try:
        importlib.import_module("matplotlib").use("Agg")  # no window: files only
        return importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise BadConfiguration([REMEDY]) from None
