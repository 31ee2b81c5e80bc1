"""How free places are shared out between namespaces that all have work: by weight, over time exactly."""

from collections.abc import Mapping


def allot(weights: Mapping[int, int], places: int, credit: Mapping[int, float]) -> dict[int, float]:
    """Credit of each namespace that wants places, after `places` more have become free. What was not used up before
    counts; who wanted nothing for a while has saved nothing."""
    total = sum(weights.values())
    return {name: credit.get(name, 0.0) + places * weight / total for name, weight in weights.items()}


def whole_places(credit: Mapping[int, float], places: int) -> dict[int, int]:
    """Credit as whole places, together `places`: who has most gets one first."""
    given = dict.fromkeys(credit, 0)
    left = dict(credit)
    for name, amount in credit.items():
        given[name] = max(int(amount), 0)
        left[name] = amount - given[name]
    rest = places - sum(given.values())
    for name in sorted(left, key=lambda name: -left[name]):
        if rest <= 0:
            break
        given[name] += 1
        rest -= 1
    for name in sorted(given, key=lambda name: given[name], reverse=True):
        while sum(given.values()) > places and given[name] > 0:
            given[name] -= min(given[name], sum(given.values()) - places)
    return given
