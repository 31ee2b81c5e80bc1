"""What Hourhand itself puts into the private folder of an attempt: names that nothing of the job's may have there."""

from typing import Final

OUTPUT_FOLDER: Final = "output"
"""Files that a program leaves there are kept. It is named in HOURHAND_OUTPUT_DIR."""
CODE_FOLDER: Final = "artifact"
"""Code that was uploaded lies there."""
OWN_BEGINNING: Final = ".hourhand-"
"""What all other names begin with."""


def reserved_for(name: str) -> str | None:
    """What a file or folder of that name, at the top of the private folder, is there for; None: it is the job's."""
    if name == OUTPUT_FOLDER:
        return "the files that are kept of a run, and can be downloaded by others"
    if name == CODE_FOLDER:
        return "code that was uploaded"
    return "Hourhand itself" if name.startswith(OWN_BEGINNING) else None
