"""Completion in a real shell: the script that `felice completion` prints, and what it then offers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from felice.cli.completion import programs

BIN = Path(sys.executable).parent


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("felice top", "topics"),
        ("felice topics create flights --part", "--partitions"),
        ("felice configs describe br", "brokers"),
        ("kafka-topics --unavail", "--unavailable-partitions"),
    ],
)
def test_bash_completes_commands_options_and_values(words: str, offered: str) -> None:
    program, _, _ = words.partition(" ")
    function = f"_{program.replace('-', '_')}_completion"
    script = f"""
        eval "$(felice completion bash)"
        complete -p {program} > /dev/null || exit 1
        COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
        {function} {program}
        echo "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [offered]


def test_every_installed_program_is_completed() -> None:
    assert {"felice", "kafka-topics", "kafka-server-start"} <= set(programs())
