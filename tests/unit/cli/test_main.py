from __future__ import annotations

import signal

import click
import pytest

from felice.cli import main


def test_a_signal_in_the_making_of_a_class_ends_the_command_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Noted:
        def __set_name__(self, owner: type, name: str) -> None:
            signal.default_int_handler(signal.SIGTERM, None)

    @click.command()
    def command() -> None:
        type("Made", (), {"attribute": Noted()})

    assert main.run(command, []) == 130
    assert capsys.readouterr().err.strip() == ""
