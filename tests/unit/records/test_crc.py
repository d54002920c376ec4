"""CRC-32C: the right polynomial, however its module was loaded, and a cheap import."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

from felice.records import crc


def test_the_check_value_of_crc_32c_comes_out() -> None:
    assert crc.crc32c(b"123456789") == 0xE3069283
    assert crc.crc32c(memoryview(bytearray(b"123456789"))) == 0xE3069283


def test_a_package_with_another_layout_is_imported_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    find = PathFinder.find_spec

    def find_no_module(name: str, *arguments: object) -> object:
        return None if name == "crc32c._crc32c" else find(name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(crc.PathFinder, "find_spec", find_no_module)
    assert crc._load()(b"123456789") == 0xE3069283


def test_importing_the_log_does_not_import_slow_packages() -> None:
    script = "import felice.log.log, sys; print([m for m in ('importlib.metadata', 'argparse') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
