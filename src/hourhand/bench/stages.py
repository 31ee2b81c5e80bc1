"""Where a job's processor time goes: microseconds per job and stage, Python and PostgreSQL apart.

A stage is a process, or the sessions that PostgreSQL keeps for one: what the kernel counts. What goes on inside a
Python process it says itself by samples, and their shares divide what the kernel counted for the role.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hourhand.bench.meter import POSTGRES

_PREFIX = f"{POSTGRES} "


SETTING = "bench.stages"
"""Names the folder in which the processes of a temporary cluster leave their samples."""
Samples = Mapping[str, Mapping[str, int]]
"""By role and module."""


def read_samples(folder: Path) -> Samples:
    """What all processes have left so far; see `hourhand.runtime.stages`."""
    found: dict[str, Counter[str]] = {}
    for file in folder.glob("*.json"):
        told = json.loads(file.read_text())
        found.setdefault(told["role"], Counter()).update(told["samples"])
    return found


def shares_between(before: Samples, after: Samples) -> dict[str, dict[str, float]]:
    """For each role, the share of each module in what was sampled meanwhile."""
    shares: dict[str, dict[str, float]] = {}
    for role, samples in after.items():
        meanwhile = Counter(samples)
        meanwhile.subtract(before.get(role, {}))
        total = meanwhile.total()
        if total > 0:
            shares[role] = {module: count / total for module, count in meanwhile.most_common() if count}
    return shares


def stages_of(
    spent: Mapping[str, float], jobs: int, inside: Mapping[str, Mapping[str, float]] | None = None
) -> dict[str, dict[str, float]]:
    """Microseconds per job. `spent`: processor seconds by role, as a meter names them."""
    if not jobs:
        return {}
    each = {role: seconds / jobs * 1e6 for role, seconds in sorted(spent.items())}
    python = {role: micros for role, micros in each.items() if not role.startswith(_PREFIX)}
    postgres = {role.removeprefix(_PREFIX): micros for role, micros in each.items() if role.startswith(_PREFIX)}
    found = {
        "python": _with_sum(python),
        "postgres": _with_sum(postgres),
        "all": {"sum": sum(each.values())},
    }
    for role, parts in (inside or {}).items():
        found[f"python, {role}"] = {part: share * python.get(role, 0.0) for part, share in parts.items()}
    return found


def _with_sum(parts: Mapping[str, float]) -> dict[str, float]:
    """What is below a hundredth of a microsecond is left out; the sum is of everything."""
    shown = {name: micros for name, micros in parts.items() if micros >= 0.01}
    return {"sum": sum(parts.values()), **shown}


def role_pids(status: Mapping[str, Any], host: str) -> dict[int, str]:
    """Process ids of the nodes that run on this machine, with their roles."""
    found = {}
    for node in status.get("nodes", ()):
        facts = node.get("facts") or {}
        if facts.get("host") == host and isinstance(facts.get("pid"), int):
            found[facts["pid"]] = node["role"]
    return found
