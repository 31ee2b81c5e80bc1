"""Every event that is worth a line, and how it is worded.

Code names an event and its fields; the level is decided here. The same field has the same name everywhere. Lines go to
standard error, as text for people or as JSON for programs.
"""

import contextlib
import logging
import sys
from enum import Enum
from typing import Any

import structlog


class Event(Enum):
    """Name of the event, and the level it is told at."""

    NODE_STARTED = ("node started", logging.INFO)
    API_LISTENS = ("API listens", logging.INFO)
    NODE_STOPPING = ("node stopping", logging.INFO)
    NODE_STOPPED = ("node stopped", logging.INFO)
    NODE_HANGS = ("node does not go on, its lease is left to end", logging.ERROR)
    NODE_BURIED = ("node was found dead by others and starts anew", logging.WARNING)
    NODES_LOST = ("nodes stopped answering", logging.WARNING)
    LEADER_CHANGED = ("became leader", logging.INFO)
    LEADER_LOST = ("is leader no longer", logging.INFO)
    SHARDS_ASSIGNED = ("shards assigned", logging.INFO)
    PARTS_CANCELLED = ("parts of runs that are over cancelled", logging.WARNING)
    RUNS_RETURNED = ("runs of lost executors returned", logging.WARNING)
    CLAIMS_LOST = ("claims without an answer given back", logging.WARNING)
    LATE_OUTCOMES = ("late outcomes refused", logging.WARNING)
    OUTCOMES_KEPT = ("outcomes are kept in the journal until the database takes them", logging.WARNING)
    OUTCOMES_DELIVERED = ("outcomes of the journal were delivered", logging.WARNING)
    OUTCOMES_UNTAKEN = ("outcomes were not taken by the database and are tried again", logging.ERROR)
    OUTCOMES_ADOPTED = ("outcomes that an ended executor left were delivered", logging.WARNING)
    JOURNAL_FULL = ("journal full: further outcomes wait in memory only", logging.ERROR)
    JOURNAL_UNUSABLE = ("journal cannot be used: outcomes wait in memory only", logging.ERROR)
    LINES_LOST = ("log lines do not follow those that are stored, a mark tells what is missing", logging.ERROR)
    LINES_UNSTORABLE = ("log lines cannot be stored, a mark stands in their place", logging.ERROR)
    LOGS_MOVED = ("logs moved out of the database", logging.INFO)
    SELF_FENCED = ("lease not confirmed: attempts that need it are ended", logging.WARNING)
    ENDED_BY_FORCE = (
        "runs that need the lease could not be ended before it: the executor ends itself",
        logging.CRITICAL,
    )
    HANDLER_ABANDONED = ("handler did not end when it was cancelled: it is never resumed again", logging.ERROR)
    ATTEMPTS_STUCK = ("attempts do not end although they were told to", logging.ERROR)
    ORDERS_CHANGED = ("new orders", logging.INFO)
    ATTEMPT_FAILED = ("attempt failed", logging.INFO)
    PROGRAMS_CONTAINED = ("programs are contained", logging.INFO)
    LAUNCHER_DIED = ("launcher of programs died, and with it what it had started", logging.ERROR)
    LOOP_FAILED = ("loop failed and will try again", logging.ERROR)
    LOOP_WELL = ("loop comes through again", logging.WARNING)
    TASK_ENDED = ("a part of the node ended by itself", logging.ERROR)
    DATABASE_AWAY = ("database away, trying again", logging.WARNING)
    DATABASE_BACK = ("database is back", logging.WARNING)
    DATABASE_NOT_DURABLE = ("database may lose what it has acknowledged", logging.WARNING)
    CLOCK_APART = ("clock of this machine is not that of the database; only that one counts", logging.WARNING)
    BLOBS_DELETED = ("blobs of runs deleted that nobody needs any more", logging.INFO)
    BLOBS_AWAY = ("storage of blobs away", logging.WARNING)
    BLOBS_BACK = ("storage of blobs is back", logging.WARNING)
    RUNS_SKIPPED = ("runs skipped because an earlier one was not finished", logging.INFO)
    STRAY_SLOTS_FREED = ("places in gates that nobody held were freed", logging.WARNING)
    JOB_PAUSED = ("job paused because its runs fail", logging.WARNING)
    JOB_UNPLANNABLE = ("job cannot be planned", logging.ERROR)
    BACKFILL_RELEASED = ("runs of a backfill released", logging.DEBUG)
    BACKFILL_STUCK = ("backfill cannot go on", logging.ERROR)
    ZONES_CHANGED = ("time zones have new rules, their jobs are planned anew", logging.WARNING)
    JOBS_REPLANNED = ("jobs planned anew by the new rules of their zones", logging.WARNING)
    PARTITIONS_MADE = ("partitions made", logging.INFO)
    PARTITIONS_DROPPED = ("partitions dropped", logging.INFO)
    MIGRATED = ("database migrated", logging.INFO)
    REQUEST_FAILED = ("request failed", logging.ERROR)
    CHILD_ENDED = ("process ended unexpectedly and is started again", logging.WARNING)
    HANDLERS_LOADED = ("handlers loaded", logging.DEBUG)

    @property
    def level(self) -> int:
        return int(self.value[1])

    @property
    def text(self) -> str:
        return str(self.value[0])


def emit(event: Event, **fields: Any) -> None:
    """Tells an event. Never raises: a log that nobody reads any more must not stop the work it tells about."""
    with contextlib.suppress(OSError, ValueError):  # a broken pipe, a full disk, a closed file
        _logger().log(event.level, event.text, **fields)


def set_up_logging(role: str, json_lines: bool = False, level: str = "info") -> None:
    """Called once per process, before the first event."""
    renderer: Any
    if json_lines:
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(role=role)


def _logger() -> Any:
    return structlog.get_logger()
