"""A command with subcommands that suggests the nearest one when a name is wrong."""

from __future__ import annotations

import click


class CommandGroup(click.Group):
    """A click group that adds a suggestion to the error for an unknown subcommand."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the subcommand; the error for an unknown name suggests the nearest one."""
        # click suggests only commands that are registered already; commands imported on demand are not.
        is_option = args[0].startswith("-")
        if not is_option and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            raise click.NoSuchCommand(args[0], possibilities=self.list_commands(ctx), ctx=ctx)
        return super().resolve_command(ctx, args)
