"""Aggregates that count: COUNT and COUNT_DISTINCT.

COUNT_DISTINCT is exact, but for collisions of 64 bits, up to `MOST_HASHES` values of a group. Beyond them it is
HyperLogLog, with a standard error of 0.8 %. A state is never larger than 16 KiB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, ClassVar

from felice.pipelines.sql.functions.ordering import equality_key
from felice.pipelines.sql.functions.table import Settings, Texts, aggregate, state_itself
from felice.pipelines.sql.types import BIGINT, BYTES, SqlType


class _Count:
    """Counts rows. A state is a number."""

    state_type: SqlType = BIGINT

    def __init__(self, _types: Sequence[SqlType], _constants: Sequence[Any], _settings: Settings) -> None:
        pass

    def initial(self) -> int:
        """No row."""
        return 0

    def merge(self, one: int, other: int) -> int:
        """The rows of both."""
        return one + other

    result = staticmethod(state_itself)


@aggregate("COUNT() -> BIGINT", "The number of rows; also written COUNT(*).")
class CountRows(_Count):
    """COUNT(*)."""

    texts: ClassVar[Texts] = {"add": "{state} + 1", "undo": "{state} - 1"}

    def add(self, state: int) -> int:
        """One more."""
        return state + 1

    def undo(self, state: int) -> int:
        """One less."""
        return state - 1


@aggregate("COUNT(value ANY) -> BIGINT", "The number of rows in which the value is not null.")
class CountValues(_Count):
    """COUNT of values."""

    texts: ClassVar[Texts] = {
        "add": "{state} if {0} is None else {state} + 1",
        "undo": "{state} if {0} is None else {state} - 1",
    }

    def add(self, state: int, value: Any) -> int:
        """One more, unless it is null."""
        return state if value is None else state + 1

    def undo(self, state: int, value: Any) -> int:
        """One less, unless it is null."""
        return state if value is None else state - 1


MOST_HASHES = 1_024
_WIDTH = 8
_INDEX_BITS = 14
_REGISTERS = 1 << _INDEX_BITS
_RANK_BITS = 8 * _WIDTH - _INDEX_BITS
_ALPHA = 0.7213 / (1 + 1.079 / _REGISTERS)


@aggregate(
    "COUNT_DISTINCT(value ANY) -> BIGINT",
    "The number of different values that are not null; approximate if there are more than 1,024.",
)
class CountDistinct:
    """COUNT_DISTINCT. A state holds hashes in their order, or when they became too many, registers of a byte."""

    state_type: SqlType = BYTES

    def __init__(self, _types: Sequence[SqlType], _constants: Sequence[Any], _settings: Settings) -> None:
        pass

    def initial(self) -> bytes:
        """No hashes."""
        return b""

    def add(self, state: bytes, value: Any) -> bytes:
        """The state with one more value."""
        if value is None:
            return state
        found = blake2b(_canonical(equality_key(value)).encode("utf-8", "surrogatepass"), digest_size=_WIDTH)
        return _with_hash(state, found.digest())

    def merge(self, one: bytes, other: bytes) -> bytes:
        """The values of both."""
        if _is_exact(one) and _is_exact(other):
            hashes = sorted({*_hashes(one), *_hashes(other)})
            return b"".join(hashes) if len(hashes) <= MOST_HASHES else _registers(hashes)
        return bytes(map(max, _dense(one), _dense(other)))

    def result(self, state: bytes) -> int:
        """The number of values."""
        return len(state) // _WIDTH if _is_exact(state) else _estimate(state)


def _canonical(key: object) -> str:
    """The same text for equal keys, in each process: the order of a set is not."""
    if isinstance(key, frozenset):
        return f"{{{','.join(sorted(map(_canonical, key)))}}}"
    return f"({','.join(map(_canonical, key))})" if isinstance(key, tuple) else repr(key)


def _is_exact(state: bytes) -> bool:
    return len(state) < _REGISTERS


def _hashes(state: bytes) -> list[bytes]:
    return [state[start : start + _WIDTH] for start in range(0, len(state), _WIDTH)]


def _with_hash(state: bytes, found: bytes) -> bytes:
    if not _is_exact(state):
        index, rank = _place(found)
        return state if state[index] >= rank else state[:index] + bytes((rank,)) + state[index + 1 :]
    low, high = 0, len(state) // _WIDTH
    while low < high:
        middle = (low + high) // 2
        if state[middle * _WIDTH : (middle + 1) * _WIDTH] < found:
            low = middle + 1
        else:
            high = middle
    start = low * _WIDTH
    if state[start : start + _WIDTH] == found:
        return state
    longer = state[:start] + found + state[start:]
    return longer if len(longer) <= MOST_HASHES * _WIDTH else _registers(_hashes(longer))


def _dense(state: bytes) -> bytes:
    return _registers(_hashes(state)) if _is_exact(state) else state


def _registers(hashes: Sequence[bytes]) -> bytes:
    registers = bytearray(_REGISTERS)
    for one in hashes:
        index, rank = _place(one)
        registers[index] = max(registers[index], rank)
    return bytes(registers)


def _place(found: bytes) -> tuple[int, int]:
    """The register of a hash, and how many zeros its other bits begin with, plus one."""
    number = int.from_bytes(found)
    return number >> _RANK_BITS, _RANK_BITS - (number & ((1 << _RANK_BITS) - 1)).bit_length() + 1


def _estimate(registers: bytes) -> int:
    counts = [registers.count(rank) for rank in range(_RANK_BITS + 2)]
    total = math.fsum(count * 2.0**-rank for rank, count in enumerate(counts))
    estimate = _ALPHA * _REGISTERS**2 / total
    if estimate <= 2.5 * _REGISTERS and counts[0]:
        estimate = _REGISTERS * math.log(_REGISTERS / counts[0])
    return round(estimate)
