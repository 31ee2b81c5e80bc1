"""`hourhand job`: its verbs."""

import click

from hourhand.cli.lazy import Lazy, LazyGroup
from hourhand.cli.session import session_options

VERBS = {
    "create": Lazy("hourhand.cli.job_write", "create", "Create a job: a command, an HTTP request or a Python handler."),
    "list": Lazy("hourhand.cli.job_read", "list_", "List jobs, newest first."),
    "get": Lazy("hourhand.cli.job_read", "get", "Show one job."),
    "update": Lazy("hourhand.cli.job_write", "update", "Change a job; only what is given changes."),
    "delete": Lazy("hourhand.cli.job_change", "delete", "Cancel a job for good; its history stays."),
    "pause": Lazy("hourhand.cli.job_change", "pause", "Make no new runs; running ones go on."),
    "resume": Lazy("hourhand.cli.job_change", "resume", "Make runs again, from now on."),
    "run": Lazy("hourhand.cli.job_change", "run", "Run a job now."),
    "next": Lazy("hourhand.cli.job_read", "next_", "Show when a job is due next."),
    "history": Lazy("hourhand.cli.history", "history", "Show what became of every due time, and why."),
    "advice": Lazy("hourhand.cli.job_read", "advice", "Compare what a job declares with what its runs take."),
    "runs": Lazy("hourhand.cli.job_read", "runs", "List the runs of a job, newest first."),
    "logs": Lazy("hourhand.cli.job_read", "logs", "Search what the runs of a job wrote, newest run first."),
    "versions": Lazy("hourhand.cli.job_versions", "versions", "Show who changed a job, when, and what."),
    "diff": Lazy("hourhand.cli.job_versions", "diff", "Show what differs between two versions of a job."),
    "rollback": Lazy("hourhand.cli.job_versions", "rollback", "Make an earlier version of a job the newest."),
}
OTHER_WORDS = {
    "add": "create",
    "new": "create",
    "submit": "create",
    "ls": "list",
    "show": "get",
    "describe": "get",
    "edit": "update",
    "rm": "delete",
    "remove": "delete",
    "cancel": "delete",
    "trigger": "run",
    "revert": "rollback",
    "undo": "rollback",
    "ledger": "history",
    "why": "history",
    "grep": "logs",
}


@click.group(cls=LazyGroup, lazy=VERBS, other_words=OTHER_WORDS)
@session_options
def job() -> None:
    """Create jobs, see them, change them, run them.

    JOB is a job's id or its name. Where several jobs have the name, the only one that has not ended is meant.
    """
