"""`--script FILE`: what a file on this machine becomes in the payload of a script job.

A short text travels in the job itself. An archive, a program, or a long text is uploaded, and the job refers to exactly
this content.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:
    from hourhand.client import Client

_INLINE_BYTES_MAX: Final = 64 * 1024
"""Of a text that travels in the job, each time that the job is read. Longer ones are uploaded."""
_SHEBANG: Final = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-S\s+)?)?(?:\S*/)?([A-Za-z]+)")
_PROGRAMS: Final = {"rscript": "r", "nodejs": "node", "dash": "sh"}


class ScriptFile(NamedTuple):
    """What is known of a script before there is a connection."""

    values: dict[str, Any]
    upload: Path | None = None
    """A file that is to be uploaded; `values` then lacks the reference to it."""
    sign_with: str | None = None
    """The file of a private key to vouch for it by."""


def script_file(ctx: click.Context, given: Mapping[str, Any], words: Sequence[str] | None) -> ScriptFile:
    """The payload of a script job as the options describe it."""
    from hourhand.model.artifacts import form_of
    from hourhand.model.templates import literally

    path, language, entry = given["script"], given["language"], given["entry"]
    data = _read(path)
    args = {"args": list(words)} if words else {}
    if form_of(path) != "file":
        return _archive(ctx, Path(path), language, entry, words)._replace(sign_with=given["sign_with"])
    if entry is not None:
        raise click.UsageError("--entry goes with an archive: the file in it to run", ctx)
    text = _text(data)
    # What is in a payload nobody can sign.
    if text is not None and len(data) <= _INLINE_BYTES_MAX and given["sign_with"] is None:
        spoken = language or guess_language(path, text)
        if spoken is None:
            message = f"{path} says neither by its suffix nor by a first line #!… what it is written in; say --language"
            raise click.UsageError(message, ctx)
        return ScriptFile({"source": literally(text), "language": spoken, **args})
    if path == "-":
        raise click.UsageError(
            "what comes from stdin must be a short text; upload it with `hourhand artifact upload`", ctx
        )
    spoken = language or guess_language(path, text or "")
    values = {"entry": artifact_name(path), **({"language": spoken} if spoken else {}), **args}
    return ScriptFile(values, Path(path), given["sign_with"])


def uploaded(client: "Client", script: ScriptFile) -> dict[str, Any]:
    """The whole payload, once the file is on the server."""
    if script.upload is None:
        return script.values
    from hourhand.cli.printing import say

    kept = client.upload_artifact(artifact_name(str(script.upload)), script.upload, sign_with=script.sign_with)
    say(f"artifact {kept.name} is uploaded ({kept.size} bytes, {kept.digest[:19]}…)")
    return {"artifact": f"{kept.name}@{kept.digest}", **script.values}


def artifact_name(path: str) -> str:
    """A name for a file that the server takes."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", Path(path).name).lstrip("._-")[:128] or "artifact"


def guess_language(path: str, source: str) -> str | None:
    """By the suffix, else by the program that the first line names."""
    from hourhand.job_kinds.script_payload import LANGUAGE_BY_SUFFIX

    by_suffix = LANGUAGE_BY_SUFFIX.get(Path(path).suffix.lower())
    first = _SHEBANG.match(source.partition("\n")[0])
    if by_suffix is not None or first is None:
        return by_suffix
    program = first[1].lower()
    return _PROGRAMS.get(program, program)


def _archive(
    ctx: click.Context, path: Path, language: str | None, entry: str | None, words: Sequence[str] | None
) -> ScriptFile:
    if entry is None and (not words or language is not None):
        message = "an archive needs --entry, the file in it to run, or its command after --"
        raise click.UsageError(message, ctx)
    if entry is None:
        return ScriptFile({"argv": list(words or ())}, path)
    values: dict[str, Any] = {"entry": entry, **({"args": list(words)} if words else {})}
    return ScriptFile(values | ({"language": language} if language else {}), path)


def _read(path: str) -> bytes:
    """The beginning of the file: enough to see whether it is a short text."""
    from hourhand.cli.exits import NoInput

    name = "stdin" if path == "-" else path
    try:
        with open(path, "rb") if path != "-" else sys.stdin.buffer as file:
            data = file.read(_INLINE_BYTES_MAX + 1)
    except OSError as error:
        raise NoInput(f"{name} cannot be read ({(error.strerror or str(error)).lower()})") from None
    if not data.strip():
        raise NoInput(f"{name} is empty")
    return data


def _text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(data) > _INLINE_BYTES_MAX and error.start > len(data) - 4:
            return data[: error.start].decode("utf-8-sig")  # cut in the middle of a character
        return None
    return None if "\0" in text else text
