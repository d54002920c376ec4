"""The compiled codec is optional, and lets other threads run while it reads or writes a large message.

An extension of another version is left out, with a warning.
"""

import operator
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from felice.protocol import kernels
from felice.protocol.codec import encode
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

SCRIPT = """
import sys, types
if sys.argv[1] == "old":
    sys.modules["felice.protocol.kernels._kernels"] = types.ModuleType("_kernels")
from felice.protocol import kernels
from felice.protocol.codec import decode, encode
from felice.protocol.messages.heartbeat import HeartbeatRequest
message = HeartbeatRequest(group_id="group")
assert decode(HeartbeatRequest, encode(message, 4), 4) == message
print(kernels.IMPLEMENTATION)
"""


def run(directory: Path, argument: str, pure: str = "0") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FELICE_PURE": pure}
    command = [sys.executable, "-c", SCRIPT, argument]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=directory)


def test_an_extension_of_another_version_causes_a_warning(tmp_path: Path) -> None:
    done = run(tmp_path, "old")
    assert done.stdout.strip() == "plain"
    assert "RuntimeWarning: the compiled codec does not fit this version" in done.stderr


def test_the_plain_codec_can_be_chosen(tmp_path: Path) -> None:
    assert run(tmp_path, "", pure="1").stdout.strip() == "plain"


TOPICS = MetadataRequest(topics=[MetadataRequestTopic(name="topic") for _ in range(50_000)])
VERSION = 8


def read() -> Callable[[], object]:
    return partial(table().read, encode(TOPICS, VERSION), 0, 100_000)


def write() -> Callable[[], object]:
    return partial(table().write, TOPICS, b"")


def table() -> kernels.Table:
    found = kernels.table(MetadataRequest, VERSION)
    assert found is not None
    return found


@pytest.mark.skipif(kernels.IMPLEMENTATION == "plain", reason="threads take turns in plain Python anyway")
@pytest.mark.parametrize("work", [read, write])
def test_other_threads_run_while_a_large_message_is_read_or_written(
    work: Callable[[], Callable[[], object]],
) -> None:
    steps, is_done, job = [0], threading.Event(), work()
    look = partial(operator.getitem, steps, 0)

    def repeat() -> None:
        while not is_done.is_set():
            # One call of a built-in function: without a pause inside `job` no other thread runs between the looks.
            before, _, after = map(operator.call, (look, job, look))
            if after > before:
                is_done.set()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    for _ in range(50_000_000):
        steps[0] += 1
        if is_done.is_set():
            break
    was_paused = is_done.is_set()
    is_done.set()
    thread.join()
    assert was_paused
