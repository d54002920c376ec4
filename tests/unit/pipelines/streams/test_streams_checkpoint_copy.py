"""A checkpoint's copy, from which another machine continues, and the lease that one machine at a time has."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.on_spark import lease
from felice.pipelines.streams.on_spark.checkpoint_copy import CheckpointCopy, describe
from felice.pipelines.streams.on_spark.directory import (
    Checkpoint,
    CheckpointError,
    Description,
    checkpoint_of,
)
from felice.pipelines.streams.on_spark.lease import Lease, check_lease
from felice.pipelines.streams.on_spark.lock import RunLock
from felice.pipelines.streams.on_spark.places import LocalPlace, PlaceError, place_at
from waiting import wait_until

HOLDER = """
import sys, time
from pathlib import Path
from felice.pipelines.streams.on_spark.lease import Lease
Lease(Path(sys.argv[1]), sys.argv[2], "shop").take()
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/far"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "here"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that ends soon."""
    for name, seconds in {"WRITTEN_EVERY_S": 0.05, "VALID_FOR_S": 1.0, "TAKEN_OVER_AFTER_S": 2.0}.items():
        monkeypatch.setattr(lease, name, seconds)
    monkeypatch.setattr(lease, "_POLL_S", 0.02)


def fill(directory: Path, batches: int, application: str = "shop") -> None:
    Checkpoint(directory).describe(Description(application, "topology", 2, {}))
    write(directory, "metadata", '{"id":"query"}')
    write(directory, "sources/1/0", "v1\n0")
    for number in range(batches):
        write(directory, f"offsets/{number}", f"v1\n{{}}\n{number}")
        write(directory, f"commits/{number - 1}", "v1\n{}") if number else None


def write(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def texts(directory: Path) -> dict[str, str]:
    """The files, without those that tell what this machine does."""
    found = {str(path.relative_to(directory)): path for path in directory.rglob("*") if path.is_file()}
    own = ("copied", "lease", "lock")
    return {name: path.read_text() for name, path in found.items() if path.name not in own}


def pushed(address: str) -> list[str]:
    return sorted(place_at(address).names())


def test_another_directory_gets_what_a_start_needs(directory: Path, address: str, tmp_path: Path) -> None:
    fill(directory, 12)
    CheckpointCopy(directory, address).push()
    other = tmp_path / "other"
    # A run before has left this.
    fill(other, 20)
    write(other, "offsets/.19.crc", "checksum")
    write(other, "sources/2/0", "v1\n7")
    write(other, ".metadata.crc", "checksum")
    assert CheckpointCopy(other, address).pull("shop")
    found = texts(directory)
    kept = {
        name
        for name in found
        if name.partition("/")[0] not in ("offsets", "commits")
        or name in ("offsets/10", "offsets/11", "commits/9", "commits/10")
    }
    assert texts(other) == {name: found[name] for name in kept}
    assert Checkpoint(other).last_batches() == (11, 10)


def test_without_a_copy_the_directory_stays(directory: Path, address: str) -> None:
    fill(directory, 2)
    before = texts(directory)
    assert not CheckpointCopy(directory, address).pull("shop")
    assert texts(directory) == before


def test_a_copy_is_written_when_something_has_changed(directory: Path, address: str) -> None:
    fill(directory, 1)
    copy = CheckpointCopy(directory, address)
    copy.push()
    copy.push()
    assert pushed(address) == ["1.checkpoint"]
    fill(directory, 2)
    # Another process of this machine.
    CheckpointCopy(directory, address).push()
    assert pushed(address) == ["1.checkpoint", "2.checkpoint"]
    for batches in range(3, 13):
        fill(directory, batches)
        copy.push()
    assert pushed(address) == ["10.checkpoint", "11.checkpoint", "12.checkpoint"]


def test_a_directory_that_has_not_written_the_copy_goes_on_from_its_number(
    directory: Path, address: str, tmp_path: Path
) -> None:
    fill(directory, 1)
    CheckpointCopy(directory, address).push()
    other = tmp_path / "other"
    fill(other, 2)
    CheckpointCopy(other, address).push()
    assert pushed(address) == ["1.checkpoint", "2.checkpoint"]
    assert CheckpointCopy(directory, address).pull("shop")
    assert Checkpoint(directory).last_batches() == (1, 0)
    fill(directory, 3)
    CheckpointCopy(directory, address).push()
    assert pushed(address)[-1] == "3.checkpoint"


def test_an_attempt_that_was_cut_off_is_no_copy(directory: Path, address: str) -> None:
    fill(directory, 1)
    CheckpointCopy(directory, address).push()
    place_at(address).put(".2.checkpoint.mark", "x", lambda file: file.write(b"{"))
    assert CheckpointCopy(directory, address).pull("shop")


@pytest.mark.parametrize(
    ("text", "reproach"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 1, "files": []}', "is damaged"),
        ('{"format": 2, "files": {}}', r"another release of Felice \(format 2, this release: 1\)"),
        ('{"format": 1, "files": {"../x": ""}}', r"names the file \.\./x"),
        ('{"format": 1, "files": {"/x": ""}}', "names the file /x"),
        ('{"format": 1, "files": {}}', "has the checkpoint of None, not of shop"),
    ],
)
def test_what_is_no_copy_is_refused(directory: Path, address: str, text: str, reproach: str) -> None:
    fill(directory, 3)
    before = texts(directory)
    place_at(address).put("1.checkpoint", "x", lambda file: file.write(text.encode()))
    with pytest.raises(CheckpointError, match=reproach):
        CheckpointCopy(directory, address).pull("shop")
    assert texts(directory) == before


def test_the_copy_of_another_application_is_refused(directory: Path, address: str, tmp_path: Path) -> None:
    fill(tmp_path / "other", 3, "till")
    CheckpointCopy(tmp_path / "other", address).push()
    fill(directory, 1)
    before = texts(directory)
    with pytest.raises(CheckpointError, match="has the checkpoint of till, not of shop"):
        CheckpointCopy(directory, address).pull("shop")
    assert texts(directory) == before


def test_a_description_is_copied_and_names_its_copy(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = checkpoint_of("shop", address)
    assert checkpoint.path == tmp_path / "shop-checkpoint" and checkpoint.copy_address == address
    describe(checkpoint, Description("shop", "topology", 2, {}, copy_at=address))
    assert pushed(address) == ["1.checkpoint"]
    # Commands find the copy by the directory.
    assert checkpoint_of("shop", None).copy_address == address
    assert checkpoint_of("shop", tmp_path / "x").copy_address == ""


def held(directory: Path, address: str) -> Lease:
    found = Lease(directory, address, "shop")
    found.take()
    return found


def test_one_process_at_a_time_holds_the_lease(
    directory: Path, address: str, tmp_path: Path, patient: None
) -> None:
    first = held(directory, address)
    check_lease(directory)
    told: list[str] = []
    with pytest.raises(
        CheckpointError, match=f"shop is in use by process {os.getpid()} on {socket.gethostname()}"
    ):
        Lease(tmp_path / "other", address, "shop").take(told.append)
    assert told == [f"waiting 2 s: process {os.getpid()} on {socket.gethostname()} may still run shop"]
    check_lease(directory)
    first.release()
    with pytest.raises(CheckpointError):
        check_lease(directory)
    began = time.monotonic()
    second = held(tmp_path / "other", address)
    assert time.monotonic() - began < 2.0
    second.release()
    assert "holder.json" not in place_at(address).names()


def test_a_process_of_this_machine_that_was_killed_is_replaced_at_once(directory: Path, address: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), address], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        process.send_signal(signal.SIGKILL)
    told: list[str] = []
    second = Lease(directory, address, "shop")
    second.take(told.append)
    assert told == []
    check_lease(directory)
    second.release()


def test_a_silent_machine_is_replaced_and_starts_no_batch(
    directory: Path, address: str, tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        first = held(directory, address)
    monkeypatch.setattr(first, "_write", unreachable)
    began = time.monotonic()
    second = held(tmp_path / "other", address)
    assert time.monotonic() - began >= 2.0
    # It can write again, and finds the other.
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="could not be written for|another process has taken over"):
        check_lease(directory)
    check_lease(tmp_path / "other")
    first.release()
    check_lease(tmp_path / "other")
    second.release()


def unreachable(*_: object) -> None:
    raise PlaceError("out of reach")


def test_a_holder_that_another_has_replaced_notices_it(directory: Path, address: str, patient: None) -> None:
    first = held(directory, address)
    other = json.dumps({"token": "other", "number": 1, "host": "elsewhere", "process": [1, "1"]})
    place_at(address).put("holder.json", "x", lambda file: file.write(other.encode()))

    def is_lost() -> bool:
        try:
            check_lease(directory)
        except CheckpointError:
            return True
        return False

    wait_until(is_lost)
    first.release()
    assert json.loads(place_at(address).read("holder.json"))["token"] == "other"


class Gaps(LocalPlace):
    """As HDFS: for a moment the file is absent while it is replaced."""

    def put(self, name: str, mark: str, write: Callable[[BinaryIO], object]) -> None:
        self.remove(name)
        time.sleep(0.03)
        super().put(name, mark, write)


def test_a_holder_that_replaces_its_file_has_not_released_it(
    directory: Path, tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "place_at", lambda address: Gaps(tmp_path / "far"))
    monkeypatch.setattr(socket, "gethostname", iter_names())
    first = held(directory, "there")
    with pytest.raises(CheckpointError, match="in use"):
        Lease(tmp_path / "other", "there", "shop").take()
    first.release()


def iter_names() -> Callable[[], str]:
    names = iter(["one", *["two"] * 1000])
    return lambda: next(names)


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield


def test_the_lock_takes_the_lease_and_the_copy(
    directory: Path, address: str, tmp_path: Path, locks: None, patient: None
) -> None:
    fill(tmp_path / "first", 3)
    CheckpointCopy(tmp_path / "first", address).push()
    with RunLock(Checkpoint(directory, address), "shop"):
        assert Checkpoint(directory).last_batches() == (2, 1)
        check_lease(directory)
        with pytest.raises(CheckpointError, match="shop is in use by process"):
            RunLock(Checkpoint(tmp_path / "other", address), "shop").take()
        assert not (tmp_path / "other" / "offsets").exists()
    with RunLock(Checkpoint(tmp_path / "other", address), "shop"):
        assert Checkpoint(tmp_path / "other").last_batches() == (2, 1)


def test_a_lock_that_fails_gives_the_lease_back(directory: Path, address: str, locks: None) -> None:
    place_at(address).put("1.checkpoint", "x", lambda file: file.write(b"{"))
    for _ in range(2):
        with pytest.raises(CheckpointError, match="is damaged"):
            RunLock(Checkpoint(directory, address), "shop").take()
    assert "holder.json" not in place_at(address).names()
