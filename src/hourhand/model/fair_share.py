"""How free places are shared out between namespaces that all have work: by weight, over time exactly."""

from collections.abc import Mapping
from heapq import heapify, heapreplace


def allot(weights: Mapping[int, int], places: int, credit: Mapping[int, float]) -> dict[int, float]:
    """Credit of each namespace that wants places, after `places` more have become free. What was not used up before
    counts; who wanted nothing for a while has saved nothing."""
    total = sum(weights.values())
    return {name: credit.get(name, 0.0) + places * weight / total for name, weight in weights.items()}


def whole_places(credit: Mapping[int, float], places: int) -> dict[int, int]:
    """Credit as whole places, together `places`: one after the other to whoever has most credit left."""
    given = dict.fromkeys(credit, 0)
    owed = [(-amount, name) for name, amount in credit.items()]
    heapify(owed)
    for _ in range(places):
        amount, name = owed[0]
        given[name] += 1
        heapreplace(owed, (amount + 1, name))
    return given
