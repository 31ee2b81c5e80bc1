"""From what a caller wrote to a definition that can be stored: every fault found, or none.

Pure but for its arguments: the time, the id and the known kinds are handed in.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.durations import DurationFault, format_duration, parse_duration
from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.job import (
    CATCHUP_DEFAULT,
    KIND_DEFAULT,
    LABELS_MAX,
    NAME_CHARS_MAX,
    PAYLOAD_BYTES_MAX,
    PRIORITIES,
    PRIORITY_DEFAULT,
    PRIORITY_WORDS,
    QUEUE_DEFAULT,
    JobDefinition,
)
from hourhand.model.local_time import DstOverlap, Gap, InstantFault, format_instant
from hourhand.model.policy import Overlap, Policy
from hourhand.model.retry import (
    DEFAULT_RETRY,
    ENTRIES_MAX,
    RETRIES_MAX,
    EntryFault,
    RetryPolicy,
    means_success,
    read_entry,
)
from hourhand.model.schedule import At, Now, RRuleSchedule, Schedule, Timing, describe, parse_instant
from hourhand.model.schedule_form import TAKEN_AWAY, parse_timing, seed_of
from hourhand.model.secret_refs import SECRET_MARK, SECRETS_MAX, secret_names
from hourhand.model.templates import MARK, render, template_faults
from hourhand.operations.policy import define_policy, policy_fields
from hourhand.operations.requests import CatchUpRequest, JobPatch, JobRequest, RetryRequest
from hourhand.operations.unique_keys import check_unique_key
from hourhand.ports.job_kind import JobKind

Refuse = Callable[[Fault], None]

_SPREADING_FIELDS: Final = ("max_runs", "jitter", "calendars", "on_excluded")
_TIMING_FIELDS: Final = ("schedule", "zone", "start_at", "end_at", "dst_gap", "dst_overlap", *_SPREADING_FIELDS)

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}")
_LABEL_CHARS_MAX: Final = 256
_TEXT_CHARS_MAX: Final = 4096
_TIMEOUT_MAX: Final = timedelta(days=7)
_PLAIN_MAX: Final = timedelta(days=3660)
# Control characters, and those that turn the direction of text: a name made with them reads as another.
_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u2069\ufeff]")
_encode = msgspec.json.Encoder().encode
_MARK: Final = MARK.encode()
_NULL: Final = b"\\u0000"
_SAMPLE_TIME: Final = datetime(2030, 1, 31, 9, tzinfo=UTC)
_BASICS: Final = JobRequest.__struct_fields__.index("priority") + 1
_NOTHING_MORE: Final = astuple(JobRequest(name=""))[_BASICS:]
"""What a request has beyond the basics when it says nothing there: compared at once, where looking at field by field
takes longer than all else that is done with a plain job."""


def define_job(
    request: JobRequest, job_id: UUID, now: datetime, caller: str, kinds: Mapping[str, JobKind]
) -> JobDefinition:
    """The definition, or InvalidFields with everything that is wrong with it."""
    faults: list[Fault] = []
    refuse = faults.append
    name = request.name
    if len(name) > NAME_CHARS_MAX or not is_name(name):
        refuse(Fault("/name", "invalid-name", f"a name has 1 to {NAME_CHARS_MAX} visible characters"))
    payload = request.payload if request.payload is not None else {}
    kind = KIND_DEFAULT if request.kind is None else request.kind
    needs, templated, secrets = _check_payload(kind, payload, name, kinds, refuse)
    says_more = astuple(request)[_BASICS:] != _NOTHING_MORE
    timing = _timing(request, job_id, now, faults, says_more)
    queue = QUEUE_DEFAULT if request.queue is None else _queue(request.queue, refuse)
    priority = PRIORITY_DEFAULT if request.priority is None else read_priority(request.priority, "/priority", refuse)
    if not faults and not says_more and not templated and not secrets:
        return JobDefinition(name, kind, payload, timing, needs, queue, priority, owner=caller)
    definition = JobDefinition(
        name=name,
        kind=kind,
        payload=payload,
        timing=timing,
        needs=needs,
        queue=queue,
        priority=priority,
        retry=_retry(_retries(request), request.retry, payload, refuse),
        catchup=_catchup(request.catchup, refuse),
        timeout_seconds=_timeout(request.timeout, refuse),
        policy=_with_secrets(define_policy(request, payload, refuse), secrets),
        labels=_labels(request.labels, refuse),
        description=_text(request.description, "/description", refuse),
        owner=_text(request.owner, "/owner", refuse) or caller,
    )
    if request.unique_key is not None or request.unique_period is not None:
        check_unique_key(request, refuse)
    if faults:
        raise InvalidFields(faults)
    return _in_its_zone(definition) if templated else definition


def define_change(
    old: JobDefinition, patch: JobPatch, job_id: UUID, now: datetime, kinds: Mapping[str, JobKind]
) -> JobDefinition:
    """The definition after a change. Of the timing, what the patch does not touch stays as it is."""
    if patch.schedule is None:  # which in a new job means now: hardly what is meant by taking it away
        patch = msgspec.structs.replace(patch, schedule=TAKEN_AWAY)
    definition = define_job(change_request(old, patch), job_id, now, old.owner, kinds)
    if not changes_timing(patch):
        return _in_its_zone(msgspec.structs.replace(definition, timing=old.timing))
    if patch.schedule is not UNSET:
        return definition
    pairs = zip(old.timing.schedules, definition.timing.schedules, strict=True)
    if patch.start_at is not UNSET:  # intervals are counted from it; what has passed stays where it was
        schedules = tuple(had if _has_passed(had, now) else read for had, read in pairs)
    else:  # where rules end depends on the zone and the DST choices
        schedules = tuple(read if isinstance(had, RRuleSchedule) else had for had, read in pairs)
    timing = msgspec.structs.replace(definition.timing, schedules=schedules)
    return _in_its_zone(msgspec.structs.replace(definition, timing=timing))


def _has_passed(schedule: Schedule, now: datetime) -> bool:
    return isinstance(schedule, At | Now) and schedule.instant <= now


def words_of(old: JobDefinition) -> dict[str, Any]:
    """The definition in the caller's words, field by field."""
    return {
        "name": old.name,
        "kind": old.kind,
        "payload": dict(old.payload),
        "schedule": [{**each, "if_past": "run"} if "at" in each else each for each in describe(old.timing)],
        "zone": old.timing.zone,
        "start_at": old.timing.start_at and format_instant(old.timing.start_at),
        "end_at": old.timing.end_at and format_instant(old.timing.end_at),
        "dst_gap": old.timing.gap.value,
        "dst_overlap": old.timing.overlap.value,
        **spreading_fields(old.timing),
        "queue": old.queue,
        "priority": old.priority,
        "max_retries": old.retry.max_retries,
        "retry": retry_request(old.retry),
        "catchup": catchup_request(old.catchup),
        "timeout": format_duration(timedelta(seconds=old.timeout_seconds)) if old.timeout_seconds else None,
        **policy_fields(old.policy),
        "labels": dict(old.labels),
        "description": old.description,
        "owner": old.owner,
    }


def change_request(old: JobDefinition, patch: JobPatch) -> JobRequest:
    """The old definition as a request, with the fields of the patch in their places."""
    current = words_of(old)
    if not changes_timing(patch):
        # Kept as it is, not read again: an `at` that has passed would be refused now, an interval anchored anew.
        current |= dict.fromkeys(_TIMING_FIELDS)
    if patch.at_most_once is True:
        # Whatever they were before: only what the patch itself says can contradict.
        current |= {"max_retries": None, "retry": retry_request(replace(old.retry, on=()))}
    if patch.concurrency_key is None:
        current["concurrency_limit"] = None  # it goes with its key
    if patch.overlap is not UNSET and patch.overlap != Overlap.QUEUE_ALL:
        current["overlap_max"] = None  # it goes with queue_all
    changes = {field: getattr(patch, field) for field in patch.__struct_fields__}
    return JobRequest(**current | {field: value for field, value in changes.items() if value is not UNSET})


def changes_timing(patch: JobPatch) -> bool:
    return any(getattr(patch, field) is not UNSET for field in _TIMING_FIELDS)


def changes_work(patch: JobPatch) -> bool:
    """Whether it may refer to other secrets afterwards, or be one that may not use them."""
    return any(getattr(patch, field) is not UNSET for field in ("payload", "kind", "name", "labels"))


def spreading_fields(timing: Timing) -> dict[str, Any]:
    """What a timing says beyond when it falls due, in the caller's words."""
    return {
        "max_runs": timing.max_runs,
        "jitter": None if timing.jitter is None else format_duration(timing.jitter),
        "calendars": list(timing.calendars) or None,
        "on_excluded": timing.on_excluded.value if timing.calendars else None,
    }


def retry_request(policy: RetryPolicy) -> RetryRequest:
    """A policy in the caller's words."""
    choice: dict[str, Any] = {"on": list(policy.on) or None, "never_on": list(policy.never_on) or None}
    if policy.delays_seconds is not None:
        delays = [format_duration(timedelta(seconds=delay)) for delay in policy.delays_seconds]
        return RetryRequest(delays=delays, **choice)
    return RetryRequest(
        base=format_duration(timedelta(seconds=policy.base_seconds)),
        factor=policy.factor,
        max=format_duration(timedelta(seconds=policy.max_seconds)),
        jitter=policy.jitter,
        **choice,
    )


def catchup_request(policy: CatchUpPolicy) -> CatchUpRequest:
    window = format_duration(policy.window) if policy.window else "0s"
    return CatchUpRequest(mode=policy.mode.value, window=window, max_runs=policy.runs_max)


def read_priority(given: int | str, pointer: str, refuse: Refuse) -> int:
    if isinstance(given, str) and given in PRIORITY_WORDS:
        return PRIORITY_WORDS[given]
    if isinstance(given, int) and given in PRIORITIES:
        return given
    allowed = ["0 to 9", *PRIORITY_WORDS]
    refuse(Fault(pointer, "invalid-priority", "a priority is 0 (lowest) to 9 (highest), or a word", allowed=allowed))
    return PRIORITY_DEFAULT


def has_null(text: bytes) -> bool:
    """Whether JSON text holds the character NUL, which PostgreSQL cannot store. An escaped backslash before is none."""
    place = text.find(_NULL)
    while place >= 0:
        slashes = place - len(text[:place].rstrip(b"\\"))
        if slashes % 2 == 0:
            return True
        place = text.find(_NULL, place + 1)
    return False


# --- single fields ----------------------------------------------------------------------------------------


def _check_payload(
    kind_name: str, payload: Mapping[str, Any], job_name: str, kinds: Mapping[str, JobKind], refuse: Refuse
) -> tuple[str, bool, tuple[str, ...]]:
    """What an executor must offer, whether the payload names the time of its run, and the secrets it refers to."""
    kind = kinds.get(kind_name)
    if kind is None:
        close = difflib.get_close_matches(kind_name, kinds, n=1)
        hint = f"did you mean {close[0]!r}?" if close else None
        refuse(Fault("/kind", "unknown-kind", f"there is no kind {kind_name!r}", hint, sorted(kinds)))
        return kind_name, False, ()
    encoded = _encode(payload)
    if len(encoded) > PAYLOAD_BYTES_MAX:
        message = f"the payload has {len(encoded)} bytes; at most {PAYLOAD_BYTES_MAX} are allowed"
        refuse(Fault("/payload", "payload-too-large", message, "keep large data elsewhere and pass a reference"))
        return kind_name, False, ()
    if has_null(encoded):
        refuse(Fault("/payload", "invalid-unicode", "the character NUL cannot be stored"))
        return kind_name, False, ()
    templated = _MARK in encoded
    for fault in faults_with_template(payload, kind) if templated else kind.check(payload):
        refuse(replace(fault.under("/payload"), beside="/kind"))
    secrets = secret_names(kind_name, payload) if SECRET_MARK in encoded else ()
    if len(secrets) > SECRETS_MAX:
        refuse(Fault("/payload", "too-many-entries", f"a job refers to at most {SECRETS_MAX} secrets"))
    return kind.needs(payload, job_name), templated, secrets


def _with_secrets(policy: Policy, names: tuple[str, ...]) -> Policy:
    return msgspec.structs.replace(policy, secrets=names) if names else policy


def faults_with_template(payload: Mapping[str, Any], kind: JobKind) -> list[Fault]:
    """What is wrong with a payload that may name the time of its run; the kind judges it as a run might have it."""
    return [*template_faults(payload), *kind.check(render(payload, _SAMPLE_TIME, None))]


def _in_its_zone(definition: JobDefinition) -> JobDefinition:
    """With the zone in which the payload's words are meant, if it has any."""
    zone = definition.timing.zone if _MARK in _encode(definition.payload) else None
    if zone == definition.policy.template_zone:
        return definition
    policy = msgspec.structs.replace(definition.policy, template_zone=zone)
    return msgspec.structs.replace(definition, policy=policy)


def _timing(request: JobRequest, job_id: UUID, now: datetime, faults: list[Fault], says_more: bool) -> Timing:
    plain = not says_more or all(getattr(request, field) is None for field in _TIMING_FIELDS[1:])
    if plain and request.schedule is None:  # the shortest road for what is submitted most
        return immediately(now)
    if plain:
        instant = plain_instant(request.schedule, now)
        if instant is not None:
            return Timing((At(instant),))
    try:
        return parse_timing(
            request.schedule,
            request.zone,
            request.start_at,
            request.end_at,
            request.dst_gap,
            request.dst_overlap,
            **{field: getattr(request, field) for field in _SPREADING_FIELDS},
            now=now,
            seed=seed_of(job_id),
        )
    except InvalidFields as wrong:
        faults += wrong.faults
        return Timing((Now(now),), gap=Gap.FIRE_AFTER, overlap=DstOverlap.AUTO)


def plain_instant(schedule: Any, now: datetime) -> datetime | None:
    """The instant of {"at": "…"} when it is beyond doubt; everything else is read, and refused, by parse_timing."""
    if type(schedule) is not dict or len(schedule) != 1:
        return None
    text = schedule.get("at")
    if type(text) is not str:
        return None
    try:
        instant = parse_instant(text)
    except InstantFault:
        return None
    return instant if now <= instant <= now + _PLAIN_MAX else None


def plain_payload(payload: Mapping[str, Any]) -> bytes | None:
    """The payload as JSON; None where there is more to it, or against it, than its kind can say."""
    encoded = _encode(payload)
    if len(encoded) > PAYLOAD_BYTES_MAX or _MARK in encoded or SECRET_MARK in encoded:
        return None
    return None if _NULL in encoded and has_null(encoded) else encoded


@lru_cache(maxsize=8)
def immediately(now: datetime) -> Timing:
    """Shared by all jobs of a batch."""
    return Timing((Now(now),))


@lru_cache(maxsize=4096)  # most programs use few
def is_name(name: str) -> bool:
    return bool(name.strip()) and not _UNSEEN.search(name)


def is_queue(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _queue(given: str, refuse: Refuse) -> str:
    if not is_queue(given):
        refuse(
            Fault("/queue", "invalid-queue", "a queue's name has 1 to 63 letters, digits, dots, dashes or underscores")
        )
    return given


def _retries(request: JobRequest) -> int | None:
    """A job that runs at most once is not retried unless it says otherwise, which is refused elsewhere."""
    return 0 if request.at_most_once and request.max_retries is None else request.max_retries


def _retry(
    max_retries: int | None, given: RetryRequest | None, payload: Mapping[str, Any], refuse: Refuse
) -> RetryPolicy:
    if max_retries is None and given is None:
        return DEFAULT_RETRY
    retries = DEFAULT_RETRY.max_retries if max_retries is None else max_retries
    if not 0 <= retries <= RETRIES_MAX:
        refuse(Fault("/max_retries", "max-retries-out-of-range", f"max_retries is 0 to {RETRIES_MAX}"))
        retries = 0
    if given is None:
        return RetryPolicy(retries)
    on = _entries(given.on, "/retry/on", payload, refuse)
    never_on = _entries(given.never_on, "/retry/never_on", payload, refuse)
    curve = _retry_curve(retries, given, refuse)  # looked at beside delays too: every fault is told
    policy = curve if given.delays is None else _retry_delays(retries, given, refuse)
    return replace(policy, on=on, never_on=never_on)


def _retry_curve(retries: int, given: RetryRequest, refuse: Refuse) -> RetryPolicy:
    base = _seconds(given.base, "/retry/base", DEFAULT_RETRY.base_seconds, refuse)
    ceiling = _seconds(given.max, "/retry/max", max(DEFAULT_RETRY.max_seconds, base), refuse)
    factor = DEFAULT_RETRY.factor if given.factor is None else given.factor
    jitter = DEFAULT_RETRY.jitter if given.jitter is None else given.jitter
    if not 1 <= factor <= 100:
        refuse(Fault("/retry/factor", "invalid-backoff", "factor is 1 to 100"))
    if not 0 <= jitter <= 1:
        refuse(Fault("/retry/jitter", "invalid-backoff", "jitter is 0 to 1, a share of the delay"))
    if ceiling < base:
        refuse(Fault("/retry/max", "invalid-backoff", "max is shorter than base"))
    return RetryPolicy(retries, base, factor, ceiling, jitter)


def _retry_delays(retries: int, given: RetryRequest, refuse: Refuse) -> RetryPolicy:
    if any(value is not None for value in (given.base, given.factor, given.max, given.jitter)):
        refuse(Fault("/retry", "invalid-backoff", "give either delays, or base, factor, max and jitter"))
    delays = given.delays or []
    if not 1 <= len(delays) <= 100:
        refuse(Fault("/retry/delays", "invalid-backoff", "delays is a list of 1 to 100 durations"))
    seconds = [_seconds(text, f"/retry/delays/{place}", 1.0, refuse) for place, text in enumerate(delays)]
    return RetryPolicy(retries, delays_seconds=tuple(seconds))


def _entries(
    given: Sequence[int | str] | None, pointer: str, payload: Mapping[str, Any], refuse: Refuse
) -> tuple[str, ...]:
    if given is None:
        return ()
    if not 1 <= len(given) <= ENTRIES_MAX:
        refuse(Fault(pointer, "invalid-retry-entry", f"a list of 1 to {ENTRIES_MAX} failures; leave it out for none"))
    entries: dict[str, None] = {}
    for place, entry in enumerate(given[:ENTRIES_MAX]):
        try:
            read = read_entry(entry)
        except EntryFault as fault:
            refuse(Fault(f"{pointer}/{place}", "invalid-retry-entry", str(fault)))
            continue
        if means_success(read, payload):
            message = f"{read} is a success, and those are never tried again"
            refuse(Fault(f"{pointer}/{place}", "invalid-retry-entry", message, beside="/payload"))
        entries[read] = None
    return tuple(entries)


def _catchup(given: CatchUpRequest | None, refuse: Refuse) -> CatchUpPolicy:
    if given is None:
        return CATCHUP_DEFAULT
    default = CATCHUP_DEFAULT
    mode = default.mode
    if given.mode is not None:
        if given.mode in list(CatchUp):
            mode = CatchUp(given.mode)
        else:
            refuse(Fault("/catchup/mode", "unknown-value", f"there is no mode {given.mode!r}", allowed=list(CatchUp)))
    window = default.window
    if given.window is not None:
        zero = given.window.strip() in ("0", "0s")
        window = timedelta(0) if zero else timedelta(seconds=_seconds(given.window, "/catchup/window", 3600, refuse))
    runs_max = default.runs_max if given.max_runs is None else given.max_runs
    if not 1 <= runs_max <= 1000:
        refuse(Fault("/catchup/max_runs", "out-of-range", "max_runs is 1 to 1000"))
    return CatchUpPolicy(mode, window, runs_max)


def _timeout(given: str | None, refuse: Refuse) -> float | None:
    if given is None:
        return None
    seconds = _seconds(given, "/timeout", 1.0, refuse)
    if seconds > _TIMEOUT_MAX.total_seconds():
        refuse(Fault("/timeout", "timeout-out-of-range", f"a timeout is at most {format_duration(_TIMEOUT_MAX)}"))
    return seconds


def _seconds(given: str | None, pointer: str, default: float, refuse: Refuse) -> float:
    if given is None:
        return default
    try:
        return parse_duration(given).total_seconds()
    except DurationFault as fault:
        refuse(Fault(pointer, "invalid-duration", str(fault)))
        return default


def _labels(given: Mapping[str, str] | None, refuse: Refuse) -> Mapping[str, str]:
    if not given:
        return {}
    if len(given) > LABELS_MAX:
        refuse(Fault("/labels", "invalid-labels", f"at most {LABELS_MAX} labels are allowed"))
    for key, value in given.items():
        pointer = "/labels/" + key.replace("~", "~0").replace("/", "~1")
        if not _NAME.fullmatch(key):
            refuse(
                Fault(
                    pointer, "invalid-labels", "a label's name has 1 to 63 letters, digits, dots, dashes, underscores"
                )
            )
        if len(value) > _LABEL_CHARS_MAX or _UNSEEN.search(value):
            refuse(
                Fault(pointer, "invalid-labels", f"a label's value has at most {_LABEL_CHARS_MAX} visible characters")
            )
    return given


def _text(given: str | None, pointer: str, refuse: Refuse) -> str:
    if given is None:
        return ""
    if len(given) > _TEXT_CHARS_MAX or "\x00" in given:
        refuse(Fault(pointer, "invalid-text", f"at most {_TEXT_CHARS_MAX} characters, none of them NUL"))
    return given
