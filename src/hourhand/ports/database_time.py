"""The database's time, told along with an answer."""

from collections.abc import Callable
from datetime import datetime

HearTime = Callable[[datetime], None]
"""Is told what time it was by the database's clock when it answered."""


def hear_nothing(_: datetime) -> None:
    return
