"""Secrets by reference: where a payload may name one, and the same payload with the values put in.

A payload never holds a secret, only its name: `{"secret": "DB_PASSWORD"}` in the place of a text, with a `prefix` and a
`suffix` around it if wanted. Only the places below are looked at, so that an object of the user's own that happens to
look like one (the body of an HTTP call, the arguments of a handler) is left alone.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from hourhand.model.errors import Fault
from hourhand.model.work_folder import reserved_for

SECRET_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}")
SECRET_NAME_RULE: Final = "1 to 63 letters, digits, dots, dashes or underscores"  # noqa: S105 - a rule, no password
SECRETS_MAX: Final = 32
"""That one job may refer to."""
SECRET_MARK: Final = b'"secret'
"""What the JSON text of every payload with a reference has. Whoever does not see it need not look closer."""
SECRETS_FIELD: Final = "secrets"
"""A list of names, for kinds that hand values to code: handlers of Python, plugins."""
SECRET_FILES_FIELD: Final = "secret_files"  # noqa: S105 - the name of a field

_FIELDS: Final = frozenset({"secret", "prefix", "suffix"})
_TEXTS: Final = ("env", "headers", SECRET_FILES_FIELD)
"""Objects of texts: each value may be a reference."""
_INNER: Final = (("oauth", "client_secret"), ("proxy", "password"), ("tls", "key"))
"""Single texts inside an object."""
SIGN_WITH_FIELD: Final = "sign_with"
"""A single text of HTTP jobs: the key that signs their calls."""
_LISTS_ONLY: Final = frozenset({"python"})
"""Kinds whose payload is the user's own but for the list of names."""
_AROUND_CHARS_MAX: Final = 1000


class SecretValues(Mapping[str, str]):
    """Values by name, which nothing shows by accident. Bytes that are no text are there as lone surrogates, as in names
    of files: `value.encode("utf-8", "surrogateescape")` gives them back."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<secrets {', '.join(self._values)}>"

    def __reduce__(self) -> Any:
        raise TypeError("the values of secrets are not to be written anywhere")


NO_SECRETS: Final = SecretValues({})


def is_secret_name(text: Any) -> bool:
    return isinstance(text, str) and SECRET_NAME.fullmatch(text) is not None


def is_reference(value: Any) -> bool:
    """Whether a value, in a place where texts are expected, is meant as a reference. It may be a wrong one."""
    return isinstance(value, Mapping)


def secret_names(kind: str, payload: Mapping[str, Any]) -> tuple[str, ...]:
    """Every secret that a payload refers to, once each, by name."""
    return tuple(sorted({name for _, name in references(kind, payload)}))


def references(kind: str, payload: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Where a payload refers to a secret, as a pointer below the payload, and to which. Wrong references are passed
    over: their kind tells of them."""
    named = payload.get(SECRETS_FIELD)
    for place, name in enumerate(named if isinstance(named, list) else ()):
        if is_secret_name(name):
            yield f"/{SECRETS_FIELD}/{place}", name
    if kind in _LISTS_ONLY:
        return
    for field in _TEXTS:
        for key, value in _mapping(payload.get(field)).items():
            if _is_right(value):
                yield _pointer(field, key), value["secret"]
    for field, inner in _INNER:
        value = _mapping(_mapping(payload.get(field)).get(inner))
        if _is_right(value):
            yield _pointer(field, inner), value["secret"]
    if kind == "http" and _is_right(payload.get(SIGN_WITH_FIELD)):
        yield _pointer(SIGN_WITH_FIELD), payload[SIGN_WITH_FIELD]["secret"]


def filled(payload: Mapping[str, Any], secrets: Mapping[str, str]) -> Mapping[str, Any]:
    """The payload with texts in the places of its references. Without secrets it is the payload itself. What comes back
    is for starting the work and for nothing else: it must not be stored, logged or put into an error."""
    if not secrets:
        return payload
    full = dict(payload)
    for field in _TEXTS:
        if isinstance(full.get(field), Mapping):
            full[field] = {key: _text(value, secrets) for key, value in full[field].items()}
    for field, inner in _INNER:
        if isinstance(full.get(field), Mapping) and inner in full[field]:
            full[field] = {**full[field], inner: _text(full[field][inner], secrets)}
    if SIGN_WITH_FIELD in full:
        full[SIGN_WITH_FIELD] = _text(full[SIGN_WITH_FIELD], secrets)
    return full


def secret_files(payload: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, bytes]:
    """The files that `secret_files` asks for: path below the work folder, and content."""
    wanted = payload.get(SECRET_FILES_FIELD) or {}
    return {path: secret_bytes(_text(value, secrets)) for path, value in wanted.items()}


def file_variables(payload: Mapping[str, Any]) -> dict[str, str]:
    """For each secret that becomes a file: the environment variable that says where it is, and its path below the work
    folder."""
    wanted = payload.get(SECRET_FILES_FIELD) or {}
    return {file_variable(value["secret"]): path for path, value in wanted.items()}


def file_variable(name: str) -> str:
    return "HOURHAND_SECRET_FILE_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def secret_bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


# --- what can be wrong with references -----------------------------------------------------------------------


def reference_faults(value: Any, pointer: str) -> list[Fault]:
    """What is wrong with an object in the place of a text. Whether there is such a secret is asked elsewhere."""
    form = 'a text, or a reference such as {"secret": "NAME"}'
    if not isinstance(value, Mapping):
        return [Fault(pointer, "wrong-type", f"must be {form}")]
    faults = [
        Fault(f"{pointer}/{_escaped(key)}", "unknown-field", f"{key[:40]!r} is not a field here", None, sorted(_FIELDS))
        for key in value
        if key not in _FIELDS
    ]
    if "secret" not in value:
        faults.append(Fault(pointer, "invalid-reference", f"must be {form}"))
    elif not is_secret_name(value["secret"]):
        faults.append(Fault(f"{pointer}/secret", "invalid-reference", f"the name of a secret has {SECRET_NAME_RULE}"))
    for around in ("prefix", "suffix"):
        text = value.get(around, "")
        if not isinstance(text, str) or len(text) > _AROUND_CHARS_MAX or "\0" in text:
            message = f"must be a text of at most {_AROUND_CHARS_MAX} characters"
            faults.append(Fault(f"{pointer}/{around}", "invalid-reference", message))
    return faults


def secret_file_faults(files: Any, own_file: str | None = None, starts_in: str = "") -> list[Fault]:
    """What is wrong with the field `secret_files` of a program that lies in `own_file` and starts in a folder."""
    if not isinstance(files, Mapping):
        return [Fault(f"/{SECRET_FILES_FIELD}", "wrong-type", "must be an object of paths and references")]
    if len(files) > SECRETS_MAX:
        return [Fault(f"/{SECRET_FILES_FIELD}", "too-many-entries", f"at most {SECRETS_MAX} files")]
    faults: list[Fault] = []
    variables: dict[str, str] = {}
    for path, value in files.items():
        pointer = _pointer(SECRET_FILES_FIELD, path)
        parts = path.split("/")
        if not path or len(path) > 255 or "\0" in path or path.startswith("/") or {"", ".", ".."} & set(parts):
            message = "must be a plain relative path: each attempt has a private work folder"
            faults.append(Fault(pointer, "path-outside-workdir", message))
        elif PurePosixPath(path) in (PurePosixPath(starts_in), *PurePosixPath(starts_in).parents):
            message = "must be another path: this is the folder that the program starts in, or is above it"
            faults.append(Fault(pointer, "path-reserved", message))
        elif (use := "the script itself" if parts[0] == own_file else reserved_for(parts[0])) is not None:
            message = f"must be another path: {parts[0][:40]!r} in the work folder is for {use}"
            faults.append(Fault(pointer, "path-reserved", message, f'for instance "secrets/{parts[-1][:40]}"'))
        faults += reference_faults(value, pointer)
        if _is_right(value):
            variable = file_variable(value["secret"])
            if variables.setdefault(variable, value["secret"]) != value["secret"]:
                message = f"{variable} would tell of two secrets: their names differ too little"
                faults.append(Fault(pointer, "invalid-reference", message))
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    faults += [
        Fault(_pointer(SECRET_FILES_FIELD, path), "path-outside-workdir", "is a folder of another file")
        for path in files
        if path in folders
    ]
    return faults


def secret_list_faults(names: Any) -> list[Fault]:
    """What is wrong with the field `secrets`."""
    if not isinstance(names, list):
        return [Fault(f"/{SECRETS_FIELD}", "wrong-type", "must be a list of names of secrets")]
    return [
        Fault(f"/{SECRETS_FIELD}/{place}", "invalid-reference", f"the name of a secret has {SECRET_NAME_RULE}")
        for place, name in enumerate(names)
        if not is_secret_name(name)
    ]


def _is_right(value: Any) -> bool:
    return isinstance(value, Mapping) and is_secret_name(value.get("secret"))


def _text(value: Any, secrets: Mapping[str, str]) -> Any:
    if not _is_right(value):
        return value
    return f"{value.get('prefix', '')}{secrets[value['secret']]}{value.get('suffix', '')}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _pointer(*steps: str) -> str:
    return "".join(f"/{_escaped(step)}" for step in steps)


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
