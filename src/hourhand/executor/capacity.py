"""How much more an executor can carry: places in its rooms, cores, memory, counted things.

Whatever is taken is taken before the database is asked for runs, and given back for what did not come: two claims under
way never overbook. What an attempt holds beyond its place is known by its fence number and given back at its end,
however it ends.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from hourhand.model.demands import Demands, short_of
from hourhand.ports.job_kind import SlotClass

HOLDERS_TOLD_MAX: Final = 5
_HAIR: Final = 1e-9
"""Tenths of cores do not add up exactly."""


class Kept(NamedTuple):
    """Room that is kept for one run until it fits."""

    slot_class: SlotClass
    demands: Demands

    def places(self, slot_class: SlotClass) -> int:
        """Of the room that is asked for. Who takes a single place gets it like all others."""
        return self.demands.slots if slot_class is self.slot_class and self.demands.slots > 1 else 0


class Capacity:
    def __init__(self, slots: Mapping[SlotClass, int], things: Mapping[str, float] | None = None) -> None:
        """`things`: how much there is of what is counted, by name."""
        self._slots = dict(slots)
        self._used = dict.fromkeys(slots, 0)
        self._things = dict(things or {})
        self._used_things = dict.fromkeys(self._things, 0.0)
        self._held: dict[int, tuple[Demands, UUID]] = {}
        """What attempts hold beyond one place, by their fence number. Empty where no job demands anything."""
        self._starved = self._starved_of_things = False
        self.wake: Callable[[], None] = lambda: None
        """Called when a place is free again after somebody asked for one in vain."""

    def free(self, slot_class: SlotClass) -> int:
        return self._slots[slot_class] - self._used[slot_class]

    def want_more(self) -> None:
        """Somebody would have taken a place; he is woken when there is one."""
        self._starved = True

    def take(self, slot_class: SlotClass, count: int) -> None:
        self._used[slot_class] += count
        assert self._used[slot_class] <= self._slots[slot_class], "claimed more than there is room for"

    def give_back(self, slot_class: SlotClass, fence: int = 0) -> None:
        """A place, and what the attempt of that number holds beyond it."""
        if self._held and (held := self._held.pop(fence, None)):
            self.untake(slot_class, held[0], 1)
            return
        self._used[slot_class] -= 1
        if self._starved:
            self._starved = False
            self.wake()

    # --- what weighs ---

    def could_carry(self, slot_class: SlotClass, demands: Demands) -> bool:
        """Whether one of these would fit if nothing else ran."""
        return demands.slots <= self._slots[slot_class] and not any(short_of(demands, self._things))

    def fitting(self, slot_class: SlotClass, demands: Demands, kept: Kept | None = None) -> int:
        """How many of these fit beside what is taken now, and beside what is `kept` for another."""
        fit = (self.free(slot_class) - (kept.places(slot_class) if kept else 0)) // demands.slots
        kept_things = kept.demands.counted if kept else {}
        for name, amount in demands.counted.items():
            free = self._things.get(name, 0) - self._used_things.get(name, 0) - kept_things.get(name, 0)
            fit = min(fit, math.floor((free + _HAIR) / amount))
        return max(fit, 0)

    def want(self, slot_class: SlotClass, demands: Demands) -> None:
        """Somebody would have taken one of these; he is woken when there may be room."""
        if self.free(slot_class) < demands.slots:
            self._starved = True
        else:
            self._starved_of_things = True

    def take_for(self, slot_class: SlotClass, demands: Demands, count: int) -> None:
        self.take(slot_class, count * demands.slots)
        for name, amount in demands.counted.items():
            self._used_things[name] += amount * count
            assert self._used_things[name] <= self._things[name] + _HAIR * 1000, f"claimed more {name} than there is"

    def hold(self, fence: int, run_id: UUID, demands: Demands) -> None:
        """What was taken for one is the attempt's of that number from now on."""
        self._held[fence] = (demands, run_id)

    def untake(self, slot_class: SlotClass, demands: Demands, count: int) -> None:
        """Gives back what was taken for so many."""
        if not count:
            return
        self._used[slot_class] -= count * demands.slots
        for name, amount in demands.counted.items():
            left = self._used_things[name] - amount * count
            self._used_things[name] = left if left > _HAIR else 0.0
        if self._starved or self._starved_of_things:
            self._starved = self._starved_of_things = False
            self.wake()

    # --- what others may know ---

    def facts(self) -> dict[str, dict[str, int]]:
        return {name.value: {"slots": self._slots[name], "used": self._used[name]} for name in self._slots}

    def things(self) -> dict[str, dict[str, Any]]:
        """How much there is of each, how much of it is taken, and by whom the most. From any thread."""
        held = list(self._held.values())
        return {
            name: {"total": total, "used": round(self._used_things[name], 3), "by": _largest(name, held)}
            for name, total in self._things.items()
        }


def _largest(name: str, held: Iterable[tuple[Demands, UUID]]) -> list[list[Any]]:
    holding = [(amount, run_id) for demands, run_id in held if (amount := demands.counted.get(name))]
    return [[str(run_id), amount] for amount, run_id in sorted(holding, reverse=True)[:HOLDERS_TOLD_MAX]]
