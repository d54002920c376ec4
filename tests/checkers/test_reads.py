"""The checkers of what readers saw during a run."""

from __future__ import annotations

import pytest

from checkers.history import Read, Written
from checkers.reads import (
    Keyed,
    ObservedOffsets,
    acknowledged_offset_anomalies,
    keyed_anomalies,
    offset_anomalies,
    view_anomalies,
)

FINAL = [Read("w", n, 0, n) for n in range(5)]


def test_a_reader_that_goes_forward_without_a_gap_passes() -> None:
    assert view_anomalies(FINAL[1:4], FINAL, is_dense=True) == []
    assert view_anomalies([FINAL[0], FINAL[3]], FINAL, is_dense=False) == []


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([FINAL[0], FINAL[2]], "gap: "),
        ([FINAL[2], FINAL[1]], "back: "),
        ([FINAL[1], FINAL[1]], "back: "),
        ([Read("w", 9, 0, 0)], "changed: "),
        ([Read("w", 5, 0, 5)], "changed: "),
    ],
)
def test_an_impossible_view_is_found(seen: list[Read], said: str) -> None:
    assert any(fault.startswith(said) for fault in view_anomalies(seen, FINAL, is_dense=True))


def test_offsets_do_not_go_back_after_an_answer() -> None:
    first = ObservedOffsets(0, 2, 5, 1.0, 1.1)
    assert (
        offset_anomalies([first, ObservedOffsets(0, 2, 5, 1.2, 1.3), ObservedOffsets(0, 3, 6, 1.4, 1.5)])
        == []
    )
    # Requested before the other was answered.
    assert offset_anomalies([first, ObservedOffsets(0, 2, 4, 1.05, 1.2)]) == []
    assert [f[:19] for f in offset_anomalies([first, ObservedOffsets(0, 2, 4, 1.2, 1.3)])] == [
        "high watermark back"
    ]
    assert [f[:14] for f in offset_anomalies([first, ObservedOffsets(0, 1, 5, 1.2, 1.3)])] == [
        "log start back"
    ]
    assert [f[:15] for f in offset_anomalies([ObservedOffsets(0, 6, 5, 1.2, 1.3)])] == ["log start above"]


def test_the_last_high_watermark_is_above_all_acknowledged_records() -> None:
    assert (
        acknowledged_offset_anomalies(
            [Written("w", 0, 0, 4), Written("w", 1, 0, None)], [ObservedOffsets(0, 0, 5, 1, 2)]
        )
        == []
    )
    assert len(acknowledged_offset_anomalies([Written("w", 0, 0, 5)], [ObservedOffsets(0, 0, 5, 1, 2)])) == 1


KEYED = [
    Keyed("a", 0, False, True),
    Keyed("a", 1, False, True),
    Keyed("b", 0, False, True),
    Keyed("b", 1, True, True),
    Keyed("c", 0, False, True),
    Keyed("c", 1, True, False),
]


@pytest.mark.parametrize(
    "final",
    [
        [("a", 1), ("b", 1), ("c", 0)],
        [("a", 1)],
        [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("c", 0), ("c", 1)],
    ],
)
def test_the_last_of_each_key_is_enough(final: list[tuple[str, int]]) -> None:
    assert keyed_anomalies(KEYED, final) == []


@pytest.mark.parametrize(
    ("final", "said"),
    [
        ([("a", 0)], "old: a = 0"),
        ([], "lost: a = 1"),
        ([("a", 1), ("b", 0)], "risen: b = 0"),
        ([("a", 1), ("a", 0)], "out of order: a = 0"),
        ([("a", 1), ("d", 0)], "invented: d = 0"),
    ],
)
def test_a_key_without_its_last_value_is_found(final: list[tuple[str, int]], said: str) -> None:
    assert any(fault.startswith(said) for fault in keyed_anomalies(KEYED, final))
