"""The options that describe a job, and the fields of the API they become.

Only what the command line alone can know is judged here (JSON that cannot be read, times in the local zone, words
that exclude each other). Everything else is the server's to judge: it tells every fault at once.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from hourhand.cli.exits import NoInput
from hourhand.cli.script_files import ScriptFile, script_file
from hourhand.cli.times import TimeFault, parse_time
from hourhand.model.local_time import ZoneFault, format_instant

_Command = TypeVar("_Command", bound=Callable[..., Any])
_WORDS: Final = "hourhand.words"
_NONE: Final = "none"

_OPTIONS: Final = (
    click.option("--kind", metavar="KIND", help="command, script, http, python, …"),
    click.option(
        "--cron",
        multiple=True,
        metavar="EXPR",
        help="Due by a cron expression: '*/5 * * * *', '@daily', 'H 3 * * *'. Schedules may be several.",
    ),
    click.option("--every", multiple=True, metavar="LENGTH", help="Due again and again: 15m, 1h30m."),
    click.option("--anchor", metavar="TIME", help="Where --every counts from: 06:00, 2030-01-31T09:00."),
    click.option("--after-completion", is_flag=True, help="With --every: counted from the end of the run before."),
    click.option("--rrule", multiple=True, metavar="RULE", help="Due by a rule of RFC 5545: 'FREQ=MONTHLY;BYDAY=2TU'."),
    click.option("--first", metavar="TIME", help="Where --rrule begins, by the clock of --tz: 2030-01-31T09:00."),
    click.option(
        "--daily", multiple=True, metavar="TIME", help="Due each day, from a first time on: 09:00, 2030-01-31T09:00."
    ),
    click.option("--weekly", multiple=True, metavar="TIME", help="Due each week, from a first time on."),
    click.option("--monthly", multiple=True, metavar="TIME", help="Due each month, from a first time on."),
    click.option("--yearly", multiple=True, metavar="TIME", help="Due each year, from a first time on."),
    click.option("--at", multiple=True, metavar="TIME", help="Due once: RFC 3339, +10m, 06:00, 'tomorrow 06:00'."),
    click.option(
        "--tz", "--zone", "tz", metavar="ZONE", help="Zone of the schedule and of times without offset: Europe/Berlin."
    ),
    click.option("--start-at", metavar="TIME", help="Not due before."),
    click.option("--end-at", metavar="TIME", help="Not due after."),
    click.option("--dst-gap", metavar="WORD", help="fire_after or skip: a fixed time that the clock jumps over."),
    click.option("--dst-overlap", metavar="WORD", help="auto, first, last or both: a time that comes twice."),
    click.option("--max-runs", metavar="N", help="Completed after so many runs of its schedule."),
    click.option("--jitter", metavar="LENGTH", help="Spread starts over this much after the due time."),
    click.option("--calendar", "calendars", metavar="NAME", multiple=True, help="Leave out its times; none: no more."),
    click.option("--on-excluded", metavar="WORD", help="skip or next_allowed: a due time that a calendar leaves out."),
    click.option("--payload", metavar="JSON", help="What the job is given, as a JSON object."),
    click.option("--payload-file", metavar="FILE", help="The same from a file, - for stdin."),
    click.option("--handler", metavar="NAME", help="Python handler to call; makes a python job."),
    click.option("--script", metavar="FILE", help="File to run, - for stdin, or archive; arguments go after --."),
    click.option("--entry", metavar="PATH", help="With --script and an archive: the file in it to run."),
    click.option("--sign-with", metavar="KEYFILE", help="With --script: upload it, signed by this private key."),
    click.option(
        "--language", metavar="WORD", help="Of --script; else by its suffix or first line: bash, python, node."
    ),
    click.option("--url", metavar="URL", help="Address to call; makes an http job."),
    click.option("--method", metavar="WORD", help="HTTP method; GET, or POST when there is a body."),
    click.option("--body", metavar="TEXT", help="HTTP body; sent as JSON when it is a JSON object or list."),
    click.option("--queue", metavar="NAME"),
    click.option("--priority", metavar="0..9|WORD", help="low (2), medium (5), high (8) or a number."),
    click.option("--max-retries", type=click.IntRange(min=0), metavar="N", help="How often a failed run is retried."),
    click.option("--retry-on", metavar="FAILURE[,...]", multiple=True, help="Retry these only: http:5xx, 3, timeout."),
    click.option("--never-retry-on", metavar="FAILURE[,...]", multiple=True, help="Never these: exit:2, KeyError."),
    click.option("--timeout", metavar="LENGTH", help="How long one attempt may take: 90s, 2h."),
    click.option("--queue-timeout", metavar="LENGTH", help="How long a run may wait for its start."),
    click.option("--deadline", metavar="LENGTH", help="How long after its due time a run may last, retries included."),
    click.option("--catchup", metavar="WORD", help="last, all or none: what runs of due times that were missed."),
    click.option("--catchup-window", metavar="LENGTH", help="Older ones are never run: 1h, 0s."),
    click.option("--catchup-max-runs", type=click.IntRange(min=1), metavar="N", help="With --catchup all, at most."),
    click.option("--overlap", metavar="WORD", help="skip, queue_one, queue_all, cancel_running or allow."),
    click.option("--overlap-max", metavar="N", help="How many may wait with queue_all."),
    click.option(
        "--on-next-due", metavar="WORD", help="wait or supersede: a run between two tries when the next is due."
    ),
    click.option("--max-concurrency", metavar="N", help="Runs of the job at once."),
    click.option("--concurrency-key", metavar="KEY", help="Shared limit: 'customer-{id}' takes id of the payload."),
    click.option("--concurrency-limit", metavar="N", help="Runs of the key at once."),
    click.option("--rate-limit", metavar="N/LENGTH", help="Starts of the job at most: 100/m, 5/s, 10/30s."),
    click.option("--at-most-once/--no-at-most-once", default=None, help="Rather not run than run twice."),
    click.option("--on-disconnect", metavar="WORD", help="continue or kill: when its executor loses the database."),
    click.option("--pause-after-failures", metavar="N", help="So many failed runs in a row pause the job."),
    click.option("--on", "on_labels", metavar="LABEL", multiple=True, help="Only on executors with it: gpu, zone=eu."),
    click.option("--executors", metavar="any|all|N", help="On any executor, on all that fit, or on so many."),
    click.option("--cpu", metavar="CORES", help="Cores that an attempt takes: 0.5, 2."),
    click.option("--memory", metavar="SIZE", help="Memory that an attempt takes: 512MB, 2GB, 1GiB."),
    click.option("--pids", metavar="N", help="Processes and threads of an attempt at most."),
    click.option("--disk", metavar="SIZE", help="Disk that an attempt takes at most: 500MB, 2GB."),
    click.option("--slots", metavar="N", help="Places that an attempt takes; 1 by default."),
    click.option("--resource", "things", metavar="NAME=N", multiple=True, help="Counted things it takes: gpu=1."),
    click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="May be repeated."),
    click.option("--description", metavar="TEXT"),
    click.option("--owner", metavar="NAME"),
)


_AS_THEY_ARE: Final = ("queue", "max_retries", "description", "owner", "at_most_once", "dst_gap", "dst_overlap")
_MAY_BE_NONE: Final = (
    "timeout", "queue_timeout", "deadline", "overlap", "on_next_due", "concurrency_key", "rate_limit", "on_disconnect",
    "jitter", "on_excluded",
)  # fmt: skip
"""Options that take the word "none": the job then has no such thing."""
_NUMBERS_OR_NONE: Final = (
    "overlap_max", "max_concurrency", "concurrency_limit", "max_runs", "pause_after_failures",
)  # fmt: skip
_KINDS: Final = ("cron", "every", "at", "rrule", "daily", "weekly", "monthly", "yearly")


def field_options(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class CommandWithWords(click.Command):
    """Takes everything after `--` as the words of a command, whatever it looks like."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- WORD...]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[_WORDS] = args[cut + 1 :]
            args = args[:cut]
            if not ctx.meta[_WORDS]:
                raise click.UsageError("no command follows after --", ctx)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            advice = "the words of a command go after --, a name with spaces needs quotes"
            raise click.UsageError(f"{error.message.removesuffix('.')}; {advice}", ctx) from None


def words_after_dashes(ctx: click.Context) -> list[str] | None:
    words: list[str] | None = ctx.meta.get(_WORDS)
    return words


def fields_of(ctx: click.Context, given: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The fields that the options given stand for. What was not given is not in it."""
    fields: dict[str, Any] = {
        "kind": given["kind"],
        "zone": given["tz"],
        "schedule": _schedule(ctx, given, now),
        "payload": _payload(ctx, given),
        "priority": _priority(given["priority"]),
        "labels": parse_labels(given["labels"]) or None,
        "placement": _placement(given),
        "resources": _resources(given) or None,
        "retry": _retry(given) or None,
        "catchup": _catchup(given) or None,
        **{name: given[name] for name in _AS_THEY_ARE},
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    for name in ("start_at", "end_at"):
        if given[name] is not None:
            fields[name] = None if given[name] == _NONE else _time(ctx, name, given[name], now, given["tz"])
    for name in _MAY_BE_NONE:
        if given[name] is not None:
            fields[name] = None if given[name] == _NONE else given[name]
    if given["calendars"]:
        fields["calendars"] = None if given["calendars"] == (_NONE,) else list(given["calendars"])
    for name in _NUMBERS_OR_NONE:
        if given[name] is not None:
            fields[name] = whole_number(given[name], f"--{name.replace('_', '-')}")
    return fields


def whole_number(text: str, option: str) -> int | None:
    """The value of a limit; "none" takes it away."""
    if text == _NONE:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise click.BadParameter(f"{text!r} is neither a whole number nor none", param_hint=option)
    return int(text)


class Pieces(NamedTuple):
    """Parts of a payload that have options of their own, and the kind of job that has such parts."""

    kind: str | None
    values: dict[str, Any]
    script: ScriptFile | None = None
    """Of a script: it may have to be uploaded first."""


def payload_pieces(ctx: click.Context, given: Mapping[str, Any], words: Sequence[str] | None) -> Pieces:
    http = {name: given[name] for name in ("url", "method", "body") if given[name] is not None}
    for option in ("language", "entry", "sign_with"):
        if given[option] and given["script"] is None:
            raise click.UsageError(f"--{option.replace('_', '-')} goes with --script", ctx)
    script = None if given["script"] is None else script_file(ctx, given, words)
    found = {
        "command": {"argv": list(words)} if words and script is None else {},
        "script": {} if script is None else script.values,
        "http": _http(http),
        "python": {"handler": given["handler"]} if given["handler"] is not None else {},
    }
    kinds = [kind for kind, values in found.items() if values]
    if len(kinds) > 1 or (kinds and given["kind"] not in (None, kinds[0])):
        wanted = [given["kind"]] if given["kind"] else []
        both = " and ".join(dict.fromkeys([*wanted, *kinds]))
        raise click.UsageError(f"a job is of one kind; these options make it {both}", ctx)
    return Pieces(kinds[0], found[kinds[0]], script) if kinds else Pieces(None, {})


def parse_labels(pairs: Sequence[str]) -> dict[str, str]:
    labels = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{pair!r} has no '='; write KEY=VALUE", param_hint="--label")
        labels[key] = value
    return labels


def parse_object(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise click.BadParameter(f"this is not JSON: {error.msg} at {place}", param_hint=where) from None
    except RecursionError:
        raise click.BadParameter("this JSON is nested too deeply", param_hint=where) from None
    if not isinstance(value, dict):
        raise click.BadParameter("a JSON object is needed: {...}", param_hint=where)
    return value


def read_fields(path: str) -> dict[str, Any]:
    return parse_object(read_text(path), "--from-file")


def read_text(path: str) -> str:
    """The text of a file, of stdin for "-". Raises NoInput when there is none."""
    name = "stdin" if path == "-" else path
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise NoInput(f"{name} cannot be read ({(error.strerror or str(error)).lower()})") from None
    except UnicodeDecodeError as error:
        raise NoInput(f"{name} is not UTF-8 text (byte {error.start})") from None
    if not text.strip():
        raise NoInput(f"{name} is empty")
    return text


def _http(given: dict[str, Any]) -> dict[str, Any]:
    if "body" in given:
        given["body"] = _body(given["body"])
        given.setdefault("method", "POST")
    if "method" in given:
        given["method"] = given["method"].upper()
    return given


def _body(text: str) -> Any:
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _schedule(ctx: click.Context, given: Mapping[str, Any], now: datetime) -> Any:
    """One schedule, or a list of several: the job falls due on all of them."""
    found: list[dict[str, Any]] = [
        {kind: _time(ctx, "at", value, now, given["tz"]) if kind == "at" else value}
        for kind in _KINDS
        for value in given[kind]
    ]
    if given["after_completion"]:
        if [*map(list, found)] != [["every"]]:
            raise click.UsageError("--after-completion goes with one --every and nothing else", ctx)
        found[0]["after"] = "completion"
    if given["anchor"] is not None:
        if len(given["every"]) != 1:
            raise click.UsageError("--anchor goes with one --every", ctx)
        anchor = _time(ctx, "anchor", given["anchor"], now, given["tz"])
        next(schedule for schedule in found if "every" in schedule)["anchor"] = anchor
    if given["first"] is not None:
        if len(given["rrule"]) != 1:
            raise click.UsageError("--first goes with one --rrule", ctx)
        next(schedule for schedule in found if "rrule" in schedule)["first"] = given["first"]
    return found[0] if len(found) == 1 else found or None


def _time(ctx: click.Context, name: str, text: str, now: datetime, zone: str | None) -> str:
    try:
        return format_instant(parse_time(text, now, zone))
    except ZoneFault as fault:
        raise click.BadParameter(str(fault), ctx, param_hint="--tz") from None
    except TimeFault as fault:
        raise click.BadParameter(str(fault), ctx, param_hint=f"--{name.replace('_', '-')}") from None


def _payload(ctx: click.Context, given: Mapping[str, Any]) -> dict[str, Any] | None:
    if given["payload"] is not None and given["payload_file"] is not None:
        raise click.UsageError("only one of --payload, --payload-file can be given", ctx)
    if given["payload"] is not None:
        return parse_object(given["payload"], "--payload")
    if given["payload_file"] is not None:
        return parse_object(read_text(given["payload_file"]), "--payload-file")
    return None


def _retry(given: Mapping[str, Any]) -> dict[str, list[int | str]]:
    chosen = {"on": _failures(given["retry_on"]), "never_on": _failures(given["never_retry_on"])}
    return {name: failures for name, failures in chosen.items() if failures}


def _placement(given: Mapping[str, Any]) -> dict[str, Any] | None:
    said: dict[str, Any] = {}
    if given["on_labels"]:
        said["labels"] = None if given["on_labels"] == (_NONE,) else list(given["on_labels"])
    if given["executors"] is not None:
        said["on"] = int(given["executors"]) if given["executors"].isdecimal() else given["executors"]
    return said or None


def _resources(given: Mapping[str, Any]) -> dict[str, Any]:
    """ "none" takes one away; everything else is the server's to judge."""
    said = {name: given[name] for name in ("cpu", "memory", "pids", "disk", "slots") if given[name] is not None}
    for pair in given["things"]:
        name, equals, amount = pair.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{pair!r} has no '='; write NAME=N", param_hint="--resource")
        said[name] = amount
    sizes = ("memory", "disk")
    return {name: None if text == _NONE else text if name in sizes else _amount(text) for name, text in said.items()}


def _amount(text: str) -> int | float | str:
    try:
        return int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            return text
        return number if math.isfinite(number) else text


def _catchup(given: Mapping[str, Any]) -> dict[str, Any]:
    said = {"mode": given["catchup"], "window": given["catchup_window"], "max_runs": given["catchup_max_runs"]}
    return {name: value for name, value in said.items() if value is not None}


def _failures(given: Sequence[str]) -> list[int | str]:
    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    return [int(word) if word.isdecimal() else word for word in words]


def _priority(text: str | None) -> int | str | None:
    if text is None:
        return None
    return int(text) if text.lstrip("-").isdecimal() else text
