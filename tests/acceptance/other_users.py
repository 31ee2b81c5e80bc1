"""Programs as other users than our own: what they are begun with, and where they find their packages."""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import asyncpg

IS_ROOT = os.geteuid() == 0


def become(user: str) -> list[str]:
    """What a command is begun with to be run as this user. The shell is needed: root's power ends with an exec only."""
    group = pwd.getpwnam(user).pw_gid
    change = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--"]
    return [*change, "sh", "-c", 'exec "$0" "$@"']


def unprivileged() -> Sequence[str]:
    """Programs that refuse to be root see somebody else, who owns what root owns."""
    if not IS_ROOT:
        return []
    number = min(entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid not in (0, 65534))
    return ["unshare", "--user", f"--map-user={number}", f"--map-group={number}", "--"]


def program_for_user(folder: Path, user: str) -> list[str] | None:
    """A `hourhand` that this user can run: our own interpreter may lie under a closed /root. None if there is no way.

    A new environment is made with an interpreter that the user reaches; it borrows the packages of ours.
    """
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for python in (sys.executable, f"/usr/bin/python{wanted}", f"/usr/local/bin/python{wanted}"):
        said = subprocess.run([*become(user), python, "-c", ask], cwd="/", capture_output=True, text=True, check=False)
        if said.stdout.strip() != wanted:
            continue
        made = folder / "environment"
        subprocess.run([python, "-m", "venv", "--without-pip", str(made)], check=True, capture_output=True)
        site = next(made.glob("lib/python*/site-packages"))
        borrowed = _reachable_packages(folder, user)
        lines = [f"import site; site.addsitedir({str(path)!r})" for path in borrowed]
        (site / "borrowed.pth").write_text("\n".join(lines) + "\n")
        return [str(made / "bin" / "python"), "-m", "hourhand.cli"]
    return None


def _reachable_packages(folder: Path, user: str) -> list[Path]:
    """Where our packages and sources are, or copies of them when the user cannot read them there."""
    import hourhand

    # The sources first: beside the packages there may be a link to sources of another checkout.
    ours = [Path(hourhand.__file__).parent.parent, Path(asyncpg.__file__).parent.parent]
    found = []
    for number, path in enumerate(dict.fromkeys(ours)):
        reads = subprocess.run([*become(user), "test", "-r", str(path)], check=False)
        if reads.returncode == 0:
            found.append(path)
        else:
            found.append(shutil.copytree(path, folder / f"packages-{number}", symlinks=True))
    return found
