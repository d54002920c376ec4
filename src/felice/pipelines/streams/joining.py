"""Builds the join of two streams: an operator for each side, over stores that both share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.join_stores import RecentRecords, UnjoinedRecords
from felice.pipelines.streams.operators.joins import Joiner
from felice.pipelines.streams.operators.stateless import Pass
from felice.pipelines.streams.operators.stream_join import StreamStreamJoin
from felice.pipelines.streams.plan import JoinKind
from felice.pipelines.streams.topology import CLOCKS, Node, Topology
from felice.pipelines.streams.windows import JoinWindows


class Joined(NamedTuple):
    """One of the streams: its records, placed by their keys."""

    node: Node
    value: Format


def stream_join(
    topology: Topology,
    key: Format,
    streams: Sequence[Joined],
    joiner: Joiner,
    windows: JoinWindows,
    kind: JoinKind,
) -> Node:
    """The node that sends the joined records; the first of the streams is the left one."""
    name = topology.next_name("join-streams")
    retention_ms = windows.size_ms + windows.grace_ms
    kept = [
        topology.store(store, partial(RecentRecords, store, key, stream.value, retention_ms))
        for store, stream in zip((f"{name}-left", f"{name}-right"), streams, strict=True)
    ]
    alone = None
    if not (kind.needs_left and kind.needs_right):
        formats = [stream.value for stream in streams]
        alone = topology.store(f"{name}-alone", partial(UnjoinedRecords, f"{name}-alone", key, *formats))

    def side(is_left: bool) -> Node:
        own, partner = kept if is_left else reversed(kept)
        sends_alone = not (kind.needs_right if is_left else kind.needs_left)
        return topology.operator(
            "join-stream",
            lambda stores: StreamStreamJoin(
                name,
                stores[CLOCKS],
                stores[own],
                stores[partner],
                stores[alone] if alone else None,
                windows,
                joiner,
                is_left,
                sends_alone,
            ),
            streams[0 if is_left else 1].node,
            stores=[*kept, alone] if alone else kept,
        )

    return topology.operator("joined", lambda stores: Pass(), side(True), side(False))
