"""Who may enter the folders above a path: those are other people's, and nothing of ours may change them."""

from pathlib import Path


def modes_above(path: Path) -> dict[Path, tuple[int, int, int]]:
    """Mode, user and group of each. Without the one that all sessions of pytest share: each closes it as it begins."""
    found = {parent: parent.stat() for parent in path.parents if not parent.name.startswith("pytest-of-")}
    return {parent: (facts.st_mode, facts.st_uid, facts.st_gid) for parent, facts in found.items()}
