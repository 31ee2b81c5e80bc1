"""Where a job's processor time goes: microseconds per job and stage, Python and PostgreSQL apart.

A stage is a process, or the sessions that PostgreSQL keeps for one: what the kernel counts. What goes on inside a
Python process only a profiler can tell; one that fits `Profiler` is asked at the beginning and the end of a
measurement, and its shares divide what the kernel counted for the role.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hourhand.bench.meter import POSTGRES

_PREFIX = f"{POSTGRES} "


class Profiler(Protocol):
    """Tells what the processes of a role do with their time. None is built in."""

    def begin(self, roles: Mapping[str, Sequence[int]]) -> None:
        """`roles`: the process ids of each. Must not wait."""

    def end(self) -> Mapping[str, Mapping[str, float]]:
        """For each role that it knows, the share of each part; shares of a role sum up to at most one."""


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
