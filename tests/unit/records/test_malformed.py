"""Every way in which a record can break the format, with the error that both kernels report."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from felice.records.errors import InvalidRecord
from felice.records.kernels import plain, plain_columns
from felice.records.record import Record

VALID = bytes.fromhex("10 00 0a 00 02 6b 02 76 00")

MALFORMED = {
    "a length of six bytes": ("80 80 80 80 80 00 00", "record 0 has a number with too many bytes"),
    "a negative length": (
        "01 00 00 00 00 00 00",
        "record 0 has a length that is negative or runs past the batch",
    ),
    "a length past the batch": (
        "12 00 0a 00 02 6b 02 76 00",
        "record 0 has a length that is negative or runs",
    ),
    "no attributes": ("00 00 00 00 00 00 00", "record 0 ends before its attributes"),
    "a delta cut by the record's end": (
        "04 00 80 00 00 00 00 00",
        "record 0 has a number that runs past its end",
    ),
    "a delta of eleven bytes": (
        "1a 00 80 80 80 80 80 80 80 80 80 80 00 00",
        "record 0 has a number with too many bytes",
    ),
    "a key length below -1": (
        "10 00 00 00 03 6b 02 76 00",
        "record 0 has a key length below -1 or past its end",
    ),
    "a key past the record": (
        "10 00 00 00 0c 6b 02 76 00",
        "record 0 has a key length below -1 or past its end",
    ),
    "a value length below -1": (
        "10 00 00 00 02 6b 03 76 00",
        "record 0 has a value length below -1 or past its",
    ),
    "a value past the record": (
        "10 00 00 00 02 6b 06 76 00",
        "record 0 has a value length below -1 or past its",
    ),
    "a negative header count": ("10 00 00 00 02 6b 02 76 01", "record 0 has a negative header count"),
    "a header that is not there": (
        "10 00 00 00 02 6b 02 76 02",
        "record 0 has a number that runs past its end",
    ),
    "a null header key": (
        "14 00 00 00 02 6b 02 76 02 01 00",
        "record 0 has a header key that is null or runs",
    ),
    "a header key past the record": (
        "14 00 00 00 02 6b 02 76 02 04 00",
        "record 0 has a header key that is null",
    ),
    "a header value past the record": (
        "14 00 00 00 02 6b 02 76 02 00 02",
        "record 0 has a header value length",
    ),
    "a header value below -1": (
        "14 00 00 00 02 6b 02 76 02 00 03",
        "record 0 has a header value length below",
    ),
    "spare bytes in the record": (
        "12 00 0a 00 02 6b 02 76 00 00",
        "record 0 is shorter than its declared length",
    ),
    "spare bytes behind the records": (
        "10 00 0a 00 02 6b 02 76 00 00",
        "1 bytes are left behind the 1 records of the batch",
    ),
    "too few bytes for the count": ("00", "1 bytes cannot hold 1 records"),
}


def twins() -> list[Any]:
    try:
        compiled = import_module("felice.records.kernels._kernels")
    except ImportError:
        return [(plain, plain_columns)]
    return [(plain, plain_columns), (compiled, compiled)]


@pytest.mark.parametrize(("kernel", "columns"), twins())
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_records_are_refused(kernel: Any, columns: Any, case: str) -> None:
    payload, message = bytes.fromhex(MALFORMED[case][0]), MALFORMED[case][1]
    readers: tuple[Callable[[], Any], ...] = (
        lambda: kernel.scan(payload, 1, 0),
        lambda: kernel.iterate(payload, 1, 0, 0, None),
        lambda: columns.ArrowColumns().append(payload, 1, 0, 0, None, 0, 9),
    )
    for read in readers:
        with pytest.raises(InvalidRecord) as refused:
            read()
        assert message in refused.value.message


@pytest.mark.parametrize(("kernel", "columns"), twins())
def test_the_error_names_the_index_of_the_malformed_record(kernel: Any, columns: Any) -> None:
    payload = VALID * 3 + bytes.fromhex(MALFORMED["a negative header count"][0])
    with pytest.raises(InvalidRecord, match="record 3 has a negative header count") as refused:
        kernel.scan(payload, 4, 0)
    assert refused.value.record_errors == [(3, "record has a negative header count")]


@pytest.mark.parametrize(("kernel", "columns"), twins())
@pytest.mark.parametrize("count", [-1, -(2**31), 2, 2**31 - 1])
def test_a_count_that_the_bytes_cannot_hold(kernel: Any, columns: Any, count: int) -> None:
    with pytest.raises(InvalidRecord, match=f"9 bytes cannot hold {count} records"):
        kernel.scan(VALID, count, 0)


@pytest.mark.parametrize(("kernel", "columns"), twins())
def test_bits_above_a_number_are_ignored_as_in_java(kernel: Any, columns: Any) -> None:
    # Offset delta in five bytes, the last with bits beyond those of an int; timestamp delta in ten bytes.
    payload = bytes.fromhex(
        "2c 00 fe ff ff ff ff ff ff ff ff 7f 82 80 80 80 70 02 6b 02 76 00".replace(" ", "")
    )
    payload = bytes([2 * (len(payload) - 1)]) + payload[1:]
    (record,) = kernel.iterate(payload, 1, 10, 5, None)
    assert record == Record(11, 5 + 2**63 - 1 - 2**64, b"k", b"v", ())
    assert kernel.scan(payload, 1, 5).offset_delta_of_max_timestamp == -1


@pytest.mark.parametrize(("kernel", "columns"), twins())
def test_sums_wrap_as_javas_long_does(kernel: Any, columns: Any) -> None:
    payload = bytes.fromhex("10 00 02 02 02 6b 02 76 00")  # both deltas are 1
    (record,) = kernel.iterate(payload, 1, 2**63 - 1, 2**63 - 1, None)
    assert (record.offset, record.timestamp) == (-(2**63), -(2**63))
