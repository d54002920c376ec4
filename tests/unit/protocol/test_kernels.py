"""The compiled codec is optional: an extension of another version is left out, with a warning."""

import os
import subprocess
import sys
from pathlib import Path

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
