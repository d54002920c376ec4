"""What `make sql-kills` compares: that it sees each kind of wrong result."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from conformance.sql_kills import Kind, Pairs, differences

WANTED: Pairs = {b"a": [b"1", b"2", b"2"], b"b": [b"3"]}
ONCE_MORE: Pairs = {b"a": [b"1", b"2", b"2", b"2"], b"b": [b"3"]}
MISSING: Pairs = {b"a": [b"1", b"2", b"2"]}
ANOTHER: Pairs = {**WANTED, b"c": [b"3"]}
SWAPPED: Pairs = {b"a": [b"2", b"1", b"2"], b"b": [b"3"]}
OTHER_LAST: Pairs = {b"a": [b"1", b"2", b"9"], b"b": [b"3"]}


@pytest.mark.parametrize("kind", Kind)
def test_what_is_right_is_not_reproached(kind: Kind) -> None:
    assert differences(kind, WANTED, WANTED) == []


@pytest.mark.parametrize(
    ("kind", "found", "reproach"),
    [
        (Kind.EACH, ONCE_MORE, "too often"),
        (Kind.EACH, OTHER_LAST, "missing"),
        (Kind.ORDER, ONCE_MORE, "4 records instead of 3"),
        (Kind.ORDER, SWAPPED, "the first other one at 0"),
        (Kind.COUNT, ONCE_MORE, "4 records instead of 3"),
        (Kind.COUNT, OTHER_LAST, "the last is"),
        (Kind.LAST, OTHER_LAST, "the last is"),
        *((kind, MISSING, "key b'b'") for kind in Kind),
        *((kind, ANOTHER, "key b'c' is not wanted") for kind in Kind),
    ],
)
def test_what_is_wrong_is_told(kind: Kind, found: Pairs, reproach: str) -> None:
    (told,) = differences(kind, found, WANTED)
    assert reproach in told


def test_the_order_within_a_key_counts_only_where_it_is_certain() -> None:
    assert differences(Kind.EACH, SWAPPED, WANTED) == []
    assert differences(Kind.COUNT, SWAPPED, WANTED) == []
