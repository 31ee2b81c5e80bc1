"""Asks before something is gone for good."""

import sys

import click


def make_sure(question: str, yes: bool) -> None:
    """Returns when it is meant. Where nobody can be asked, `--yes` must say so; otherwise nothing is done."""
    if yes:
        return
    if not sys.stdin.isatty():
        message = "nobody is there to confirm; say --yes to do it without being asked"
        raise click.UsageError(message, click.get_current_context())
    click.confirm(question, abort=True, err=True)
