"""`hourhand job create` and `hourhand job update`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from hourhand.cli.job_change import show_change
from hourhand.cli.job_fields import (
    CommandWithWords,
    field_options,
    fields_of,
    payload_pieces,
    read_fields,
    words_after_dashes,
)
from hourhand.cli.naming import find_job
from hourhand.cli.printing import say, show
from hourhand.cli.script_files import uploaded
from hourhand.cli.session import connected, session_options
from hourhand.cli.times import local_time
from hourhand.cli.watching import check_wait_options, wait_options, watch_run

if TYPE_CHECKING:
    from hourhand.client import Client, JobView
    from hourhand.client.views import CreatedJobView

_CODE = {"source", "language", "artifact", "entry", "argv", "args"}
_PARTS = {"retry", "catchup", "placement", "resources"}
"""Fields of which options change one part."""


@click.command(cls=CommandWithWords)
@click.argument("name", required=False)
@field_options
@click.option("--from-file", metavar="FILE", help="Fields as a JSON object, - for stdin; options win over them.")
@click.option("--unique-key", metavar="KEY", help="Only if no live job has this key.")
@click.option("--unique-period", metavar="LENGTH", help="With --unique-key: one per hour, day, ... instead: 1h, 1d.")
@click.option("--idempotency-key", metavar="KEY", help="Repeating the command with the same KEY makes no second job.")
@wait_options
@session_options
@click.pass_context
def create(
    ctx: click.Context,
    /,
    name: str | None,
    from_file: str | None,
    idempotency_key: str | None,
    wait: bool,
    follow: bool,
    **given: Any,
) -> None:
    """Create a job. It runs at once unless --cron, --every, --at, --rrule, --daily, … says otherwise.

    \b
    hourhand job create hello -- echo "good morning"
    hourhand job create backup --cron "0 3 * * *" --tz Europe/Berlin -- /usr/bin/backup --all
    hourhand job create tidy --daily 04:30 --script tidy.py -- --older-than 30
    hourhand job create ping --every 5m --url https://example.com/health
    hourhand job create report --at "tomorrow 06:00" --handler reports.build --payload '{"days": 7}'

    Prints the id of the job, or with --wait the result of its run.
    """
    check_wait_options(wait, follow)
    fields = read_fields(from_file) if from_file else {}
    own = fields_of(ctx, given, datetime.now(UTC))
    pieces = payload_pieces(ctx, given, words_after_dashes(ctx))
    for part in _PARTS & own.keys():
        own[part] = {**(fields.get(part) or {}), **own[part]}
    fields |= own
    if pieces.kind:
        fields["kind"] = pieces.kind
    fields |= {each: given[each] for each in ("unique_key", "unique_period") if given[each] is not None}
    if name is not None:
        fields["name"] = name
    if "name" not in fields:
        raise click.UsageError("a NAME for the job is missing", ctx)
    with connected() as client:
        values = uploaded(client, pieces.script) if pieces.script is not None else pieces.values
        if values:
            fields["payload"] = {**(fields.get("payload") or {}), **values}
        job = client.create_job(**({} if idempotency_key is None else {"idempotency_key": idempotency_key}), **fields)
        say(f"job {job.name!r} {'was there already' if job.replayed else 'is created'}{_due_words(job)}")
        for warning in job.warnings:
            say(f"warning: {warning}")
        if wait:
            _watch_first_run(client, job, follow)
        else:
            show(job, lambda: click.echo(str(job.job_id)))


@click.command(cls=CommandWithWords)
@click.argument("job")
@click.option("--name", metavar="NAME", help="A new name.")
@field_options
@click.option("--from-file", metavar="FILE", help="Fields as a JSON object, - for stdin; options win over them.")
@click.option("--if-version", type=click.IntRange(min=1), help="Only if the job still has this version.")
@session_options
@click.pass_context
def update(
    ctx: click.Context, /, job: str, name: str | None, from_file: str | None, if_version: int | None, **given: Any
) -> None:
    """Change a job; only what is given changes. Times, lengths and limits take "none".

    Labels are added to those the job has; of retries and of the catch-up, what is not said stays as it is. Parts of a
    payload (--url, --handler, words after --) are changed within it; --payload replaces it.
    """
    fields = read_fields(from_file) if from_file else {}
    pieces = payload_pieces(ctx, given, words_after_dashes(ctx))
    own = fields_of(ctx, given, datetime.now(UTC))
    parts = {part: own.pop(part) for part in _PARTS & own.keys()}
    fields |= own
    if name is not None:
        fields["name"] = name
    if not fields and not pieces.values and not parts:
        raise click.UsageError("nothing to change is given", ctx)
    with connected() as client:
        job_id = find_job(client, job)
        if pieces.values or "labels" in fields or parts:
            current = client.get_job(job_id)
            values = uploaded(client, pieces.script) if pieces.script is not None else pieces.values
            _merge(fields, pieces.kind, values, current)
            for part, said in parts.items():
                fields[part] = {**(fields.get(part, getattr(current, part)) or {}), **said}
            # What was merged is only right for the version it was merged with.
            if_version = if_version or current.version
        show_change(client.update_job(job_id, if_version=if_version, **fields), "is changed")


def _merge(fields: dict[str, Any], kind: str | None, values: dict[str, Any], current: "JobView") -> None:
    if "labels" in fields:
        fields["labels"] = {**current.labels, **fields["labels"]}
    if not values:
        return
    if kind and kind != current.kind:
        fields["kind"] = kind
        fields["payload"] = {**fields.get("payload", {}), **values}
    else:
        kept = fields.get("payload", current.payload)
        if kind == "script":  # another way to say what is run takes the place of the old one
            kept = {name: value for name, value in kept.items() if name not in _CODE}
        fields["payload"] = {**kept, **values}


def _watch_first_run(client: "Client", job: "JobView", follow: bool) -> None:
    try:
        run = client.wait_for_start(job.job_id)
    except KeyboardInterrupt:
        say(f"the job stays; take it back with: hourhand job delete {job.job_id}")
        raise
    say(f"run {run.run_id} is {run.status}")
    watch_run(client, run.run_id, follow)


def _due_words(job: "CreatedJobView") -> str:
    if job.next_due is None:
        return ""
    local = any(set(schedule).isdisjoint(("now", "at", "every")) for schedule in job.schedule)
    zone = f" (zone of the schedule: {job.zone})" if local else ""
    return f"; {'next' if job.replayed else 'first'} due {local_time(job.next_due)}{zone}"
