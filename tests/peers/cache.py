"""Where fetched peers live, and what a test does when one is missing.

Keeps true: a step is done again only when its inputs changed (a stamp file holds their digest), and two
processes never prepare at once.
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = REPOSITORY / "tests" / "conformance" / "programs"
PREPARE_HINT = "run `python tests/peers/prepare.py`"
FETCH_TIMEOUT_S = 600
T = TypeVar("T")


class PeerMissing(Exception):
    """A foreign tool is not here; the message says which and how to get it."""


def cache_dir() -> Path:
    return Path(os.environ.get("FELICE_PEERS") or REPOSITORY / ".peers").absolute()


@contextlib.contextmanager
def cache_locked() -> Iterator[Path]:
    directory = cache_dir()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def digest_of(*inputs: str | Path) -> str:
    digest = hashlib.sha256()
    for item in inputs:
        digest.update(item.read_bytes() if isinstance(item, Path) else item.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def is_stamped(directory: Path, digest: str) -> bool:
    stamp = directory / ".stamp"
    return stamp.exists() and stamp.read_text() == digest


def stamp(directory: Path, digest: str) -> None:
    (directory / ".stamp").write_text(digest)


def fetch(command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> None:
    """Run one step of a preparation; its output becomes the reason when it fails."""
    environment = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissing(f"`{' '.join(command)}` did not run: {error}") from error
    if done.returncode:
        tail = (done.stdout + done.stderr).strip()[-2000:]
        raise PeerMissing(f"`{' '.join(command)}` failed with {done.returncode}: {tail}")


def peers_are_required() -> bool:
    return bool(os.environ.get("CI")) or os.environ.get("FELICE_REQUIRE_PEERS") == "1"


def require(ecosystem: str, find: Callable[[], T]) -> T:
    """What `find` returns; where it is missing, skip by name, or fail where every peer was asked for."""
    try:
        return find()
    except PeerMissing as missing:
        reason = f"needs {ecosystem}: {missing}"
    if peers_are_required():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
