"""The acknowledgements of a member: ranges of offsets with their types, and the check of a request's ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple


class AcknowledgeType(IntEnum):
    """The types of Kafka's requests."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcknowledgedRange(NamedTuple):
    """First and last offset, with one type for all of them or one for each."""

    first: int
    last: int
    types: Sequence[int]


def are_sound(ranges: Sequence[AcknowledgedRange], *, is_renewal: bool) -> bool:
    """Whether the ranges rise without overlaps, and each has known types in the right number."""
    last_type = AcknowledgeType.RENEW if is_renewal else AcknowledgeType.REJECT
    before = -1
    for range_ in ranges:
        types = range_.types
        if not before < range_.first <= range_.last:
            return False
        if len(types) not in (1, range_.last - range_.first + 1):
            return False
        if min(types) < AcknowledgeType.GAP or max(types) > last_type:
            return False
        before = range_.last
    return True


def pieces_of(ranges: Iterable[AcknowledgedRange], start: int) -> list[tuple[int, int, AcknowledgeType]]:
    """Neighbouring offsets of one type each, without the offsets before `start`. The ranges must be sound."""
    pieces: list[tuple[int, int, AcknowledgeType]] = []
    for first, last, number in _uniform(ranges):
        if last < start:
            continue
        if pieces and pieces[-1][1] + 1 == first and pieces[-1][2] == number:
            pieces[-1] = (pieces[-1][0], last, pieces[-1][2])
        else:
            pieces.append((max(first, start), last, AcknowledgeType(number)))
    return pieces


def _uniform(ranges: Iterable[AcknowledgedRange]) -> Iterator[tuple[int, int, int]]:
    for first, last, types in ranges:
        if len(types) == 1:
            yield first, last, types[0]
            continue
        for number, same in groupby(types):
            size = len(list(same))
            yield first, first + size - 1, number
            first += size
