"""The groups of one OffsetFetch request, which may name several from version 8 on."""

from __future__ import annotations

from collections.abc import Iterable

from felice.protocol.messages.offset_fetch import OffsetFetchRequestGroup


def distinct(asked: Iterable[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Returns the groups for which the response has rows, in the order of the request.

    A group that is requested twice for all its offsets has one row, so that a small request cannot have them read
    thousands of times.
    """
    return list({group.group_id if group.topics is None else id(group): group for group in asked}.values())
