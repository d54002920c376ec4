"""The groups of an OffsetFetch from version 8 on. The response has a row for each, in this order."""

from __future__ import annotations

from collections.abc import Iterable

from felice.protocol.messages.offset_fetch import OffsetFetchRequestGroup


def distinct(asked: Iterable[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Returns the requested groups without duplicates of groups for which all offsets are requested."""
    return list({group.group_id if group.topics is None else id(group): group for group in asked}.values())
