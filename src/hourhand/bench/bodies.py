"""What is sent and what comes back: the bodies of requests, made quickly, and the ids that were acknowledged.

Ids are read when the measurement is over. The client shares the machine with what it measures, and its book-keeping is
not part of the work.
"""

from array import array
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from hourhand.bench.witness import low_half

NOOP: Final[dict[str, Any]] = {"handler": "bench.noop", "target": "old_logs", "days": 30}
_AT: Final = "2000-01-01T00:00:00Z"


def job_body(**more: Any) -> bytes:
    """One no-op job."""
    return msgspec.json.encode({"name": "bench", "payload": NOOP, **more})


def batch_of_one_kind(job: bytes, count: int) -> bytes:
    return b"[" + b",".join([job] * count) + b"]"


def at_body_maker(payload: dict[str, Any] | None = None) -> Callable[[int], bytes]:
    """Makes the body of a job that is due at a time, in microseconds since 1970: all but the time is made once."""
    job = {"name": "bench", "payload": payload or NOOP, "schedule": {"at": _AT}}
    before, after = msgspec.json.encode(job).split(_AT.encode())
    seconds_known: dict[int, bytes] = {}

    def make(due: int) -> bytes:
        second, micros = divmod(due, 1_000_000)
        text = seconds_known.get(second)
        if text is None:
            seconds_known.clear()
            text = seconds_known[second] = before + instant_text(second * 1_000_000)[:19].encode()
        return b"%s.%06dZ%s" % (text, micros, after)

    return make


def at_batch(make: Callable[[int], bytes], dues: Sequence[int]) -> bytes:
    return b"[" + b",".join([make(due) for due in dues]) + b"]"


def instant_text(micros: int) -> str:
    """RFC 3339 in UTC."""
    second, rest = divmod(micros, 1_000_000)
    instant = datetime.fromtimestamp(second, UTC).replace(microsecond=rest)
    return instant.isoformat().replace("+00:00", "Z")


class Acknowledged:
    """Jobs that the server has said it has, in the order of its answers."""

    def __init__(self, *, read_at_once: bool = False) -> None:
        """`read_at_once`: for measurements so long that the answers would take too much memory."""
        self._read_at_once = read_at_once
        self._answers: list[bytes] = []
        self._lows: array[int] = array("Q")
        self._latest: list[str] = []
        self.count = 0

    def add_batch(self, answer: bytes, count: int) -> None:
        """`count`: how many jobs were sent. Whether as many came back is checked when the ids are read."""
        self._answers.append(answer)
        self.count += count
        if self._read_at_once:
            self._read()

    def add_one(self, answer: bytes) -> str:
        job_id = job_id_of(answer)
        self._lows.append(low_half(job_id))
        self._latest = [*self._latest[-19:], job_id]
        self.count += 1
        return job_id

    def add_one_unread(self, answer: bytes) -> None:
        """The same when the id is not needed yet: only its place in the answer is looked for."""
        place = answer.index(b'"job_id":"') + 9
        self._answers.append(b"[%s]" % answer[place : place + 38])
        self.count += 1

    def ids(self, count: int) -> list[str]:
        """Some of the ids, spread over all that have not been read."""
        every = [text.decode() for answer in self._answers for text in _ids_in(answer)]
        return every[:: max(len(every) // count, 1)][:count]

    def lows(self) -> "array[int]":
        """The lower half of each id."""
        self._read()
        assert len(self._lows) == self.count, f"{self.count} jobs were sent and {len(self._lows)} ids came back"
        return self._lows

    def latest(self) -> list[str]:
        """Some of the ids that came last."""
        if self._answers:
            self._latest = [text.decode() for text in _ids_in(self._answers[-1])[-20:]]
        return self._latest

    def _read(self) -> None:
        self.latest()
        answers, self._answers = self._answers, []
        for answer in answers:
            self._lows.extend([int(text[16:], 16) for text in _ids_in(answer.translate(None, b"-"))])


def job_id_of(answer: bytes) -> str:
    """The id in the answer to one job."""
    place = answer.index(b'"job_id":"') + 10
    return answer[place : place + 36].decode()


def _ids_in(answer: bytes) -> list[bytes]:
    listed = answer[answer.index(b"[") + 1 : answer.index(b"]")]
    return listed.strip(b'"').split(b'","') if listed else []
