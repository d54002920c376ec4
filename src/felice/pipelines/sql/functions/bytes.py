"""Functions that read numbers from bytes. Those of texts and bytes alike are in `texts_and_bytes`, encodings in
`encodings`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from felice.pipelines.sql.functions.table import scalar

_ORDERS = {"BIG_ENDIAN": ">", "LITTLE_ENDIAN": "<"}


def _reader(letter: str) -> Callable[..., Any]:
    """The function that reads a number of `struct`'s letter."""
    formats = {name: struct.Struct(sign + letter) for name, sign in _ORDERS.items()}

    def read(value: bytes, order: str = "BIG_ENDIAN") -> Any:
        found = formats.get(order.upper())
        if found is None:
            raise ValueError(f"the byte order is BIG_ENDIAN or LITTLE_ENDIAN, and got {order!r:.40}")
        if len(value) != found.size:
            raise ValueError(f"expected {found.size} bytes, and got {len(value)}")
        return found.unpack(value)[0]

    return read


for _name, _type, _letter, _hex, _number in (
    ("INT_FROM_BYTES", "INTEGER", "i", "000007e5", "2021"),
    ("BIGINT_FROM_BYTES", "BIGINT", "q", "000000012a05f200", "5000000000"),
    ("DOUBLE_FROM_BYTES", "DOUBLE", "d", "4080a6fd9bc9f582", "532.8738323E0"),
):
    _read, _swapped = _reader(_letter), bytes.fromhex(_hex)[::-1].hex()
    scalar(
        f"{_name}(value BYTES) -> {_type}",
        f"The {_type} of bytes in big-endian order.",
        (f"{_name}(TO_BYTES('{_hex}', 'hex'))", _number),
    )(_read)
    scalar(
        f"{_name}(value BYTES, order STRING) -> {_type}",
        f"The {_type} of bytes in an order: BIG_ENDIAN or LITTLE_ENDIAN.",
        (f"{_name}(TO_BYTES('{_swapped}', 'hex'), 'LITTLE_ENDIAN')", _number),
    )(_read)
