"""Uploaded code: how it is named and referred to, and how large it may be. Pure."""

import re
from typing import Final, NamedTuple

ARTIFACT_NAME_RULE: Final = "1 to 128 letters, digits, dots, dashes or underscores, the first a letter or digit"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_REFERENCE: Final = re.compile(
    r"(?:(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,127})(?:@|\Z))?(?:sha256:(?P<digest>[0-9a-f]{64}))?"
)
_ARCHIVES: Final = ((".zip", "zip"), (".tar", "tar"), (".tar.gz", "tar.gz"), (".tgz", "tar.gz"))


class Reference(NamedTuple):
    """What a job says that it runs. With a name alone it is what was last uploaded under it."""

    name: str | None
    digest: str | None


def is_artifact_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def read_digest(text: str) -> str | None:
    """The hexadecimal digits of `sha256:…`; None where it is none."""
    found = _DIGEST.fullmatch(text.lower())
    return None if found is None else found[1]


def read_reference(text: str) -> Reference | None:
    """`name`, `sha256:…` or `name@sha256:…`; None where it is none of them."""
    found = _REFERENCE.fullmatch(text)
    if found is None or not text or text.endswith("@"):
        return None
    return Reference(found["name"], found["digest"])


def signed_message(name: str, digest: str) -> bytes:
    """What is signed of an artifact. The name is part of it: what was signed as one thing is not run as another. The
    first line keeps a signature from meaning anything elsewhere."""
    return f"hourhand artifact 1\n{name}\nsha256:{digest}\n".encode()


def form_of(name: str) -> str:
    """`zip`, `tar` or `tar.gz` for what is unpacked before it runs, by the suffix; `file` for all else."""
    return next((form for suffix, form in _ARCHIVES if name.lower().endswith(suffix)), "file")
