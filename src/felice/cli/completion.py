"""Shell completion for `felice` and for the tools with Kafka's names."""

from __future__ import annotations

from importlib.metadata import entry_points

import click

_SHELLS = ("bash", "zsh", "fish")


def programs() -> list[str]:
    """The commands that this package installs."""
    scripts = entry_points(group="console_scripts")
    return sorted(script.name for script in scripts if script.value.startswith("felice.cli."))


def completion_script(shell: str, program: str) -> str:
    """The script that makes `shell` complete `program`."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "one of _SHELLS"
    variable = f"_{program}_COMPLETE".replace("-", "_").upper()
    # The script runs the program for its suggestions; click needs only the name here.
    return kind(click.Command(program), {}, program, variable).source()


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print a script that makes a shell complete commands, options and values.

    \b
    eval "$(felice completion bash)"                 in this shell; in ~/.bashrc for every one
    eval "$(felice completion zsh)"
    felice completion fish | source
    """
    for program in programs():
        click.echo(completion_script(shell, program))
