"""Whose a checkpoint is, and that one process at a time runs its application."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.on_spark import lock as locking
from felice.pipelines.streams.on_spark.directory import (
    Checkpoint,
    CheckpointError,
    Description,
    checkpoints_below,
)
from felice.pipelines.streams.on_spark.lock import RunLock, holder_of, is_running
from felice.pipelines.streams.on_spark.runner import described
from felice.streams import App, TopologyError
from waiting import wait_until

HOLDER = """
import sys, time
from pathlib import Path
from felice.pipelines.streams.on_spark.directory import Checkpoint
from felice.pipelines.streams.on_spark.lock import RunLock
with RunLock(Checkpoint(Path(sys.argv[1])), "shop", "broker:1"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def app(name: str = "shop", count: str | None = None) -> App:
    made = App(name)
    made.stream("in").group_by_key().count(name=count).to("out")
    return made


def test_a_second_run_is_refused_until_the_first_has_crashed(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "a")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(checkpoint.path)], stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        assert is_running(checkpoint)
        for path, cluster in ((tmp_path / "a", "other"), (tmp_path / "elsewhere", "broker:1")):
            with (
                pytest.raises(
                    CheckpointError, match=f"shop is in use by process {first.pid} on .*felice streams stop"
                ),
                RunLock(Checkpoint(path), "shop", cluster),
            ):
                pass
        with RunLock(Checkpoint(tmp_path / "elsewhere"), "shop", "another cluster"):
            pass
        first.send_signal(signal.SIGKILL)
    assert not is_running(checkpoint)
    with RunLock(checkpoint, "shop", "broker:1"):
        assert holder_of(checkpoint).startswith(f"process {os.getpid()} on ")


def test_a_lock_that_is_refused_leaves_no_other_lock(tmp_path: Path) -> None:
    one, other = Checkpoint(tmp_path / "one"), Checkpoint(tmp_path / "other")
    with RunLock(one, "shop", "broker:1"), pytest.raises(CheckpointError), RunLock(other, "shop", "broker:1"):
        pass
    assert not is_running(other)


def test_the_next_run_waits_for_the_java_of_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(tmp_path)
    with subprocess.Popen(["sleep", "600"]) as java:
        with RunLock(checkpoint, "shop") as lock:
            lock.note_java(java.pid)
        monkeypatch.setattr(locking, "JAVA_ENDS_WITHIN_S", 0.1)
        with (
            pytest.raises(CheckpointError, match=f"process {java.pid}, Spark's Java"),
            RunLock(checkpoint, "shop"),
        ):
            pass
        monkeypatch.setattr(locking, "JAVA_ENDS_WITHIN_S", 600)
        taken = threading.Event()

        def take() -> None:
            with RunLock(checkpoint, "shop"):
                taken.set()

        waiting = threading.Thread(target=take)
        waiting.start()
        assert not taken.wait(0.3)
        java.kill()
        java.wait()
        wait_until(taken.is_set)
        waiting.join()


def test_a_process_with_the_number_of_an_earlier_java_is_another(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    with RunLock(checkpoint, "shop") as lock:
        lock.note_java(os.getpid())
    path = checkpoint.directory / "lock"
    holder = json.loads(path.read_text())
    path.write_text(json.dumps(holder | {"java": [os.getpid(), "1"]}))
    with RunLock(checkpoint, "shop"):
        pass


def test_a_checkpoint_belongs_to_one_application_topology_and_number_of_partitions(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert described(app(), checkpoint, 3).partitions == 3
    assert described(app(), checkpoint, 5).partitions == 3
    assert described(app(), checkpoint, 5, 3).partitions == 3
    with pytest.raises(
        CheckpointError, match="shop has 3 partitions; .*felice streams rescale FILE --partitions 5"
    ):
        described(app(), checkpoint, 3, 5)
    with pytest.raises(CheckpointError, match="belongs to the application 'shop'"):
        described(app("other"), checkpoint, 3)
    with pytest.raises(
        CheckpointError, match="belongs to another version of this application, with other stores"
    ):
        described(app(count="other"), checkpoint, 3)
    with pytest.raises(TopologyError, match="idle does nothing with its records"):
        described(App("idle"), Checkpoint(tmp_path / "new"), 3)


def test_the_first_start_may_begin_elsewhere(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.start_from({"startingOffsets": "latest"})
    assert described(app(), checkpoint, 3).starting == {"startingOffsets": "latest"}


def test_checkpoints_of_others_are_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(CheckpointError, match="is the checkpoint of another query of Spark"):
        described(app(), checkpoint, 3)
    checkpoint.describe(replace(Description("shop", "", 3, {}), format=1))
    with pytest.raises(
        CheckpointError, match=r"another release of Felice \(format 1; this release reads formats 2 and 3\)"
    ):
        described(app(), checkpoint, 3)
    (checkpoint.directory / "application.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"application\.json is damaged"):
        described(app(), checkpoint, 3)


def test_spark_says_which_batches_are_planned_and_done(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.last_batches() == (-1, -1)
    for name in ("offsets/9", "offsets/10", "offsets/.10.crc", "commits/9"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert checkpoint.last_batches() == (10, 9)


def test_checkpoints_are_found_in_a_directory_and_as_the_directory(tmp_path: Path) -> None:
    for name in ("b", "a"):
        Checkpoint(tmp_path / name).describe(Description(name, "", 1, {}))
    (tmp_path / "c").mkdir()
    assert [one.path.name for one in checkpoints_below(tmp_path)] == ["a", "b"]
    assert [one.path.name for one in checkpoints_below(tmp_path / "a")] == ["a"]
