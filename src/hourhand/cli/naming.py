"""Finds what a word on the command line stands for: a job or a node by its id or its name, a run by its id."""

from typing import TYPE_CHECKING, Final
from uuid import UUID

import click

from hourhand.model.errors import Conflict, NotFound

if TYPE_CHECKING:
    from hourhand.client import Client, JobView

SHOWN_MAX: Final = 10
_PAGE: Final = 500
_LIVING: Final = ("scheduled", "paused")


def run_id(word: str) -> UUID:
    """The type of the argument RUN."""
    found = as_uuid(word)
    if found is None:
        raise click.BadParameter(f"{word!r} is not the id of a run; 'hourhand run list' shows ids")
    return found


def find_job(client: "Client", word: str) -> UUID:
    """The id of the job meant. Of several with that name, the only one that has not ended is meant."""
    identity = as_uuid(word)
    if identity is not None:
        return identity
    # Those that have not ended are few and found at once; of those that ran once and are over there may be millions.
    living = [job for status in _LIVING for job in client.list_jobs(name=word, status=status, limit=_PAGE)]
    candidates = living or [job for job in client.list_jobs(name=word, limit=_PAGE) if job.name == word]
    if not candidates:
        raise NotFound("job", repr(word))
    if len(candidates) > 1:
        raise _ambiguous(word, candidates)
    return candidates[0].job_id


def find_node(client: "Client", word: str) -> int:
    """The number of the node meant. Of several with that name, the only one that is present is meant."""
    if word.isascii() and word.isdigit() and len(word) < 10:
        return int(word)
    named = [node for node in client.nodes() if node.name == word]
    candidates = [node for node in named if node.is_present] or named
    if not candidates:
        raise NotFound("node", repr(word))
    if len(candidates) > 1:
        shown = [f"{node.node_id}  {node.role}  {node.state}" for node in candidates[:SHOWN_MAX]]
        told = "\n".join([f"{len(candidates)} nodes are named {word!r}; give a number:", *shown])
        raise Conflict("ambiguous-name", told)
    return candidates[0].node_id


def as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _ambiguous(word: str, jobs: "list[JobView]") -> Conflict:
    shown = [f"{job.job_id}  {job.status}" for job in jobs[:SHOWN_MAX]]
    if len(jobs) > SHOWN_MAX:
        shown.append(f"and {len(jobs) - SHOWN_MAX} more")
    return Conflict("ambiguous-name", "\n".join([f"{len(jobs)} jobs are named {word!r}; give an id:", *shown]))
