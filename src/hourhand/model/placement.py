"""Where runs of a job may go: labels that an executor must have.

An executor's label is a word (`gpu`) or a word with a value (`zone=eu`). A job that asks for `zone=eu` gets an executor
with exactly that; one that asks for `zone` gets any that has it, whatever its value.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal

import msgspec

LABELS_MAX: Final = 32
LABEL_RULE: Final = (
    "a label of an executor is a word like gpu, or one with a value like zone=eu: each 1 to 63 letters, digits, dots, "
    "dashes or underscores, the word beginning with a letter or digit"
)
_LABEL: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}(=[a-zA-Z0-9._-]{1,63})?")


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored with the job's policy; what is ordinary is left out."""

    labels: tuple[str, ...] = ()
    """Sorted, each once: all of them must be there."""
    on: int | Literal["all"] | None = None
    """On so many executors, or on all of them. None: on any one."""


def is_label(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(labels)))


def missing_labels(wanted: Iterable[str], has: Collection[str]) -> list[str]:
    """Those of the wanted labels that somebody does not have."""
    return [label for label in wanted if not _has(has, label)]


def nearest_labels(wanted: str, known: Iterable[str]) -> list[str]:
    """Labels that are much like one: what was perhaps meant."""
    return difflib.get_close_matches(wanted, sorted(set(known)), n=2, cutoff=0.7)


def tell_labels(labels: Sequence[str]) -> str:
    """For people: "label gpu", "labels gpu and zone=eu"."""
    if len(labels) == 1:
        return f"label {labels[0]}"
    return f"labels {', '.join(labels[:-1])} and {labels[-1]}"


def _has(has: Collection[str], label: str) -> bool:
    if label in has:
        return True
    return "=" not in label and any(each.startswith(f"{label}=") for each in has)
