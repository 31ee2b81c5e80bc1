"""Groups that know their commands by name and one line of help, and import a command only when it is called."""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click


class Lazy(NamedTuple):
    """Where a command is found. The help text is kept here so that showing it imports nothing."""

    module: str
    name: str
    help: str


class LazyGroup(click.Group):
    """A group whose commands are imported on use, and which has a suggestion for every wrong word."""

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, Lazy] | None = None,
        other_words: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy or {}
        self._other_words = other_words or {}
        """What people call a command elsewhere."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        command = getattr(importlib.import_module(lazy.module), lazy.name)
        assert isinstance(command, click.Command), f"{lazy.module}.{lazy.name} is no command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, lazy.help) for name, lazy in self._lazy.items()]
        rows += [(name, command.get_short_help_str(limit=80)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word not in self.list_commands(ctx) and not word.startswith("-"):
            raise click.UsageError(f"there is no command {word!r}{self._suggestion(ctx, word)}", ctx)
        return super().resolve_command(ctx, args)

    def _suggestion(self, ctx: click.Context, word: str) -> str:
        from difflib import get_close_matches

        known = self.list_commands(ctx)
        meant = [self._other_words[word]] if word in self._other_words else get_close_matches(word.lower(), known, n=2)
        return f"; did you mean {' or '.join(meant)}?" if meant else f"; there are {', '.join(known)}"
