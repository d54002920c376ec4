"""Files that an interrupted cleaner left, and files whose names have no base offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from felice.env import SystemDisk
from felice.log.files import OpenFiles
from felice.log.segment_swap import finish


def names_after(directory: Path, *names: str) -> list[str]:
    for name in names:
        (directory / name).touch()
    return sorted(finish(OpenFiles(SystemDisk()), directory))


def test_a_directory_without_such_files_stays_as_it_is(tmp_path: Path) -> None:
    assert names_after(tmp_path, "00000000000000000000.log", "x.index") == [
        "00000000000000000000.log",
        "x.index",
    ]


@pytest.mark.parametrize(
    "cleaned", ["00000000000000000005.log.cleaned", "00000000000000000004.index.cleaned"]
)
def test_an_incomplete_renaming_drops_the_files_from_its_base_offset_on(tmp_path: Path, cleaned: str) -> None:
    assert names_after(tmp_path, cleaned, "00000000000000000005.timeindex.swap") == []


def test_a_cleaned_file_without_base_offset_counts_as_the_first(tmp_path: Path) -> None:
    assert names_after(tmp_path, "junk.cleaned", "00000000000000000000.timeindex.swap") == []
