"""How much more an executor can carry."""

from collections.abc import Callable, Mapping

from hourhand.ports.job_kind import SlotClass


class Capacity:
    def __init__(self, slots: Mapping[SlotClass, int]) -> None:
        self._slots = dict(slots)
        self._used = dict.fromkeys(slots, 0)
        self._starved = False
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

    def give_back(self, slot_class: SlotClass) -> None:
        self._used[slot_class] -= 1
        if self._starved:
            self._starved = False
            self.wake()

    def facts(self) -> dict[str, dict[str, int]]:
        return {name.value: {"slots": self._slots[name], "used": self._used[name]} for name in self._slots}
