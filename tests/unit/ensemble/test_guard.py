"""A node's process does not outlive the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from felice.ensemble import guard
from felice.ensemble.node import Node
from waiting import wait_until

# Takes the place of Java: reports that it runs, and that it was asked to end.
_SERVER = """#!/bin/sh
trap 'echo asked; exit 0' TERM
echo runs
while :; do sleep 0.05; done
"""
_STARTER = """
import sys, time
from pathlib import Path
from felice.ensemble.node import Node
directory = Path(sys.argv[1])
Node(1, "127.0.0.1", 1, directory, directory / "java", []).start()
print("started", flush=True)
time.sleep(600)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    java = tmp_path / "java"
    java.write_text(_SERVER)
    java.chmod(0o755)
    return tmp_path


def wait_said(directory: Path, word: str) -> None:
    wait_until(lambda: word in (directory / "output.log").read_text())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_its_starting_process_however_that_ends(
    directory: Path, how: signal.Signals
) -> None:
    command = [sys.executable, "-c", _STARTER, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "started\n"
        wait_said(directory, "runs")
        starter.send_signal(how)
    wait_said(directory, "asked")


@pytest.mark.parametrize("end", [Node.stop, Node.kill])
def test_the_guard_ends_with_a_stopped_process(directory: Path, end: object) -> None:
    node = Node(1, "127.0.0.1", 1, directory, directory / "java", [])
    node.start()
    wait_said(directory, "runs")
    left = node._guard
    assert left is not None and left.poll() is None
    assert callable(end)
    end(node)
    assert left.poll() is not None
    assert not node.is_running


def test_the_guard_ends_with_a_process_that_ended_by_itself(directory: Path) -> None:
    node = Node(1, "127.0.0.1", 1, directory, directory / "java", [])
    node.start()
    wait_said(directory, "runs")
    left = node._guard
    assert left is not None and node.pid is not None
    os.kill(node.pid, signal.SIGKILL)
    wait_until(lambda: not node.is_running)
    # From now on another process may have the same id.
    assert left.poll() is not None


def test_a_restarted_server_has_one_guard_process(directory: Path) -> None:
    node = Node(1, "127.0.0.1", 1, directory, directory / "java", [])
    node.start()
    first = node._guard
    assert first is not None and node._process is not None
    node._process.kill()
    node._process.wait()
    node.start()
    assert first.poll() is not None
    assert node._guard is not None and node._guard.args[4] == str(node.pid)  # type: ignore[index]
    node.kill()


@pytest.mark.parametrize(("trap", "code"), [("trap 'exit 3' TERM", 3), ("trap '' TERM", -signal.SIGKILL)])
def test_a_process_that_ignores_sigterm_is_killed(trap: str, code: int) -> None:
    program = f"{trap}; echo runs; while :; do sleep 0.05; done"
    with subprocess.Popen(["sh", "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        # The process is a zombie until this process, its parent, has waited for it.
        ending = threading.Thread(target=guard.end, args=(process.pid, 0.5 if code < 0 else 60.0))
        ending.start()
        assert process.wait(60) == code
        ending.join()


def test_a_process_that_has_ended_is_ignored() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    guard.end(process.pid, 0.1)
