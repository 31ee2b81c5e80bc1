"""Where identifiers and chance come from, so that tests can bring their own."""

import random
from datetime import datetime
from uuid import UUID

from hourhand.model.ids import time_ordered_id


class IdSource:
    """Ids need to be unlike, not secret: a generator seeded by the system is enough, and much faster."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)  # noqa: S311

    def new_id(self, now: datetime) -> UUID:
        return time_ordered_id(now, self._random.getrandbits(74))

    def fraction(self) -> float:
        """Chance in [0, 1)."""
        return self._random.random()
