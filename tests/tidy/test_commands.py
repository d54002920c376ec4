"""Every command says what it does, shows an example that works as written, and explains every option."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from felice import __version__
from felice.cli.command_group import CommandGroup
from felice.cli.sql_shell import ServerGroup
from tidy.commands import PYPROJECT, all_commands, programs

COMMANDS = dict(all_commands())


def examples(command: click.Command, words: str) -> Iterator[str]:
    """The lines of the help text that a reader would copy; a backslash joins a line to the next."""
    text = re.sub(r"\\\n\s*", " ", command.help or "")
    for line in text.splitlines():
        found = re.search(rf"(?:^|\| |\$\()({re.escape(words.split()[0])}\b[^|>&)]*)", line.strip())
        if found:
            yield re.split(r"\s{3,}", found[1].strip())[0].strip('"')


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_a_sentence_and_an_example(words: str) -> None:
    command = COMMANDS[words]
    assert re.match(r"[A-Z].*\.$", (command.help or "").splitlines()[0]), command.help
    own = [line for line in examples(command, words) if set(words.split()) <= set(line.split())]
    assert own, f"the help of `{words}` shows no example of it"


@pytest.mark.parametrize("words", COMMANDS)
def test_every_example_is_accepted(words: str) -> None:
    """As far as it can be told without a broker: subcommands, options and arguments are those that there are."""
    for example in examples(COMMANDS[words], words):
        program, *arguments = shlex.split(example)
        context = click.Context(programs()[program], info_name=program)
        parse(programs()[program], arguments, context)


def parse(command: click.Command, arguments: list[str], parent: click.Context) -> None:
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    if isinstance(command, ServerGroup):
        arguments = command.with_server_option(parent, arguments)
    if isinstance(command, click.Group):
        position = next(
            (i for i, word in enumerate(arguments) if not _is_option(command, arguments, i)), None
        )
        if position is not None:
            child = command.get_command(parent, arguments[position])
            assert child is not None, f"{command.name} has no subcommand {arguments[position]}"
            parse(child, arguments[position + 1 :], click.Context(child, parent, arguments[position]))
            arguments = arguments[:position]
    for word in arguments:
        if word.startswith("-") and not re.fullmatch(r"-\d+", word):
            assert word.partition("=")[0] in options, f"{command.name} has no option {word}"


def _is_option(group: click.Group, arguments: list[str], position: int) -> bool:
    """Whether a word is an option of the group itself, or its value."""
    if arguments[position].startswith("-"):
        return True
    before = arguments[position - 1] if position else ""
    takes_value = {
        name for p in group.params if isinstance(p, click.Option) and not p.is_flag for name in p.opts
    }
    return before in takes_value


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_has_a_help_text(words: str) -> None:
    options = [found for found in COMMANDS[words].params if isinstance(found, click.Option)]
    assert [found.opts[0] for found in options if not found.hidden and not found.help] == []


@pytest.mark.parametrize("words", [w for w, c in COMMANDS.items() if isinstance(c, click.Group)])
def test_a_slip_in_a_subcommand_gets_a_suggestion(words: str) -> None:
    group = COMMANDS[words]
    assert isinstance(group, CommandGroup)
    for meant in group.list_commands(click.Context(group)):
        slip = meant[:-1] if len(meant) > 3 else meant + "x"
        with pytest.raises(click.NoSuchCommand) as refused:
            group.resolve_command(click.Context(group), [slip])
        assert f"'{meant}'" in refused.value.format_message().partition("Did you mean")[2]


@pytest.mark.parametrize("name", programs())
def test_every_program_says_its_version(name: str) -> None:
    outcome = CliRunner().invoke(programs()[name], ["--version"])
    assert (outcome.exit_code, __version__ in outcome.output, name in outcome.output) == (0, True, True)


def test_the_tagline_is_the_same_everywhere() -> None:
    tagline = tomllib.loads(PYPROJECT.read_text())["project"]["description"]
    assert f"**{tagline}**" in (PYPROJECT.parent / "README.md").read_text()
    assert (programs()["felice"].help or "").splitlines()[0] == tagline
