"""How often Python looks for garbage that only a search finds: seldom, and never among what was there at the start.

Everything on the hot path is freed the moment nobody holds it. With Python's own settings the search runs once per 700
new objects, and now and then walks over all that was imported, a hundred milliseconds in which nothing starts.
"""

import gc
from typing import Final

NEW_OBJECTS: Final = 20_000
"""Between two searches among new objects: a few batches."""
SEARCHES: Final = 20
"""Of one kind before one of the next."""


def search_seldom() -> None:
    """For a process that has started all it is going to start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, SEARCHES, SEARCHES)
