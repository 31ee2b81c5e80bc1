"""What happened, as the handlers themselves wrote it down: one raw line per call, in a file.

    <run id> <attempt> <microseconds since 1970>

A run's id carries its due time, so lateness needs nothing that the product says about itself; and its lower half is
its job's, so what was acknowledged can be compared with what happened. A handler that waits writes a second line, with
the word `end` behind. A million lines take a second or two, and eight bytes for each number.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hourhand.bench.figures import percentiles

LINE_BYTES_MIN: Final = 36 + 1 + 1 + 1 + 16 + 1
_CHUNK_BYTES: Final = 1 << 22
_NO_DASHES: Final = b"-"


def _numbers() -> "array[int]":
    return array("Q")


@dataclass(slots=True)
class Witnessed:
    """Calls of handlers, one place in each list for each. Times in microseconds since 1970."""

    lows: "array[int]" = field(default_factory=_numbers)
    """The lower half of the run's id, which is its job's."""
    dues: "array[int]" = field(default_factory=_numbers)
    starts: "array[int]" = field(default_factory=_numbers)
    ends: "array[int]" = field(default_factory=_numbers)
    """When handlers that wait ended; in no order, and fewer than the others."""

    def __len__(self) -> int:
        return len(self.lows)

    def lateness_ms(self) -> Iterator[float]:
        return ((start - due) / 1000 for start, due in zip(self.starts, self.dues, strict=True))

    def lateness(self) -> dict[str, float]:
        return percentiles(self.lateness_ms())

    def early(self) -> int:
        """Calls before their due time. Must be 0."""
        return sum(start < due for start, due in zip(self.starts, self.dues, strict=True))

    def only(self, lows: Iterable[int]) -> "Witnessed":
        """Those of these jobs: others may be using the cluster too."""
        ours, kept = set(lows), Witnessed(ends=self.ends)
        for low, due, start in zip(self.lows, self.dues, self.starts, strict=True):
            if low in ours:
                kept.lows.append(low)
                kept.dues.append(due)
                kept.starts.append(start)
        return kept


def read_witness(path: Path, offset: int = 0) -> Witnessed:
    """Everything from the offset on. A last line that is not whole yet is left out."""
    found = Witnessed()
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        rest = b""
        while chunk := file.read(_CHUNK_BYTES):
            lines = (rest + chunk).translate(None, _NO_DASHES).split(b"\n")
            rest = lines.pop()
            _read_lines(lines, found)
    return found


def _read_lines(lines: Sequence[bytes], found: Witnessed) -> None:
    lows, dues, starts, ends = found.lows, found.dues, found.starts, found.ends
    for line in lines:
        said = line[33:].split()
        if len(said) == 3:
            ends.append(int(said[1]))
            continue
        high = int(line[:16], 16)
        lows.append(int(line[16:32], 16))
        dues.append((high >> 16) * 1000 + ((high & 0xFFF) >> 2))
        starts.append(int(said[1]))


def low_half(identifier: bytes | str) -> int:
    """The lower half of a job's id, which all its runs share."""
    text = identifier.decode() if isinstance(identifier, bytes) else identifier
    return int(text.replace("-", "")[16:], 16)


def compare(acknowledged: Iterable[int], seen: Iterable[int]) -> dict[str, int]:
    """What was promised against what happened. `lost`: promised oftener than seen. `doubled`: seen oftener than
    promised; what was never promised is somebody else's and does not count. Two sorted lists are walked along
    together, because sets of millions take gigabytes."""
    promised, happened = sorted(acknowledged), sorted(seen)
    lost = doubled = place = index = 0
    while index < len(promised):
        key, begin = promised[index], index
        while index < len(promised) and promised[index] == key:
            index += 1
        while place < len(happened) and happened[place] < key:
            place += 1
        first = place
        while place < len(happened) and happened[place] == key:
            place += 1
        missing = (index - begin) - (place - first)
        lost += max(missing, 0)
        doubled += max(-missing, 0)
    return {"lost": lost, "doubled": doubled}


def misdated(asked: Iterable[int], witnessed: Witnessed, lost: int) -> int:
    """Runs whose id carries another due time than was asked for, of jobs that run once. Must be 0: lateness is counted
    from what the id says, and one that said a later time would make every start look punctual. `lost`: jobs that never
    ran, whose due times are missing anyhow."""
    return max(compare(asked, witnessed.dues)["lost"] - lost, 0)


class LineCount:
    """How many lines a growing file has got since it was first looked at."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.offset = self._file.seek(0, 2)
        """Where the file ended then."""
        self._lines = 0

    def lines(self) -> int:
        while chunk := self._file.read(1 << 20):
            self._lines += chunk.count(b"\n")
        return self._lines

    def close(self) -> None:
        self._file.close()
