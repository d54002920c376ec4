"""A directory passes from one process to another: asked for, refused, or left by a process that was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from felice.pipelines.streams.on_spark.handover import Held, hold

HOLDER = """
import signal, sys
from pathlib import Path
from felice.pipelines.streams.on_spark.handover import hold

def give_up(request):
    print(request.decode(), flush=True)
    if sys.argv[2] == "True":
        held.release()
    return sys.argv[2] == "True"

held = hold(Path(sys.argv[1]), b"first", give_up)
print(held.path.name, flush=True)
signal.pause()
"""


@contextmanager
def holding(directory: Path, *, gives_up: bool) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a directory until it is asked, or for ever. It prints the directory, then the requests."""
    command = [sys.executable, "-c", HOLDER, str(directory), str(gives_up)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
            yield process
        finally:
            process.kill()


def refuse(request: bytes) -> bool:
    return False


def test_a_process_gives_its_directory_up_when_it_is_asked(tmp_path: Path) -> None:
    with holding(tmp_path, gives_up=True) as process:
        held = hold(tmp_path, b"version 7", refuse)
        assert process.stdout is not None
        assert (held.path, process.stdout.readline()) == (tmp_path / "0", "version 7\n")
        held.release()
        again = hold(tmp_path, b"", refuse)
        assert again.path == tmp_path / "0"
        again.release()


def test_a_process_that_needs_its_directory_keeps_it(tmp_path: Path) -> None:
    with holding(tmp_path, gives_up=False):
        held = hold(tmp_path, b"", refuse)
        assert held.path == tmp_path / "1"
        held.release()


def test_the_directory_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with holding(tmp_path, gives_up=False) as process:
        process.kill()
        process.wait()
        held = hold(tmp_path, b"", refuse)
        assert held.path == tmp_path / "0"
        held.release()


def test_a_directory_with_a_long_path(tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*["a" * 100] * 3)
    held: list[Held] = []

    def give_up(request: bytes) -> bool:
        held[0].release()
        return True

    held.append(hold(directory, b"", give_up))
    other = hold(directory, b"", refuse)
    assert other.path == held[0].path
    other.release()


@pytest.mark.parametrize("request_", [b"", b"x" * 5000])
def test_a_request_that_says_nothing_is_passed_on_and_refused(tmp_path: Path, request_: bytes) -> None:
    found = []

    def give_up(request: bytes) -> bool:
        found.append(request)
        return False

    held = hold(tmp_path, b"", give_up)
    other = hold(tmp_path, request_, give_up)
    assert other.path.name == "1"
    assert all(request_.startswith(one) for one in found)
    held.release()
    other.release()


def test_without_a_place_for_sockets_each_process_has_its_own_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    held, other = (hold(tmp_path, b"", lambda request: True) for _ in range(2))
    assert (held.path.name, other.path.name) == ("0", "1")
    held.release()
    other.release()
