"""The prompt of `felice sql`, in a process of its own with a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from felice.pipelines.sql.shell.console import history_file
from interrupts import heed_interrupts
from sql_server import ENDLESS, FakeServer, rows, serving
from waiting import LIMIT_S, wait_until

pytest.importorskip("prompt_toolkit")

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>]|\][^\x07]*\x07)")


class Terminal:
    """The keyboard and the screen of a process."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process, self._descriptor = process, descriptor
        self.shown = ""
        """What was shown since the last text that was expected."""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def shows(self, expected: str, timeout_s: float = LIMIT_S) -> bool:
        """Reads until a text is shown; False if it is not shown in time."""
        while expected not in self.shown:
            ready, _, _ = select.select([self._descriptor], [], [], timeout_s)
            if not ready:
                return False
            try:
                self.shown = _ESCAPES.sub("", self.shown + os.read(self._descriptor, 65_536).decode())
            except OSError:  # the process has ended
                return False
        self.shown = self.shown.partition(expected)[2]
        return True

    def expect(self, expected: str) -> None:
        assert self.shows(expected), f"{expected!r} is not shown, but {self.shown!r}"


@contextmanager
def prompt(server: FakeServer, state: Path) -> Iterator[Terminal]:
    outer, inner = pty.openpty()
    termios.tcsetwinsize(inner, (24, 80))

    def take_terminal() -> None:
        heed_interrupts()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(state),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",  # nobody would answer where the cursor is
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "felice.cli.main", "sql", server.url],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env=environment,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(inner)
    try:
        yield Terminal(process, outer)
    finally:
        process.kill()
        process.wait()
        os.close(outer)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as found:
        found.answers["LIST STREAMS"] = [{"@type": "streams", "streams": [{"name": "ORDERS", "topic": "o"}]}]
        found.answers["SHOW\nSTREAMS"] = found.answers["LIST STREAMS"]
        found.answers["SELECT * FROM ORDERS EMIT CHANGES"] = [*rows(["a", [1]]), ENDLESS]
        yield found


def test_a_conversation(server: FakeServer, tmp_path: Path) -> None:
    with prompt(server, tmp_path) as terminal:
        terminal.expect("with the server 7.9 at http://127.0.0.1:")
        terminal.expect("ksql>")
        # A statement of two lines.
        terminal.type("SHOW\r")
        terminal.expect("    >")
        terminal.type("STREAMS;\r")
        terminal.expect(" Stream Name | Kafka Topic")
        terminal.expect("ORDERS")
        terminal.expect("ksql>")

        # The names come a little later than the prompt. Ctrl-U clears the line.
        def is_completed() -> bool:
            terminal.type("\x15DROP STREAM ORD\t")
            return terminal.shows("DROP STREAM ORDERS", 0.5)

        wait_until(is_completed)
        terminal.type(";\r")
        wait_until(lambda: "DROP STREAM ORDERS;" in server.statements)
        terminal.expect("ksql>")

        # Ctrl-C ends the query, then the line, but not the shell.
        terminal.type("SELECT * FROM ORDERS EMIT CHANGES;\r")
        terminal.expect("Press CTRL-C to interrupt")
        terminal.expect("[1]")
        assert not server.query_ended.is_set()
        terminal.type("\x03")
        terminal.expect("Query terminated")
        assert server.query_ended.wait(LIMIT_S)
        terminal.expect("ksql>")
        terminal.type("DROP STREAM s\x03")
        terminal.expect("ksql>")
        terminal.type(" DROP STREAM secret;\r")
        wait_until(lambda: "DROP STREAM secret;" in server.statements)
        terminal.expect("ksql>")
        terminal.type("exit\r")
        assert terminal.process.wait(LIMIT_S) == 0
    history = tmp_path / "felice" / "sql_history"
    kept = history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    assert "+SHOW\n+STREAMS;" in kept and "secret" not in kept


@pytest.mark.parametrize(("end", "status"), [("\x04", 0), ("", 143)])
def test_the_end_of_the_input_and_a_signal_end_the_shell(
    server: FakeServer, tmp_path: Path, end: str, status: int
) -> None:
    with prompt(server, tmp_path) as terminal:
        terminal.expect("ksql>")
        if end:
            terminal.type(end)
        else:
            terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(LIMIT_S) == status


def test_ctrl_c_ends_statements_of_an_option(server: FakeServer) -> None:
    statements = "SELECT * FROM ORDERS EMIT CHANGES; SHOW TABLES;"
    words = [sys.executable, "-m", "felice.cli.main", "sql", server.url, "-e", statements]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    assert process.stdout is not None
    while "[1]" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, error.strip()) == (130, "")
    assert server.query_ended.wait(LIMIT_S)
    assert len(server.statements) == 1


def test_the_history_is_among_the_users_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert history_file() == Path("/state/felice/sql_history")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/ann")
    assert history_file() == Path("/home/ann/.local/state/felice/sql_history")
