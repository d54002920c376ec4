"""Memory that was freed is used again without asking the kernel for it."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from felice.env.malloc import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit(77)
for turn in range(105):
    if turn == 5:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    first, second = bytearray(1 << 20), bytearray(1 << 20)
    del first, second
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str, **variables: str) -> int | None:
    """Page faults of 100 times two megabytes; None if the setting does not exist."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", PROGRAM, mode]
    done = subprocess.run(
        command, env={**environment, **variables}, capture_output=True, text=True, timeout=60
    )
    if done.returncode == 77:
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_kept_memory_is_not_fetched_from_the_kernel_again() -> None:
    kept, returned = faults("keep"), faults("return")
    if kept is None:
        pytest.skip("needs glibc")
    assert returned is not None
    assert kept < 1000 < returned


def test_the_users_own_limits_stay() -> None:
    assert faults("keep", MALLOC_TRIM_THRESHOLD_="1000000") is None
