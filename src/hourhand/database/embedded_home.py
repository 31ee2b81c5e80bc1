"""The folder an embedded PostgreSQL lives in: who may use it, who is using it, and where the socket goes.

Promises that a home is used by one process at a time, and that no folder which was here before us changes its mode or
owner. A home that cannot be used is refused with one line saying what is wrong and what to do. Knows nothing of
PostgreSQL itself beyond the name of its socket.
"""

import fcntl
import hashlib
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hourhand.database.embedded_settings import PORT
from hourhand.model.errors import HomeUnusable

SOCKET_PATH_BYTES_MAX: Final = 107
"""What the kernel leaves of `sun_path` after its closing zero byte."""

_ELSEWHERE: Final = "choose another folder with HOURHAND_HOME"


def prepare_home(home: Path) -> Path:
    """Makes the folder if it is missing; returns its real path. Refuses what is not ours to use."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        real = home.resolve(strict=True)
        owner = real.stat().st_uid
    except FileExistsError:
        raise HomeUnusable(f"{home} is not a folder; {_ELSEWHERE}") from None
    except OSError as error:
        raise HomeUnusable(f"{home} cannot be created or opened ({error.strerror}); {_ELSEWHERE}") from None
    if owner != os.geteuid():
        raise HomeUnusable(
            f"{real} belongs to user {owner}, not to user {os.geteuid()}; run as its owner or {_ELSEWHERE}"
        )
    if not os.access(real, os.R_OK | os.W_OK | os.X_OK):
        raise HomeUnusable(f"{real} is not writable; make it so or {_ELSEWHERE}")
    return real


class HomeLock:
    """Holds a home for this process. The kernel lets go of it when the process ends, however it ends."""

    def __init__(self, home: Path) -> None:
        path = home / "lock"
        try:
            # Close-on-exec: PostgreSQL must not inherit it, or a server that outlives us would keep its home locked.
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise HomeUnusable(f"{path} cannot be opened ({error.strerror}); {_ELSEWHERE}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            if not isinstance(error, BlockingIOError):
                raise HomeUnusable(f"{path} cannot be locked ({error.strerror}); {_ELSEWHERE}") from None
            raise HomeUnusable(
                f"{home} is in use by process {holder or 'unknown'}; stop that process or {_ELSEWHERE}"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)


def home_hash(home: Path) -> str:
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:16]


def read_or_create_password(home: Path) -> str:
    """The password of the database role. Kept from the first try on, so that a repeated initdb gets the same one."""
    path = home / "postgres.password"
    try:
        password = path.read_text().strip()
    except FileNotFoundError:
        if (home / "postgres").exists():
            raise HomeUnusable(f"{path} is missing; put it back, nothing else opens the data beside it") from None
        password = secrets.token_urlsafe(24)
        write_safely(path, password + "\n")
    except OSError as error:
        raise HomeUnusable(f"{path} cannot be read ({error.strerror}); make it readable for its owner") from None
    if not password:
        raise HomeUnusable(f"{path} is empty; put its content back, nothing else opens the data beside it")
    return password


def write_safely(path: Path, text: str, uid: int = -1, gid: int = -1) -> None:
    """Puts a private file in place, whole or not at all, also when the power fails."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fchown(file.fileno(), uid, gid)
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def prepare_sockets(home: Path) -> Path:
    """A private folder for the socket: inside the home, or at a short path where the home's is too long."""
    folder = next((folder for folder in _socket_folders(home) if _fits(folder)), None)
    if folder is None:
        raise HomeUnusable(f"no folder for a socket below {SOCKET_PATH_BYTES_MAX} bytes was found; {_ELSEWHERE}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise HomeUnusable(f"{folder} cannot be created ({error.strerror}); {_ELSEWHERE}") from None
    # In a shared temp folder anyone could have made this name first, and would then see our password go by.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise HomeUnusable(f"{folder} is not a private folder (0700) of user {os.geteuid()}; remove it")
    return folder


def _socket_folders(home: Path) -> Iterator[Path]:
    yield home / "socket"
    name = f"hourhand-{os.geteuid()}-{home_hash(home)}"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and os.path.isdir(runtime) and os.stat(runtime).st_uid == os.geteuid():
        yield Path(runtime) / name
    yield Path(tempfile.gettempdir()) / name
    yield Path("/tmp") / name  # noqa: S108 - TMPDIR may be too long; the folder is checked before use


def _fits(folder: Path) -> bool:
    """Short enough for the kernel, and plain enough for PostgreSQL, which reads the setting as a list of folders."""
    short = len(os.fsencode(folder / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES_MAX
    return short and re.fullmatch(r"[\w/.+@:=-]+", str(folder), re.ASCII) is not None
