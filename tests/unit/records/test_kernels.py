"""The choice between compiled and plain kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from felice.records import kernels

SCRIPT = """
from felice.records import kernels
from felice.records.builder import build_batch
from felice.records.reader import read_records
from felice.records.record import Record
assert list(read_records(build_batch([Record(0, 1, b"k", None)]))) == [Record(0, 1, b"k", None)]
print(kernels.IMPLEMENTATION, kernels.scan.__module__.rpartition(".")[2])
"""


def implementation(**variables: str) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip()


def test_the_plain_kernels_can_be_forced() -> None:
    assert implementation(FELICE_PURE="1") == "plain plain"


def test_compiled_kernels_are_preferred() -> None:
    pytest.importorskip("felice.records.kernels._kernels", reason="the extension was not built")
    for no in ("", "0"):
        assert implementation(FELICE_PURE=no) == "compiled _kernels"


def test_implementation_is_named() -> None:
    assert kernels.IMPLEMENTATION in ("compiled", "plain")


def test_an_extension_of_another_version_causes_a_warning(tmp_path: Path) -> None:
    old = "import sys, types; sys.modules['felice.records.kernels._kernels'] = types.ModuleType('_kernels')"
    done = subprocess.run(
        [sys.executable, "-c", f"{old}\n{SCRIPT}"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "plain plain"
    assert "RuntimeWarning: the compiled record kernels do not fit this version" in done.stderr
