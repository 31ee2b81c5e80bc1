"""All job kinds by name: our own, and those that installed packages bring.

A package offers a kind with an entry point in the group `hourhand.job_kinds` whose name is the kind's and
whose object is called with the `KindSettings` and returns a `JobKind`. It is imported when it is first
asked for; a package that is broken breaks its own kind and no other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final, Literal

from hourhand.job_kinds.artifact_cache import ArtifactCache
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.container import ContainerKind, ContainerSettings
from hourhand.job_kinds.handlers import HandlerRegistry, load_handlers
from hourhand.job_kinds.http import HttpKind, HttpSettings
from hourhand.job_kinds.interpreters import find_program
from hourhand.job_kinds.plugin import PluginKind
from hourhand.job_kinds.plugin_hello import ask_hello
from hourhand.job_kinds.plugin_protocol import HelloFault
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.job_kinds.python import PythonKind
from hourhand.job_kinds.script import ScriptKind, ScriptSettings
from hourhand.job_kinds.user_ids import FIRST as UID_FIRST
from hourhand.job_kinds.work_folders import account_for
from hourhand.job_kinds.worker_pool import WorkerPoolSettings
from hourhand.model.errors import BadConfiguration
from hourhand.ports.job_kind import KIND_API_VERSION, JobKind
from hourhand.runtime.archives import ENTRIES_MAX, UNPACKED_BYTES_MAX, ArchiveLimits

GROUP: Final = "hourhand.job_kinds"


@dataclass(frozen=True, slots=True)
class KindSettings:
    """How an executor runs each kind."""

    handler_modules: tuple[str, ...] = ()
    """Modules to import for their `@job` functions; one that cannot be imported keeps the executor from starting."""
    worker_processes_max: int = 8
    """Processes for synchronous Python handlers, each with the memory of a Python process. An executor may have as many
    as `executor.slots_process` in any case, so that no run it has claimed waits for one: to have fewer, lower that."""
    worker_processes_warm: int = 1
    """Worker processes kept when idle; without one the next synchronous run waits for an interpreter to start."""
    worker_idle_seconds: float = 60.0
    """How long worker processes above the warm ones are kept without work."""
    worker_start_seconds_max: float = 60.0
    """How long a worker process may take to import the handler modules before it is given up."""
    grace_seconds: float = 10.0
    """How long a cancelled command or synchronous handler may take to end by itself before it is killed."""
    run_as: str | None = "nobody"
    """The user that commands run as when the executor is root, or whose group they are in where each has a user of its
    own (`uid_count`); None keeps root, with all that follows."""
    work_root: str | None = None
    """Where commands get their private folders; that user must be able to reach it. None makes one that fits."""
    command_path: str | None = None
    """The PATH of commands; None passes the executor's own on."""
    containment: Literal["full", "none"] = "full"
    """`none` starts programs faster, but without limits, and they see all files and processes that their user can."""
    pids_max: int = 512
    """Processes and threads of one attempt, unless its job declares `resources.pids`; a fork bomb ends there."""
    open_files_max: int = 4096
    """Files that one process of a contained program may have open."""
    memory_bytes_max: int | None = None
    """Memory that one attempt of a contained program or a container may take, unless its job declares
    `resources.memory`; None: half of what the executor may have. Holds by control groups only."""
    disk_bytes_max: int | None = None
    """Disk that one attempt of a contained program may take in its private folder and its /tmp, unless its job declares
    `resources.disk`; None: a tenth of the file system, but at most half of what is free there when the executor
    starts, and at least 100 MB."""
    disk_files_max: int | None = None
    """Files and folders that one attempt of a contained program may have in its private folder and its /tmp; None: a
    tenth of what the file system can hold, but at most half of what is free there when the executor starts, at least
    10,000 and at most 1,000,000."""
    uid_first: int = UID_FIRST
    """Where the numbers begin of which each contained attempt has one as its user when the executor is root, in the
    group of `run_as`. No account may have one of them. Executors of a machine share them; those in containers on it
    need others."""
    uid_count: int | None = None
    """How many of them there are, at least 1,024; each executor takes up to 65,536. 0: all attempts are the user
    `run_as`, and can harm each other. None: 16,777,216 where `run_as` is `nobody`, and 0 where it is another user, who
    may have files."""
    shared: tuple[str, ...] = ()
    """Folders that contained programs share with the machine in /tmp, /var/tmp and /dev/shm, of which each attempt has
    its own otherwise: `/tmp/exchange`, or `/tmp` for all of it."""
    allow_shell: bool = False
    """Whether commands may say `shell: true` and be one line for `sh`: what is put into the line may then be code."""
    artifact_cache_bytes_max: int = 4 << 30
    """Room for uploaded code in the home; what was used longest ago goes first. An artifact that takes more than all of
    it cannot be run here."""
    artifact_unpacked_bytes_max: int = UNPACKED_BYTES_MAX
    """What one archive of uploaded code may become: the API refuses a larger one, and so does the executor that would
    unpack it; the same for both."""
    artifact_entries_max: int = ENTRIES_MAX
    """Files and folders that one archive of uploaded code may have, judged in the same places."""
    artifact_keys: tuple[str, ...] = ()
    """Public keys (Ed25519, base64) of those who may sign uploaded code, as `hourhand artifact make-key` prints them;
    the same for every API and executor."""
    require_signed_artifacts: bool = False
    """Whether uploaded code must be signed by one of `artifact_keys`: the API refuses all else, and executors check the
    signature again before they run it. Scripts in payloads and commands are not concerned."""
    interpreters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further languages of scripts and the command that runs each: `{"lua": "lua5.4"}`; also others than the usual
    programs. What is not on this machine, or not for the user of jobs, is not offered."""
    container_engine: tuple[str, ...] = ()
    """The command of the engine that runs containers, with further words if it needs any; empty: podman or docker,
    whichever answers when the executor starts. Without one that answers, no containers are run here."""
    plugins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further kinds, each an executable that speaks JSON lines: `{"shout": ["/opt/shout", "--loud"]}`. An executor that
    has one it cannot use does not start; the API must have the same to accept their jobs."""
    allow_private_targets: bool = False
    """Whether HTTP jobs may call loopback and private addresses; link-local ones are refused in any case."""
    http_ca_file: Path | None = None
    """Certificates (PEM) of a private CA that HTTP jobs believe beside those that the machine trusts."""
    http_allow_unverified_tls: bool = False
    """Whether HTTP jobs may say `verify_tls: false`: then anybody on the way can read and change their calls."""
    http_proxy: str | None = field(default=None, repr=False)  # it may hold a password
    """The proxy ("http://user:password@host:port") of all HTTP jobs; only this one may be at any address."""
    http_proxy_resolves_names: bool = False
    """True gives names to `http_proxy`, not the addresses they were checked by: then it alone keeps jobs from private
    targets."""
    http_allow_job_proxies: bool = False
    """Whether HTTP jobs may name a proxy of their own; it is checked like any target."""
    http_idle_seconds_max: float = 300.0
    """How long a server may be silent before the call is given up; jobs may ask for less by `idle_timeout`."""
    http_total_seconds_max: float = 3600.0
    """How long one call may take with its redirects; each holds a place of its executor so long."""
    http_body_bytes_max: int = 64 * 1024
    """How much of an answer is read and kept as the result."""

    @property
    def archive_limits(self) -> ArchiveLimits:
        return ArchiveLimits(self.artifact_entries_max, self.artifact_unpacked_bytes_max)


class Kinds(Mapping[str, JobKind]):
    """Kinds by name; those of packages are loaded when asked for."""

    def __init__(self, settings: KindSettings, builtin: Mapping[str, JobKind]) -> None:
        self._settings = settings
        self._loaded = dict(builtin)
        self._offered = {point.name: point for point in entry_points(group=GROUP) if point.name not in builtin}

    def __getitem__(self, name: str) -> JobKind:
        """Raises BadConfiguration when the package that brings the kind is broken."""
        if name not in self._loaded:
            self._loaded[name] = _load(self._offered[name], self._settings)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._loaded, **self._offered})

    def __len__(self) -> int:
        return len({**self._loaded, **self._offered})

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in self._offered  # without loading anything

    def load_all(self) -> None:
        """Loads every kind and tells all that are broken at once."""
        faults: list[str] = []
        for name in self:
            try:
                self[name]
            except BadConfiguration as error:
                faults += error.faults
        if faults:
            raise BadConfiguration(faults)


def python_kind(kinds: Mapping[str, JobKind]) -> PythonKind:
    kind = kinds[PythonKind.name]
    assert isinstance(kind, PythonKind), "no package can replace a kind of the product"
    return kind


def kinds_for_checking(settings: KindSettings | None = None) -> Kinds:
    """For the API: checks payloads and names needs. No handler is imported and nothing is opened.

    What is granted to jobs is judged by the API's own settings first; executors judge it again by theirs.
    """
    settings = settings or KindSettings(allow_private_targets=True)
    return Kinds(settings, builtin_kinds(settings, HandlerRegistry(), checking=True))


def kinds_for_running(
    settings: KindSettings, hidden: Sequence[Path] = (), artifacts: ArtifactCache | None = None
) -> Kinds:
    """For executors. Raises BadConfiguration naming every handler module and every package that is broken.

    `hidden` is what contained programs do not see: the executor's own files. Without `artifacts` no uploaded code is
    run.
    """
    kinds = Kinds(settings, builtin_kinds(settings, load_handlers(settings.handler_modules), hidden, artifacts))
    kinds.load_all()
    return kinds


def builtin_kinds(
    settings: KindSettings,
    handlers: HandlerRegistry,
    hidden: Sequence[Path] = (),
    artifacts: ArtifactCache | None = None,
    checking: bool = False,
) -> dict[str, JobKind]:
    """And executables of the configuration. `checking`: nothing of them is run but to ask who they are."""
    workers = WorkerPoolSettings(
        modules=settings.handler_modules,
        processes_max=settings.worker_processes_max,
        processes_warm=settings.worker_processes_warm,
        idle_seconds=settings.worker_idle_seconds,
        start_seconds_max=settings.worker_start_seconds_max,
        grace_seconds=settings.grace_seconds,
        work_root=settings.work_root,
    )
    programs = ProgramRunner(
        ProgramSettings(
            settings.grace_seconds,
            settings.run_as,
            settings.work_root,
            settings.command_path,
            settings.containment,
            settings.pids_max,
            settings.open_files_max,
            tuple(hidden),
            settings.shared,
            settings.disk_bytes_max,
            settings.disk_files_max,
            settings.uid_first,
            settings.uid_count,
            settings.memory_bytes_max,
        )
    )
    kinds: list[JobKind] = [
        PythonKind(handlers, workers),
        CommandKind(programs, settings.allow_shell),
        ScriptKind(programs, ScriptSettings(settings.interpreters, settings.run_as), artifacts),
        HttpKind(_http_settings(settings)),
        _containers(settings),
        *_plugins(settings, programs, checking),
    ]
    return {kind.name: kind for kind in kinds}


def _containers(settings: KindSettings) -> ContainerKind:
    """The engine contains what it runs, and cannot do so as the user of jobs or inside of our own containment."""
    own = ProgramSettings(settings.grace_seconds, None, settings.work_root, settings.command_path, "none")
    return ContainerKind(
        ProgramRunner(own),
        ContainerSettings(
            settings.container_engine,
            settings.run_as,
            settings.pids_max,
            settings.open_files_max,
            settings.memory_bytes_max,
        ),
    )


def _http_settings(settings: KindSettings) -> HttpSettings:
    return HttpSettings(
        allow_private=settings.allow_private_targets,
        idle_seconds_max=settings.http_idle_seconds_max,
        total_seconds_max=settings.http_total_seconds_max,
        body_bytes_max=settings.http_body_bytes_max,
        ca_file=settings.http_ca_file,
        allow_unverified_tls=settings.http_allow_unverified_tls,
        proxy=settings.http_proxy,
        proxy_resolves_names=settings.http_proxy_resolves_names,
        allow_job_proxies=settings.http_allow_job_proxies,
    )


def _load(point: EntryPoint, settings: KindSettings) -> JobKind:
    origin = f" from package {point.dist.name} {point.dist.version}" if point.dist is not None else ""
    try:
        make: Callable[[KindSettings], JobKind] = point.load()
        kind = make(settings)
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadConfiguration([f"job kind {point.name!r}{origin} cannot be loaded: {said}"]) from error
    if getattr(kind, "name", None) != point.name:
        raise BadConfiguration([f"job kind {point.name!r}{origin} calls itself {getattr(kind, 'name', None)!r}"])
    version = getattr(kind, "api_version", KIND_API_VERSION)
    if version != KIND_API_VERSION:
        message = f"is made for version {version} of the port; this program has {KIND_API_VERSION}"
        raise BadConfiguration([f"job kind {point.name!r}{origin} {message}"])
    return kind


def _plugins(settings: KindSettings, programs: ProgramRunner, checking: bool) -> list[JobKind]:
    """Raises BadConfiguration with all that cannot be used, unless it is only for checking: jobs are told then."""
    made: list[JobKind] = []
    faults: list[str] = []
    account = account_for(settings.run_as) if settings.plugins else None
    for name, command in settings.plugins.items():
        description, fault = None, None
        try:
            if not checking or find_program(command[0], programs.path, account):
                description = ask_hello(command, programs.path, account)
        except HelloFault as wrong:
            fault = wrong
            faults.append(f"kinds.plugins: {name}: {wrong}")
        made.append(PluginKind(name, command, programs, description, fault))
    if faults and not checking:
        raise BadConfiguration(faults)
    return made
