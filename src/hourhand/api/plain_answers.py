"""The answer to a plain submission, put together from pieces: the same bytes as its `JobView` encoded.

Of some fifty fields a plain job decides a dozen. What stands between those is cut once out of the view of an example,
so that the view is still the only place that says what an answer looks like.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from hourhand.api.answers import encode
from hourhand.api.views import job_view
from hourhand.model.job import Job, JobDefinition
from hourhand.model.schedule import At, Now, Timing
from hourhand.model.states import JobState
from hourhand.ports.stores import NewJob

_ID: Final = UUID(int=1)
_DUE: Final = datetime(2001, 1, 1, tzinfo=UTC)
_CREATED: Final = datetime(2001, 1, 2, tzinfo=UTC)
_EXAMPLE: Final = Job(
    _ID,
    "<namespace>",
    JobDefinition("<name>", "<kind>", {"<": 1}, Timing((At(_DUE),)), "", "<queue>", 987654321, owner="<owner>"),
    1,
    JobState.SCHEDULED,
    _DUE,
    _CREATED,
    "<by>",
    _CREATED,
)
_AT_ONCE: Final = b'[{"now":true}]'


def _cut() -> Sequence[bytes]:
    """The example's answer without what each job has of its own."""
    pieces = []
    rest = encode(job_view(_EXAMPLE))
    due, created = encode(_DUE), encode(_CREATED)
    own: Sequence[bytes] = (
        encode(_ID), b'"<namespace>"', b'"<name>"', b'"<kind>"', b'{"<":1}', b'[{"at":%b}]' % due, b'"<queue>"',
        b"987654321", b'"<owner>"', due, created, b'"<by>"', created,
    )  # fmt: skip
    for value in own:
        piece, found, rest = rest.partition(value)
        assert found, f"the view has no {value.decode()} in its place"
        pieces.append(piece)
    return [*pieces, rest]


_PIECES: Final = _cut()
_ID_AT: Final = len(_PIECES[0]) + 1


def id_in(answer: bytes) -> bytes:
    """The job's id in a plain answer, which begins with it."""
    return answer[_ID_AT : _ID_AT + 36]


def plain_answer(new: NewJob, namespace: str) -> bytes:
    """What `job_view` of the stored job comes to. It must be a plain one."""
    assert new.plain_payload is not None
    p = _PIECES
    definition = new.definition
    created, by = encode(new.created_at), encode(new.created_by)
    [when] = definition.timing.schedules
    at_once = type(when) is Now
    due = created if at_once else encode(definition.timing.only_instant)
    schedule = _AT_ONCE if at_once else b'[{"at":%b}]' % due
    return b"".join((
        p[0], encode(new.job_id), p[1], encode(namespace), p[2], encode(definition.name), p[3], encode(definition.kind),
        p[4], new.plain_payload, p[5], schedule, p[6], encode(definition.queue), p[7], b"%d" % definition.priority,
        p[8], by, p[9], due, p[10], created, p[11], by, p[12], created, p[13],
    ))  # fmt: skip
