from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.client.error import failure
from felice.client.group.requests import CommittedOffset
from felice.client.model import Partition
from felice.pipelines.spark.lag import PAUSE_AFTER_FAILURE_S, GroupOffsets, find_marked, offsets_behind

A0, A1 = ("a", 0), ("a", 1)
NOT_AUTHORIZED = 30


class Coordinators:
    def __init__(self) -> None:
        self.groups: dict[str, dict[Partition, CommittedOffset]] = {}
        self.commits = 0
        self.refuses = False

    def commit_offsets(self, group: str, offsets: Mapping[Partition, CommittedOffset]) -> None:
        self.commits += 1
        if self.refuses:
            raise failure(NOT_AUTHORIZED, group)
        self.groups.setdefault(group, {}).update(offsets)

    def committed(self, group: str) -> dict[Partition, CommittedOffset]:
        return self.groups[group]

    def list_groups(self, prefix: str) -> list[str]:
        return sorted(name for name in self.groups if name.startswith(prefix))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def group_of(brokers: Any, name: str | None = "g", clock: Clock | None = None) -> GroupOffsets:
    return GroupOffsets(brokers, lambda: name, clock or Clock())


def test_a_batch_that_is_done_is_told_once() -> None:
    brokers = Coordinators()
    group = group_of(brokers)
    for offsets in ({A0: 3, A1: 0}, {A0: 3, A1: 0}, {A0: 5, A1: 1}):
        group.done(offsets)
    assert brokers.groups == {"g": {A0: CommittedOffset(5), A1: CommittedOffset(1)}}
    assert brokers.commits == 2


def test_a_group_that_cannot_be_told_stops_nothing_and_is_left_alone_for_a_while() -> None:
    brokers, clock = Coordinators(), Clock()
    group = group_of(brokers, clock=clock)
    brokers.refuses = True
    group.done({A0: 1})
    brokers.refuses = False
    group.done({A0: 2})
    assert brokers.commits == 1
    clock.now = PAUSE_AFTER_FAILURE_S
    group.done({A0: 2})
    assert brokers.groups == {"g": {A0: CommittedOffset(2)}}


def test_nothing_is_told_before_the_group_is_known() -> None:
    brokers = Coordinators()
    group = group_of(brokers, name=None)
    group.done({A0: 1})
    assert (brokers.commits, group.is_known) == (0, False)


def test_the_group_is_found_by_the_readers_mark() -> None:
    brokers: Any = Coordinators()
    brokers.groups = {
        "p-1": {A0: CommittedOffset(1, metadata="other")},
        "p-2": {A0: CommittedOffset(1), A1: CommittedOffset(1, metadata="mine")},
        "p-3-sink": {A0: CommittedOffset(1, metadata="mine")},
        "q-1": {A0: CommittedOffset(1, metadata="mine")},
    }
    assert find_marked(brokers, "p", "mine") == "p-2"
    assert find_marked(brokers, "p", "nobody's") is None


def progress(*sources: tuple[Any, Any]) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources]}


def test_progress_tells_how_far_partitions_are_behind() -> None:
    end, latest = {"a": {"0": 5, "1": 10}}, {"a": {"0": 25, "1": 10}, "b": {"0": 4}}
    for form in (lambda document: document, json.dumps):
        assert offsets_behind(progress((form(end), form(latest)))) == {
            "minOffsetsBehindLatest": 0,
            "maxOffsetsBehindLatest": 20,
            "avgOffsetsBehindLatest": 8.0,
            "offsetsBehindLatest": 24,
        }


def test_sources_that_tell_no_ends_are_left_out() -> None:
    assert offsets_behind(progress((None, None), ("7", "9"), ({"a": {"0": 1}}, None))) == {}
