"""The compiled and the plain offset map return the same results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felice.records.kernels import plain
from felice.records.kernels.plain_offset_map import OffsetMap as PlainMap
from properties.records.test_kernel_twins import flat, outcome, payloads

compiled = pytest.importorskip("felice.records.kernels._kernels", reason="the extension was not built")

SECRET = bytes(range(16))
KEYS = st.none() | st.binary(max_size=3) | st.binary(min_size=7, max_size=17)
BATCHES = st.lists(
    st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4)), max_size=8), min_size=1, max_size=6
)


def encoded(records: list[Any]) -> bytearray:
    out = bytearray()
    for delta, (key, value) in enumerate(records):
        plain.encode_record(out, delta, delta * 3, key, value)
    return out


@settings(max_examples=200, deadline=None)
@given(BATCHES, st.integers(1, 40), st.integers(1, 40), st.integers(0, 30), st.integers(0, 60), st.booleans())
def test_both_maps_keep_the_same_records(
    batches: list[Any], slots: int, max_keys: int, start: int, end: int, keeps_tombstones: bool
) -> None:
    maps = PlainMap(slots, SECRET), compiled.OffsetMap(slots, SECRET)
    model: dict[bytes, int] = {}
    offset = stopped = 0
    for records in batches:
        if stopped >= 0:
            answers = [
                one.put_records(encoded(records), len(records), offset, start, max_keys) for one in maps
            ]
            stopped = 0 if answers[0] == -1 else -1
            assert answers[0] == answers[1]
            for at, (key, _) in enumerate(records, offset):
                if key is not None and at >= start and (answers[0] < 0 or at < answers[0]):
                    model[key] = at
        offset += len(records)
    assert len(maps[0]) == len(maps[1]) == len(model)
    assert all(one.get(key) == place for one in maps for key, place in model.items())
    assert all(one.get(b"never put") == -1 for one in maps)
    offset = 0
    for records in batches:
        kept = [
            one.keep_latest(encoded(records), len(records), offset, 1000, end, keeps_tombstones)
            for one in maps
        ]
        assert flat(tuple(kept[0])) == flat(tuple(kept[1]))
        expected = [
            at
            for at, (key, value) in enumerate(records, offset)
            if at >= end
            or (key is not None and (value is not None or keeps_tombstones) and at >= model.get(key, -1))
        ]
        payload = encoded(records) if kept[0].records is None else kept[0].records
        assert [
            record.offset for record in plain.iterate(payload, len(expected), offset, 0, None)
        ] == expected
        assert kept[0].record_count == len(expected)
        offset += len(records)


@settings(max_examples=300, deadline=None)
@given(payloads(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**62))
def test_both_maps_refuse_the_same_bytes_with_the_same_error(
    found: tuple[bytes, int], base_timestamp: int, base_offset: int
) -> None:
    payload, count = found

    def both(make: Any) -> Any:
        one = make(50, SECRET)
        put = outcome(lambda: one.put_records(payload, count, base_offset, 0, 40))
        kept = outcome(lambda: flat(tuple(one.keep_latest(payload, count, 0, base_timestamp, 2**62, True))))
        return put, kept

    assert both(PlainMap) == both(compiled.OffsetMap)


@pytest.mark.parametrize("make", [PlainMap, compiled.OffsetMap])
def test_a_map_with_one_slot_holds_one_key(make: Any) -> None:
    one = make(1, SECRET)
    records = [(b"a", b"1"), (b"a", b"2"), (b"b", b"3")]
    assert one.put_records(encoded(records), 3, 10, 0, 5) == 12
    assert (one.get(b"a"), one.get(b"b"), len(one)) == (11, -1, 1)
    with pytest.raises(ValueError, match="slots"):
        make(0, SECRET)
    with pytest.raises(ValueError, match="secret"):
        make(1, b"short")
