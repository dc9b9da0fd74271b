"""Groups of commands that are imported when they are asked for: `headrace jobs get` needs no scheduler and no worker.

Promises: help and misspellings see all commands. Does not promise a check of the places: a test imports each.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup


def lazy_group(places: Mapping[str, str]) -> type[TyperGroup]:
    """Return a class for `typer.Typer(cls=...)` that adds the commands of `places`: {name: "module:attribute"}."""

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*places, *(name for name in self.commands if name not in places)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            for name in places if cmd_name not in [*places, *self.commands] else {cmd_name} & places.keys():
                if name not in self.commands:  # all of them if the word is none: one may be like it
                    self.commands[name] = _imported(name, places[name])
            return self.commands.get(cmd_name)

    return LazyGroup


def _imported(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name=name)(found)
        found = alone
    command = typer.main.get_command(found)
    command.name = name
    return command
