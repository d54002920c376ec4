"""Kafka's own tools, with their names, options and output, on the functions of `felice.cli`.

Each module is one tool. An option of the original that is missing here is in the table of `left_out`: the tool's help
names it, and using it is refused with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

import click
from click.core import ParameterSource

from felice import __version__
from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.kafka_tools.left_out import LEFT_OUT
from felice.cli.main import run_process

Declaration = Callable[..., None]

bootstrap_server_option = click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT,…", help="Brokers to connect to first."
)


class Tool(click.Command):
    """A tool. It refuses options of `left_out`, with the reason."""

    def run(self) -> NoReturn:
        """Runs the tool as the whole process: its entry point. As with Kafka's tools, wrong usage exits with code 1."""
        run_process(self, usage_code=1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the command line, or the options before the subcommand."""
        with _naming_left_out(ctx):
            return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options, and those of Kafka's tool that are missing."""
        super().format_options(ctx, formatter)
        if rows := sorted(_left_out(ctx).items()):
            with formatter.section("Options of Kafka's tool that this one does not have"):
                formatter.write_dl(rows)


class ToolCommand(Tool):
    """A tool, or one of its subcommands. It refuses an option given twice, as Kafka's tools do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the command line, and checks it."""
        words = list(args)
        rest = super().parse_args(ctx, args)
        self._refuse_repeated(ctx, words)
        return rest

    def _refuse_repeated(self, ctx: click.Context, words: Sequence[str]) -> None:
        _, _, order = self.make_parser(ctx).parse_args(list(words))
        for parameter, count in Counter(order).items():
            if not isinstance(parameter, click.Option) or parameter.is_flag:
                continue
            used = sorted({word.partition("=")[0] for word in words} & set(parameter.opts))
            if len(used) > 1:
                raise Fault(f"Options {' and '.join(used)} cannot be specified together.")
            if count > 1 and not parameter.multiple:
                raise Fault(f"Option {used[0]} was given {count} times, but it has one value")


class ToolGroup(Tool, CommandGroup):
    """A tool with subcommands."""

    command_class = ToolCommand


@contextmanager
def _naming_left_out(ctx: click.Context) -> Iterator[None]:
    """Says why an option is left out, in place of click's `No such option`."""
    try:
        yield
    except click.NoSuchOption as error:
        if (reason := _left_out(ctx).get(error.option_name)) is not None:
            raise Fault(f"Felice's {_tool(ctx)} has no option {error.option_name}: {reason}") from None
        raise


def _tool(ctx: click.Context) -> str:
    return ctx.find_root().command.name or ""


def _left_out(ctx: click.Context) -> dict[str, str]:
    return LEFT_OUT.get(_tool(ctx), {})


def chosen_action(actions: Mapping[str, Collection[str]]) -> str:
    """The one action of the command line. `actions` has the names of the parameters that each takes.

    The flag of an action is the parameter of its name, or `do_` and its name. Refuses several actions, and the options
    of other actions.
    """
    given = click.get_current_context().params
    chosen = [action for action in actions if given.get(f"do_{action}", given.get(action))]
    if len(chosen) != 1:
        flags = ", ".join(f"--{action.replace('_', '-')}" for action in actions)
        raise Fault(f"Command must include exactly one action: {flags}")
    check_action(chosen[0], actions[chosen[0]])
    return chosen[0]


def check_action(action: str, allowed: Collection[str]) -> None:
    """Refuses the options of the command line that the action does not take. `allowed` has their parameters' names."""
    ctx = click.get_current_context()
    for parameter in ctx.command.params:
        name = str(parameter.name)
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE or name in allowed:
            continue
        if name not in (f"do_{action}", action, "bootstrap_server", "command_config"):
            raise Fault(f"Option {parameter.opts[0]} cannot be used with --{action.replace('_', '-')}")


def kafka_tool(name: str, kind: type[ToolCommand] = ToolCommand) -> Callable[[Declaration], click.Command]:
    """Declares a tool with the option --version, which all of Kafka's tools have."""
    return lambda declared: click.command(name, cls=kind)(_version_option(name)(declared))


def kafka_tool_group(name: str) -> Callable[[Declaration], CommandGroup]:
    """Declares a tool that has subcommands."""
    return lambda declared: click.group(name, ToolGroup)(_version_option(name)(declared))


def _version_option(name: str) -> Callable[[Declaration], Declaration]:
    return click.version_option(__version__, prog_name=name, message="%(prog)s (Felice) %(version)s")
