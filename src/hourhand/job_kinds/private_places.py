"""Places for temporary files that every attempt has for itself, and what of them it shares with the machine.

Where the kernel lets us make mounts, an attempt sees a folder of its own in the place of each. On disk it is one folder
for all of them, in the attempt's private one, so that it is counted, limited and removed with that; only shared memory
stays memory. Nothing that others have put there can be seen then, unless it is shared by the configuration.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hourhand.model.errors import BadConfiguration
from hourhand.model.work_folder import OWN_BEGINNING

TMP_FOLDER: Final = f"{OWN_BEGINNING}tmp"
"""In the attempt's private folder: what it sees as /tmp. The launcher knows it by the same name."""
PLACES: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - nothing is put there, they are hidden
_MEMORY: Final = "/dev/shm"  # noqa: S108


@dataclass(frozen=True, slots=True)
class PrivatePlaces:
    places: Sequence[str]
    """Those that there are on this machine, and that are not shared as a whole."""
    shared: Sequence[str]
    """Folders below them that are shared."""
    points: Sequence[str]
    """Where something is mounted in the attempt's folder for temporary files, relative to it."""

    def holds(self, path: str) -> bool:
        """Whether programs do not see what the executor sees there."""
        real = os.path.realpath(path)
        return (
            os.path.isabs(path)
            and any(_is_below(real, place) for place in self.places)
            and not any(_is_below(real, folder) for folder in self.shared)
        )


NOWHERE: Final = PrivatePlaces((), (), ())


def private_places(shared: Sequence[str], room: Path) -> PrivatePlaces:
    """Raises BadConfiguration with all that cannot be shared."""
    asked = list(dict.fromkeys(map(os.path.realpath, shared)))
    known = list(dict.fromkeys(os.path.realpath(place) for place in PLACES if os.path.isdir(place)))
    faults = [fault for folder in asked if (fault := _fault(folder, known))]
    if faults:
        raise BadConfiguration(faults)
    places = [place for place in known if place not in asked]
    inside = [folder for folder in asked if any(_is_below(folder, place) for place in places)]
    # What lies in another one is shared with it.
    inside = [folder for folder in inside if not any(_is_below(folder, other) for other in inside if other != folder)]
    own = [str(room)] if any(_is_below(str(room), place) for place in places) else []
    points = [os.path.relpath(folder, _place_of(folder, places)) for folder in [*inside, *own]]
    return PrivatePlaces(places, inside, list(dict.fromkeys(points)))


def _fault(folder: str, known: Sequence[str]) -> str | None:
    if folder in known:
        return None
    if _is_below(folder, os.path.realpath(_MEMORY)):
        return f"kinds.shared: {folder} cannot be shared without all of {_MEMORY}"
    if not any(_is_below(folder, place) for place in known):
        return f"kinds.shared: {folder} is not below {' or '.join(PLACES)}; programs see it anyway"
    return None


def _place_of(folder: str, places: Sequence[str]) -> str:
    return next(place for place in places if _is_below(folder, place))


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(place + "/")
