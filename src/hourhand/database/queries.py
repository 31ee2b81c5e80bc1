"""Named SQL statements, read from `.sql` files.

A block begins with `-- name: claim_runs` and ends where the next one begins. Parameters are written `@run_ids`
and become positional; `hourhand.` before a table becomes the chosen schema. The files are SQL that any client
can run after replacing the parameters.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_BLOCK = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![@\w])@([a-z_]+)\b")
_SCHEMA = re.compile(r"\bhourhand\.")
_STEP_OVER = "ON CONFLICT DO NOTHING\n"
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    text: str
    parameters: tuple[str, ...]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values in positional order; a missing or a surplus one is our own mistake."""
        assert len(values) == len(self.parameters), f"{self.name} takes {self.parameters}, got {tuple(values)}"
        return [values[name] for name in self.parameters]

    def unguarded(self) -> "Query":
        """The same without its look for rows that are there already, which makes each of them a tenth dearer. Then one
        such row fails the whole statement, and whoever sent it sends it again as it is written."""
        text = self.text.replace(_STEP_OVER, "")
        assert text != self.text, f"{self.name} does not step over rows that are there already"
        return Query(f"{self.name}, unguarded", text, self.parameters)


def load_queries(package: str, file_name: str, schema: str) -> dict[str, Query]:
    """All statements of one file."""
    source = files(package).joinpath(file_name).read_text(encoding="utf-8")
    return {query.name: query for query in _blocks(in_schema(source, schema))}


def in_schema(sql: str, schema: str) -> str:
    """The same SQL for another schema. The name is checked, so it can stand unquoted."""
    if not _IDENTIFIER.fullmatch(schema):
        raise ValueError(f"schema name {schema!r}: lower-case letters, digits and _ only, at most 63")
    return sql if schema == "hourhand" else _SCHEMA.sub(f"{schema}.", sql)


def _blocks(source: str) -> Iterator[Query]:
    starts = list(_BLOCK.finditer(source))
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        text = source[start.end() : following.start() if following else len(source)].strip().rstrip(";")
        names: list[str] = []

        def numbered(match: re.Match[str], names: list[str] = names) -> str:
            if match[1] not in names:
                names.append(match[1])
            return f"${names.index(match[1]) + 1}"

        body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
        yield Query(start[1], _PARAMETER.sub(numbered, body), tuple(names))
