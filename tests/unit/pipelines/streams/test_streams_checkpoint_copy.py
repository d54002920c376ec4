"""A checkpoint's copy, from which another machine continues, and the lease that one machine at a time has."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.on_spark import lease
from felice.pipelines.streams.on_spark.checkpoint_copy import CheckpointCopy, check_address, describe
from felice.pipelines.streams.on_spark.directory import (
    Checkpoint,
    CheckpointError,
    Description,
    checkpoint_of,
)
from felice.pipelines.streams.on_spark.lease import Lease, valid_epoch
from felice.pipelines.streams.on_spark.lock import RunLock
from felice.pipelines.streams.on_spark.places import LocalPlace, Place, PlaceError, place_at
from waiting import wait_until

HOLDER = """
import sys, time
from pathlib import Path
from felice.pipelines.streams.on_spark.lease import Lease
Lease(Path(sys.argv[1]), sys.argv[2], "shop", lambda: 0).take()
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
    own = ("copied", "copy", "lease", "lock")
    return {name: path.read_text() for name, path in found.items() if path.name not in own}


def pushed(address: str) -> list[str]:
    return sorted(place_at(address).names())


def copy(directory: Path, address: str, application: str = "shop") -> CheckpointCopy:
    return CheckpointCopy(directory, address, application)


def test_another_directory_gets_what_a_start_needs(directory: Path, address: str, tmp_path: Path) -> None:
    fill(directory, 12)
    copy(directory, address).push(1)
    other = tmp_path / "other"
    # A run before has left this.
    fill(other, 20)
    write(other, "offsets/.19.crc", "checksum")
    write(other, "sources/2/0", "v1\n7")
    write(other, ".metadata.crc", "checksum")
    write(other, "felice-streams/starting.json", "{}")
    assert copy(other, address).pull()
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
    assert not copy(directory, address).pull()
    assert texts(directory) == before


def test_a_copy_that_is_gone_is_not_made_again_from_what_this_machine_has(
    directory: Path, address: str
) -> None:
    fill(directory, 2)
    copy(directory, address).push(1)
    place_at(address).remove("1-0.checkpoint")
    with pytest.raises(
        CheckpointError, match="has no copy of .* any more; to begin again, remove the directory"
    ):
        copy(directory, address).pull()


def test_a_copy_is_written_when_something_has_changed(directory: Path, address: str) -> None:
    fill(directory, 1)
    copy(directory, address).push(1)
    copy(directory, address).push(1)
    assert pushed(address) == ["1-0.checkpoint"]
    for batches in range(2, 13):
        fill(directory, batches)
        copy(directory, address).push(1)
    assert pushed(address) == ["1-10.checkpoint", "1-11.checkpoint"]


def test_copies_of_earlier_epochs_do_not_count(directory: Path, address: str, tmp_path: Path) -> None:
    fill(directory, 1)
    copy(directory, address).push(1)
    other = tmp_path / "other"
    assert copy(other, address).pull()
    # The new holder has taken over, and writes what it has found in its own epoch.
    copy(other, address).push(2)
    assert pushed(address) == ["2-0.checkpoint"]
    # The old one writes late.
    fill(directory, 5)
    copy(directory, address).push(1)
    assert copy(tmp_path / "third", address).pull()
    assert Checkpoint(tmp_path / "third").last_batches() == (0, -1)
    assert copy(other, address).latest_epoch() == 2


def test_an_attempt_that_was_cut_off_is_no_copy(directory: Path, address: str) -> None:
    fill(directory, 1)
    copy(directory, address).push(1)
    place_at(address).put(".1-1.checkpoint.mark", "x", lambda file: file.write(b"{"))
    assert copy(directory, address).pull()


@pytest.mark.parametrize(
    ("text", "reproach"),
    [
        ("{", "is damaged .*; remove it to continue from the one before"),
        ("[]", "is damaged"),
        ('{"format": 1, "application": "shop", "files": []}', "is damaged"),
        (
            '{"format": 2, "application": "shop", "files": {}}',
            r"another release of Felice \(format 2, this ",
        ),
        ('{"format": 1, "application": "shop", "files": {"../x": ""}}', r"names the file \.\./x"),
        ('{"format": 1, "application": "shop", "files": {"/x": ""}}', "names the file /x"),
        ('{"format": 1, "application": "till", "files": {}}', "is of the application 'till', not of 'shop'"),
        ('{"format": 1, "files": {}}', "is damaged"),
    ],
)
def test_what_is_no_copy_is_refused(directory: Path, address: str, text: str, reproach: str) -> None:
    fill(directory, 3)
    before = texts(directory)
    place_at(address).put("1-0.checkpoint", "x", lambda file: file.write(text.encode()))
    with pytest.raises(CheckpointError, match=reproach):
        copy(directory, address).pull()
    assert texts(directory) == before


def test_a_description_is_copied_and_the_directory_knows_its_copy(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: None
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = checkpoint_of("shop", address)
    assert checkpoint.path == tmp_path / "shop-checkpoint" and checkpoint.copy_address == address
    with RunLock(checkpoint, "shop"):
        describe(checkpoint, Description("shop", "topology", 2, {}))
    assert pushed(address) == ["1-0.checkpoint", "holder.json"]
    # Commands, and starts without an address, find the copy by the directory.
    assert checkpoint_of("shop", None).copy_address == address
    assert checkpoint_of("shop", tmp_path / "x").copy_address == ""
    with pytest.raises(
        CheckpointError, match="s3:bucket is no directory, and no address such as s3://BUCKET/PATH"
    ):
        checkpoint_of("shop", "s3:bucket")


def held(directory: Path, address: str) -> Lease:
    found = Lease(directory, address, "shop", lambda: 0)
    found.take()
    return found


def test_one_process_at_a_time_holds_the_lease(
    directory: Path, address: str, tmp_path: Path, patient: None
) -> None:
    first = held(directory, address)
    valid_epoch(directory)
    told: list[str] = []
    with pytest.raises(
        CheckpointError, match=f"shop is in use by process {os.getpid()} on {socket.gethostname()}"
    ):
        Lease(tmp_path / "other", address, "shop", lambda: 0).take(told.append)
    assert told == [f"waiting 2 s: process {os.getpid()} on {socket.gethostname()} may still run shop"]
    valid_epoch(directory)
    first.release()
    with pytest.raises(CheckpointError):
        valid_epoch(directory)
    began = time.monotonic()
    second = held(tmp_path / "other", address)
    assert time.monotonic() - began < 2.0
    assert (first.epoch, second.epoch) == (1, 2)
    second.release()


def test_a_process_of_this_machine_that_was_killed_is_replaced_at_once(directory: Path, address: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), address], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        process.send_signal(signal.SIGKILL)
    told: list[str] = []
    second = Lease(directory, address, "shop", lambda: 0)
    second.take(told.append)
    assert told == []
    valid_epoch(directory)
    second.release()


def elsewhere(monkeypatch: pytest.MonkeyPatch, *machines: str) -> None:
    """The next processes that write holders are on these machines, one after the other."""
    names = iter(machines)
    monkeypatch.setattr(lease, "id_of_machine", lambda: next(names, machines[-1]))


def test_a_silent_machine_is_replaced_and_starts_no_batch(
    directory: Path, address: str, tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as there:
        elsewhere(there, "there")
        first = held(directory, address)
        there.setattr(first, "_put", unreachable)
        began = time.monotonic()
        there.setattr(lease, "id_of_machine", lambda: "here")
        second = held(tmp_path / "other", address)
        assert time.monotonic() - began >= 2.0
    with pytest.raises(
        CheckpointError, match=r"has ended: (out of reach|process \d+ on \S+ has taken over); start"
    ):
        valid_epoch(directory)
    assert valid_epoch(tmp_path / "other") == 2
    # The first can write again, after the second has ended: it stays lost.
    second.release()
    time.sleep(1.5)
    with pytest.raises(CheckpointError, match="has ended"):
        valid_epoch(directory)
    first.release()
    assert json.loads(place_at(address).read("holder.json"))["epoch"] == 2


def unreachable(*_: object, **__: object) -> None:
    raise PlaceError("out of reach")


def test_a_machine_that_was_replaced_while_it_stood_still_does_not_come_back(
    directory: Path, address: str, tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere(monkeypatch, "there")
    first = held(directory, address)
    read = lease._read
    stands = threading.Event()

    def slow(place: Place) -> object:
        found = read(place)
        if threading.current_thread() is first._thread:
            stands.wait(20)  # Between its look at the holder and its next write.
        return found

    monkeypatch.setattr(lease, "_read", slow)
    time.sleep(0.2)
    monkeypatch.setattr(lease, "id_of_machine", lambda: "here")
    second = held(tmp_path / "other", address)
    stands.set()
    time.sleep(0.5)
    with pytest.raises(CheckpointError, match="has ended"):
        valid_epoch(directory)
    assert valid_epoch(tmp_path / "other") == second.epoch == 2
    first.release()
    second.release()


def test_a_holder_that_another_has_replaced_notices_it(directory: Path, address: str, patient: None) -> None:
    first = held(directory, address)
    other = json.dumps({"token": "other", "number": 1, "host": "far", "process": [1, "1"]})
    place_at(address).put("holder.json", "x", lambda file: file.write(other.encode()))

    def is_lost() -> bool:
        try:
            valid_epoch(directory)
        except CheckpointError as error:
            return "process 1 on far has taken over" in str(error)
        return False

    wait_until(is_lost)
    first.release()
    assert json.loads(place_at(address).read("holder.json"))["token"] == "other"


class Gaps(LocalPlace):
    """As HDFS: for a moment the file is absent while it is replaced."""

    def put(self, name: str, mark: str, write: Callable[[BinaryIO], object]) -> None:
        self._make_directory()
        self.remove(name)
        (self._path / f".{name}.{mark}").write_bytes(b"")
        time.sleep(0.03)
        super().put(name, mark, write)


def test_a_holder_that_replaces_its_file_has_not_released_it(
    directory: Path, tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "place_at", lambda address: Gaps(tmp_path / "far"))
    elsewhere(monkeypatch, "there")
    first = held(directory, "there")
    monkeypatch.setattr(lease, "id_of_machine", lambda: "here")
    # At the moment of the first look, the file is being replaced.
    seen = iter([None])
    read = lease._read
    monkeypatch.setattr(
        lease,
        "_read",
        lambda place: next(seen, read(place)) if threading.current_thread() is main else read(place),
    )
    main = threading.current_thread()
    with pytest.raises(CheckpointError, match="in use"):
        Lease(tmp_path / "other", "there", "shop", lambda: 0).take()
    first.release()


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield


def test_the_lock_takes_the_lease_and_the_copy(
    directory: Path, address: str, tmp_path: Path, locks: None, patient: None
) -> None:
    fill(tmp_path / "first", 3)
    copy(tmp_path / "first", address).push(4)
    with RunLock(Checkpoint(directory, address), "shop") as lock:
        assert Checkpoint(directory).last_batches() == (2, 1)
        assert valid_epoch(directory) == lock.epoch == 5
        assert pushed(address) == ["5-0.checkpoint", "holder.json"]
        with pytest.raises(CheckpointError, match="shop is in use by process"):
            RunLock(Checkpoint(tmp_path / "other", address), "shop").take()
        assert not (tmp_path / "other" / "offsets").exists()
    with RunLock(Checkpoint(tmp_path / "other", address), "shop"):
        assert Checkpoint(tmp_path / "other").last_batches() == (2, 1)


def test_a_lock_that_fails_gives_the_lease_back(directory: Path, address: str, locks: None) -> None:
    place_at(address).put("1-0.checkpoint", "x", lambda file: file.write(b"{"))
    for _ in range(2):
        with pytest.raises(CheckpointError, match="is damaged"):
            RunLock(Checkpoint(directory, address), "shop").take()
    # A reset needs not what the copy has.
    with RunLock(Checkpoint(directory, address), "shop", pulls=False):
        pass


@pytest.mark.parametrize(
    ("kept", "reproach"),
    [
        ("", "is a checkpoint without a copy: start it without an address"),
        ("file:///x", "with its copy at file:///x"),
    ],
)
def test_a_checkpoint_of_this_machine_is_not_replaced_by_a_copy(
    directory: Path, address: str, tmp_path: Path, locks: None, kept: str, reproach: str
) -> None:
    Checkpoint(directory, kept).describe(Description("shop", "topology", 2, {}))
    fill(tmp_path / "first", 3)
    copy(tmp_path / "first", address).push(1)
    with pytest.raises(CheckpointError, match=reproach):
        RunLock(Checkpoint(directory, address), "shop").take()
    assert Checkpoint(directory).last_batches() == (-1, -1)


def test_an_address_may_get_other_parameters(directory: Path, address: str, tmp_path: Path) -> None:
    Checkpoint(directory, f"{address}/?a=1").describe(Description("shop", "topology", 2, {}))
    check_address(Checkpoint(directory, f"{address}?b=2"))
