"""Checks of the lists that an application passes to `AdminClient`.

Keeps true:  a list that no broker could answer item by item (empty, or with an item twice) is refused at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from felice.client.admin.acls import AclBinding
from felice.client.admin.model import ConsumerGroupTopicPartitions
from felice.client.arguments import expect
from felice.client.error import KafkaError, failure
from felice.client.model import OFFSET_INVALID, TopicPartition

T = TypeVar("T")

H = TypeVar("H", bound=Hashable)
R = TypeVar("R", bound=AclBinding)


def repeated(items: Iterable[H]) -> list[H]:
    """The items that occur more than once."""
    return [item for item, count in Counter(items).items() if count > 1]


def distinct(names: Iterable[str], kind: str) -> list[str]:
    """Return the names. `kind` says in errors what they name, such as "topic"."""
    found = list(names)
    if not found:
        raise ValueError(f"expected at least one {kind}")
    if twice := repeated(found):
        raise failure(KafkaError._INVALID_ARG, f"the {kind} {twice[0]!r} is named twice")
    if not all(isinstance(name, str) for name in found):
        raise TypeError(f"expected each {kind} as a string")
    return found


def given(items: Sequence[T], kind: str) -> Sequence[T]:
    """Return the items; raises `ValueError` without any."""
    if not items:
        raise ValueError(f"expected at least one {kind}")
    return items


def check_partitions(partitions: Iterable[object]) -> None:
    """Raise `TypeError` or `ValueError` unless each is a partition that can exist."""
    for tp in partitions:
        expect("partition", tp, TopicPartition)
        assert isinstance(tp, TopicPartition)
        if not tp.topic or tp.partition < 0:
            raise ValueError(f"{tp.topic!r}-{tp.partition} cannot be a partition")


def check_group_offsets(
    requests: list[ConsumerGroupTopicPartitions], *, needs_partitions: bool, needs_offsets: bool
) -> None:
    """Raise `TypeError` or `ValueError` for groups without a name, and partitions or offsets that cannot be."""
    for request in given(requests, "group"):
        expect("group_id", request.group_id, str)
        if not request.group_id:
            raise ValueError("a group must have a name")
        rows = request.topic_partitions
        if rows is None and not needs_partitions:
            continue
        check_partitions(given(rows or [], "partition"))
        for tp in rows or []:
            if needs_offsets and tp.offset < 0:
                raise ValueError(f"{tp.topic}-{tp.partition}: expected an offset from 0 up, not {tp.offset}")
            if not needs_partitions and tp.offset != OFFSET_INVALID:
                raise ValueError(f"{tp.topic}-{tp.partition}: an offset to look up must not be given")


def distinct_rules(rules: Iterable[R], kind: type[R]) -> list[R]:
    """Return the access rules or filters, which all have the type `kind`."""
    found = list(rules)
    if not found:
        raise ValueError("expected at least one rule")
    if not all(type(rule) is kind for rule in found):
        raise TypeError(f"expected {kind.__name__}")
    if twice := repeated(found):
        raise ValueError(f"the rule {twice[0]!r} is named twice")
    return found
