"""How tables and details are laid out, drawn by rich. Imported only when something is to be drawn.

On a terminal a table keeps to its width and leaves out what does not fit; elsewhere every column is there in full,
so that ids can be cut out by other programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from hourhand.cli.exits import printable
from hourhand.cli.times import local_time, local_zone, short_time

_UNLIMITED: Final = 100_000
GAP: Final = 2
_TEXT_WIDTH_MIN: Final = 5
COLOURS: Final = {
    "succeeded": "green",
    "running": "cyan",
    "claimed": "cyan",
    "failed": "red",
    "timed_out": "red",
    "lost": "red",
    "cancelling": "yellow",
    "paused": "yellow",
    "cancelled": "dim",
    "completed": "dim",
    "skipped": "dim",
    "missed": "yellow",
    "working": "green",
    "open": "green",
    "cordoned": "yellow",
    "draining": "yellow",
    "late": "red",
    "dead": "red",
    "left": "dim",
}


@dataclass(frozen=True, slots=True)
class Column:
    heading: str
    width_needed: int = 0
    """Left out on terminals narrower than this."""
    kind: str = "text"
    """text, id, time, status or number."""


def console_here() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    # Without a terminal there is no width to keep to, and a cut id would be of no use to anybody.
    return console if console.is_terminal else Console(highlight=False, markup=False, emoji=False, width=_UNLIMITED)


def draw_table(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
    console = console_here()
    narrow = console.is_terminal
    keep = [index for index, column in enumerate(columns) if not narrow or column.width_needed <= console.width]
    kept = [columns[index] for index in keep]
    zone = f" ({local_zone(datetime.now(UTC))})" if narrow else ""
    headings = [Text(column.heading + (zone if column.kind == "time" else "")) for column in kept]
    cells = [[_cell(row[index], columns[index], narrow) for index in keep] for row in rows]
    widths = _widths(kept, [headings, *cells], console.width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, heading, width in zip(kept, headings, widths, strict=True):
        justify: JustifyMethod = "right" if column.kind == "number" else "left"
        table.add_column(heading, width=width, justify=justify, no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Text]], available: int) -> list[int]:
    """Ids, times and states lose their meaning when cut; names and texts give way, the widest first."""
    widths = [max(row[index].cell_len for row in rows) for index in range(len(columns))]
    excess = sum(widths) + GAP * (len(widths) - 1) - available
    texts = [index for index, column in enumerate(columns) if column.kind == "text"]
    while excess > 0 and texts:
        widest = max(texts, key=widths.__getitem__)
        if widths[widest] <= _TEXT_WIDTH_MIN:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _cell(value: Any, column: Column, narrow: bool) -> Text:
    if column.kind == "time":
        return Text(short_time(value) if narrow else local_time(value))
    text = printable("-" if value is None or value == "" else str(value))
    return Text(text, style=COLOURS.get(text, "") if column.kind == "status" else "")


def draw_details(pairs: Sequence[tuple[str, Any]]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for word, value in pairs:
        if value not in (None, "", {}):
            lines = str(value).split("\n")
            table.add_row(word, Text("\n".join(map(printable, lines))))
    console_here().print(table)
