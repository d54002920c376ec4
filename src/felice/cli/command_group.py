"""A command with subcommands: it suggests the nearest one when a name is wrong, and takes connection options."""

from __future__ import annotations

import click

# Options of most subcommands that may also stand before the subcommand. Each has a value.
_CONNECTION = ("--bootstrap-server", "-b", "--command-config")


class CommandGroup(click.Group):
    """A click group that suggests the nearest subcommand, and passes connection options before it on to it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the options before the subcommand."""
        own = {name for parameter in self.params for name in parameter.opts}
        return super().parse_args(ctx, _moved(args, [name for name in _CONNECTION if name not in own]))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the subcommand; the error for an unknown name suggests the nearest one."""
        # click suggests only commands that are registered already; commands imported on demand are not.
        is_option = args[0].startswith("-")
        if not is_option and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            raise click.NoSuchCommand(args[0], possibilities=self.list_commands(ctx), ctx=ctx)
        return super().resolve_command(ctx, args)


def _moved(args: list[str], names: list[str]) -> list[str]:
    """`-b h:1 list` as `list -b h:1`."""
    end = 0
    while end < len(args):
        name, equals, _ = args[end].partition("=")
        is_joined = equals or (name[:2] == "-b" and name != "-b" and "-b" in names)
        if name not in names and not (is_joined and name[:2] in names):
            break
        end += 1 if is_joined else 2
    return [*args[end : end + 1], *args[:end], *args[end + 1 :]] if end < len(args) else args
