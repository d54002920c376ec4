"""Which files of a partition are linked: only those that nobody writes again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from felice.migration.partition_files import Trust, choose

SEGMENTS = [
    f"{base:020}{suffix}"
    for base in (0, 100, 200)
    for suffix in (".index", ".log", ".timeindex", ".txnindex")
]
NAMES = sorted(
    [
        *SEGMENTS,
        f"{200:020}.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
        f"{50:020}.log.deleted",
    ]
)
CLEAN = Trust(recovery_point=300, high_watermark=300, was_clean=True)


def linked(trust: Trust, *more: str) -> list[int]:
    return [int(file.name[:20]) for file in choose([*NAMES, *more], trust) if file.is_linked]


def taken(trust: Trust) -> set[str]:
    return {file.name for file in choose(NAMES, trust)}


@pytest.mark.parametrize(
    ("recovery_point", "high_watermark", "expected"),
    [
        (300, 300, [0, 100]),
        (200, 200, [0, 100]),
        (199, 300, [0]),
        (300, 150, [0]),
        (0, 300, []),
        (300, 99, []),
    ],
)
def test_closed_segments_below_both_offsets_are_linked(
    recovery_point: int, high_watermark: int, expected: list[int]
) -> None:
    assert linked(Trust(recovery_point, high_watermark, True)) == expected


def test_the_active_segment_and_the_indexes_are_copied() -> None:
    files = {file.name: file.is_linked for file in choose(NAMES, CLEAN)}
    assert [name for name, is_linked in files.items() if is_linked] == [f"{0:020}.log", f"{100:020}.log"]
    assert files[f"{200:020}.log"] is False
    assert files[f"{0:020}.index"] is False


@pytest.mark.parametrize("suffix", [".swap", ".cleaned"])
def test_nothing_is_linked_while_segments_are_replaced(suffix: str) -> None:
    assert linked(CLEAN, f"{0:020}.log{suffix}") == []
    assert f"{0:020}.log{suffix}" in {file.name for file in choose([f"{0:020}.log{suffix}"], CLEAN)}


def test_deleted_and_unknown_files_are_left() -> None:
    assert taken(CLEAN) == {name for name in NAMES if not name.endswith(".deleted")}
    assert choose(["x.log", "1.log", "notes.txt", "leader-epoch-checkpoint.tmp"], CLEAN) == []


def test_after_a_crash_indexes_above_the_recovery_point_are_not_trusted() -> None:
    """Kafka's active indexes are 10 MiB of mostly zeros then."""
    indexes = {name for name in taken(replace(CLEAN, was_clean=False, recovery_point=150)) if "index" in name}
    assert indexes == {name for name in SEGMENTS if name.startswith(f"{0:020}") and "index" in name}
