"""What the payload of a script job may say, and every fault it can have. Pure: runs in the API.

A script is either source text in a language, or code that was uploaded before (`artifact`). What a program is given
beside its code (environment, input, folder, exit codes) is the same as for a command and judged by the same rules.
"""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from hourhand.job_kinds.command_payload import command_faults
from hourhand.job_kinds.interpreters import SUFFIXES
from hourhand.job_kinds.payload_checks import nul_byte, pointer_to, unknown_fields, wrong_type
from hourhand.model.artifacts import read_reference
from hourhand.model.errors import Fault
from hourhand.model.work_folder import CODE_FOLDER

FIELDS: Final = (
    "source",
    "language",
    "artifact",
    "entry",
    "argv",
    "args",
    "env",
    "cwd",
    "stdin",
    "ok_exit_codes",
    "secret_files",
)

LANGUAGE_BY_SUFFIX: Final[Mapping[str, str]] = {
    ".sh": "bash",
    ".bash": "bash",
    ".py": "python",
    ".js": "node",
    ".cjs": "node",
    ".mjs": "node",
    ".pl": "perl",
    ".rb": "ruby",
    ".php": "php",
    ".r": "r",
}
"""In small letters. A file with another suffix, or none, is started as a program."""

_LANGUAGE: Final = re.compile(r"[a-z][a-z0-9_.+-]{0,31}")
_OTHER_WORDS: Final[Mapping[str, str]] = {
    "shell": "bash",
    "python3": "python",
    "py": "python",
    "javascript": "node",
    "js": "node",
    "nodejs": "node",
    "rscript": "r",
}
_LIKE_A_COMMAND: Final = ("env", "cwd", "stdin", "ok_exit_codes", "secret_files")


def script_faults(payload: Mapping[str, Any]) -> list[Fault]:
    faults = unknown_fields(payload, FIELDS)
    if "source" in payload and "artifact" in payload:
        faults.append(Fault("/artifact", "source-or-artifact", "a script has either a source or an artifact, not both"))
        faults += _text_faults(payload["source"]) + _artifact_faults(payload)
    elif "artifact" in payload:
        faults += _artifact_faults(payload)
    else:
        faults += _source_faults(payload)
    if "language" in payload:
        faults += _language_faults(payload["language"])
    faults += _list_faults(payload, "args")
    rest = {name: payload[name] for name in _LIKE_A_COMMAND if name in payload}
    below = CODE_FOLDER if "artifact" in payload else ""
    return faults + command_faults({"argv": ["script"], **rest}, own_file=_own_file(payload), below=below)


def need_of(payload: Mapping[str, Any]) -> str:
    """`script:<language>`, or `script` alone for uploaded programs that need no interpreter."""
    language = language_of(payload)
    return "script" if language is None else f"script:{language}"


def language_of(payload: Mapping[str, Any]) -> str | None:
    language = payload.get("language")
    if isinstance(language, str):
        return language
    entry = payload.get("entry")
    if isinstance(entry, str) and "argv" not in payload:
        return LANGUAGE_BY_SUFFIX.get(PurePosixPath(entry).suffix.lower())
    return None


def file_name(language: str, cwd: str) -> str:
    """Of the file in the private folder that a source becomes."""
    name = f"script{SUFFIXES.get(language, '')}"
    return f"_{name}" if PurePosixPath(cwd).parts[:1] == (name,) else name


def _own_file(payload: Mapping[str, Any]) -> str | None:
    language, cwd = payload.get("language"), payload.get("cwd", "")
    if "artifact" in payload or not isinstance(language, str) or not isinstance(cwd, str):
        return None
    return file_name(language, cwd)


def _source_faults(payload: Mapping[str, Any]) -> list[Fault]:
    faults = [
        Fault(f"/{name}", "field-not-allowed", f"{name} goes with an artifact; a source is run by its language")
        for name in ("entry", "argv")
        if name in payload
    ]
    if "source" not in payload:
        hint = 'for a program of the machine use the kind "command"'
        faults.append(Fault("/source", "source-required", "is required: the text of the script, or an artifact", hint))
    elif isinstance(payload["source"], str) and not payload["source"].strip():
        faults.append(Fault("/source", "source-required", "must not be empty"))
    else:
        faults += _text_faults(payload["source"])
    if "language" not in payload:
        message = "is required: bash, python, node, perl, ruby, php, r, or another that an executor offers"
        faults.append(Fault("/language", "language-required", message))
    return faults


def _text_faults(source: Any) -> list[Fault]:
    if not isinstance(source, str):
        return [wrong_type("/source", "a string", source)]
    return [nul_byte("/source")] if "\0" in source else []


def _artifact_faults(payload: Mapping[str, Any]) -> list[Fault]:
    faults: list[Fault] = []
    reference = payload["artifact"]
    if not isinstance(reference, str):
        faults.append(wrong_type("/artifact", "a string", reference))
    elif read_reference(reference) is None:
        message = "must be the name of an upload, sha256:… of its content, or name@sha256:…"
        faults.append(Fault("/artifact", "invalid-artifact", message))
    if "entry" in payload and "argv" in payload:
        faults.append(Fault("/argv", "entry-or-argv", "an artifact is started by its entry or by argv, not by both"))
    if "argv" in payload and ("language" in payload or "args" in payload):
        message = "goes with an entry; argv names the program and all of its arguments itself"
        faults += [Fault(f"/{name}", "field-not-allowed", message) for name in ("language", "args") if name in payload]
    if "entry" in payload:
        faults += _entry_faults(payload["entry"])
    if "argv" in payload:
        faults += command_faults({"argv": payload["argv"]})
    return faults


def _entry_faults(entry: Any) -> list[Fault]:
    if not isinstance(entry, str):
        return [wrong_type("/entry", "a string", entry)]
    if "\0" in entry:
        return [nul_byte("/entry")]
    if not entry.strip("/") or entry.startswith("/") or ".." in entry.split("/"):
        message = "must be the path of a file inside the artifact: relative, without .."
        return [Fault("/entry", "entry-outside-artifact", message)]
    return []


def _language_faults(language: Any) -> list[Fault]:
    if not isinstance(language, str):
        return [wrong_type("/language", "a string", language)]
    meant = _OTHER_WORDS.get(language.lower())
    if meant is None and _LANGUAGE.fullmatch(language):
        return []  # which languages there are is for executors to say
    hint = f"did you mean {meant!r}?" if meant else None
    message = "must be a word such as bash, python, node, perl: small letters, digits and . _ + -, at most 32"
    return [Fault("/language", "unknown-language", message, hint)]


def _list_faults(payload: Mapping[str, Any], name: str) -> list[Fault]:
    if name not in payload:
        return []
    if not isinstance(payload[name], list):
        return [wrong_type(f"/{name}", "a list of strings", payload[name])]
    faults = []
    for index, part in enumerate(payload[name]):
        if not isinstance(part, str):
            faults.append(wrong_type(pointer_to(name, index), "a string", part))
        elif "\0" in part:
            faults.append(nul_byte(pointer_to(name, index)))
    return faults
