"""The Accept header: which of the forms a route offers the caller wants."""

from collections.abc import Sequence
from functools import lru_cache

from hourhand.api.refusals import NotAcceptable

_PROBLEM_TOO = "application/problem+json"


def negotiate(accept: bytes | None, offered: tuple[str, ...]) -> str:
    """The offered media type the caller likes best. Raises `NotAcceptable`."""
    if accept is None or accept == b"*/*":
        return offered[0]
    best = _best(accept, offered)
    if best is None:
        raise NotAcceptable(offered)
    return best


@lru_cache(maxsize=500)
def _best(accept: bytes, offered: tuple[str, ...]) -> str | None:
    wishes = [_wish(part) for part in accept.decode("latin-1").lower().split(",") if part.strip()]
    if not wishes:
        return offered[0]
    rated = [(_quality(media_type, wishes), -place) for place, media_type in enumerate(offered)]
    quality, place = max(rated)
    if quality > 0:
        return offered[-place]
    # Who asks for problem documents alone still means our JSON routes.
    return offered[0] if _quality(_PROBLEM_TOO, wishes) > 0 else None


def _wish(part: str) -> tuple[str, float]:
    media_range, *options = [piece.strip() for piece in part.split(";")]
    for option in options:
        name, _, value = option.partition("=")
        if name.strip() == "q":
            try:
                return media_range, min(1.0, max(0.0, float(value)))
            except ValueError:
                return media_range, 0.0
    return media_range, 1.0


def _quality(media_type: str, wishes: Sequence[tuple[str, float]]) -> float:
    """The most specific wish decides: application/json;q=0 beats */*."""
    plain = media_type.partition(";")[0]
    for wanted in (plain, plain.partition("/")[0] + "/*", "*/*"):
        for media_range, quality in wishes:
            if media_range == wanted:
                return quality
    return 0.0
