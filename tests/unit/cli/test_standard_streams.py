"""Commands whose standard streams are closed end in one line, or work."""

from __future__ import annotations

import subprocess
import sys

import pytest

from conformance.command_line import COMMAND_TIMEOUT_S

RUN = f'exec {sys.executable} -c "from felice.cli.main import main; main()" "$@"'
CLOSED = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]


def run(words: list[str], closed: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f"{RUN} {closed}", "sh", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("words", [["--help"], ["topics", "--help"], ["topics", "list", "-b", "127.0.0.1:1"]])
def test_a_command_works_or_says_why_not(words: list[str], closed: str) -> None:
    done = run(words, closed)
    assert done.returncode == ("--help" not in words)
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 1


@pytest.mark.parametrize(
    ("words", "closed", "line"),
    [
        (
            ["produce", "t", "-b", "127.0.0.1:1"],
            "<&-",
            "error: standard input is closed: there is nothing to read\n",
        ),
        (["decode-frame"], "<&-", "error: standard input is closed: there is nothing to read\n"),
        (
            ["consume", "t", "-b", "127.0.0.1:1", "-n", "1"],
            ">&-",
            "error: standard output is closed: there is nowhere to print records to\n",
        ),
    ],
)
def test_records_need_their_stream(words: list[str], closed: str, line: str) -> None:
    done = run(words, closed)
    assert (done.returncode, done.stderr) == (1, line)
