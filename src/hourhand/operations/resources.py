"""What a job's attempts take of their executors: from the caller's words to what is stored, and back."""

import difflib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from hourhand.model.errors import Fault
from hourhand.model.resources import (
    BUILT_IN,
    COUNT_MAX,
    CPU_MAX,
    CPU_MIN,
    CUSTOM_MAX,
    DISK_MAX,
    DISK_MIN,
    MEMORY_MAX,
    MEMORY_MIN,
    NAME_RULE,
    PIDS_MAX,
    SLOTS_MAX,
    Resources,
    SizeFault,
    format_size,
    is_thing,
    parse_size,
)

_MEANT: Final = {
    "mem": "memory",
    "ram": "memory",
    "cores": "cpu",
    "processes": "pids",
    "threads": "pids",
    "storage": "disk",
}
_UNSEEN: Final = re.compile(r"[^\x20-\x7e]")
Refuse = Callable[[Fault], None]


def define_resources(given: Mapping[str, Any] | None, refuse: Refuse) -> Resources | None:
    """None where nothing is asked for. A value of null is as if not said, so that a change can take one away."""
    said = {name: value for name, value in (given or {}).items() if value is not None}
    if not said:
        return None
    things = {name: value for name, value in said.items() if name not in BUILT_IN}
    if len(things) > CUSTOM_MAX:
        refuse(Fault("/resources", "invalid-limit", f"at most {CUSTOM_MAX} counted things can be asked for"))
    resources = Resources(
        cpu=_cpu(said.get("cpu"), refuse),
        memory=_size(said.get("memory"), "memory", MEMORY_MIN, MEMORY_MAX, refuse),
        pids=_count(said.get("pids"), "/resources/pids", "pids", PIDS_MAX, refuse),
        disk=_size(said.get("disk"), "disk", DISK_MIN, DISK_MAX, refuse),
        slots=_count(said.get("slots"), "/resources/slots", "slots", SLOTS_MAX, refuse) or 1,
        custom=dict(_things(things, refuse)),
    )
    return None if resources == Resources() else resources


def resources_words(resources: Resources | None) -> dict[str, Any] | None:
    """In the caller's words."""
    if resources is None:
        return None
    words = {
        "cpu": resources.cpu,
        "memory": None if resources.memory is None else format_size(resources.memory),
        "pids": resources.pids,
        "disk": None if resources.disk is None else format_size(resources.disk),
        "slots": None if resources.slots == 1 else resources.slots,
    }
    return {name: value for name, value in words.items() if value is not None} | dict(resources.custom)


def _cpu(given: Any, refuse: Refuse) -> float | None:
    if given is None:
        return None
    is_number = isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)
    if not is_number or not CPU_MIN <= given <= CPU_MAX:
        refuse(Fault("/resources/cpu", "invalid-limit", f"cpu is a number of cores, {CPU_MIN:g} to {CPU_MAX:g}"))
        return None
    return round(float(given), 2)


def _size(given: Any, name: str, least: int, most: int, refuse: Refuse) -> int | None:
    if given is None:
        return None
    try:
        size = parse_size(given) if isinstance(given, str) else given
        if not isinstance(size, int) or isinstance(size, bool):
            raise SizeFault("a size is written like 512MB, 2GB or 1GiB, or as a number of bytes")
        if not least <= size <= most:
            raise SizeFault(f"{name} is {format_size(least)} to {format_size(most)}")
    except SizeFault as fault:
        refuse(Fault(f"/resources/{name}", "invalid-limit", str(fault)))
        return None
    return size


def _count(given: Any, pointer: str, name: str, most: int, refuse: Refuse) -> int | None:
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= most:
        refuse(Fault(pointer, "invalid-limit", f"{name} is a whole number, 1 to {most}"))
        return None
    return given


def _things(given: Mapping[str, Any], refuse: Refuse) -> list[tuple[str, int]]:
    found = []
    for name in sorted(given)[: CUSTOM_MAX + 1]:
        pointer = "/resources/" + name[:80].replace("~", "~0").replace("/", "~1")
        meant = _MEANT.get(name.lower()) or next(iter(difflib.get_close_matches(name.lower(), BUILT_IN, 1, 0.8)), None)
        if meant is not None:
            refuse(Fault(pointer, "invalid-limit", f"nothing is called {name[:80]}", f"did you mean {meant!r}?"))
        elif not is_thing(name):
            refuse(Fault(_UNSEEN.sub("?", pointer), "invalid-limit", NAME_RULE))
        elif (count := _count(given[name], pointer, name, COUNT_MAX, refuse)) is not None:
            found.append((name, count))
    return found
