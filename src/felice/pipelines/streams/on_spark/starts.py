"""Where topics begin whose streams say it (`App.stream(start=...)`).

Keeps true: the offsets are found once, and the checkpoint keeps them: a first batch that runs again begins where it
            began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from felice.pipelines.spark.cluster import open_view
from felice.pipelines.spark.offsets import Checkpoint, Partition, to_checkpoint
from felice.pipelines.spark.options import SourceOptions
from felice.pipelines.streams.topology import EARLIEST, Topology

FindStarts = Callable[[Topology, Iterable[str]], Checkpoint]
"""`found_starts` of a cluster."""


def found_starts(topology: Topology, topics: Iterable[str], connected: Mapping[str, str]) -> Checkpoint:
    """The first offset of each partition of the topics that do not begin at their start. `connected` has the options
    that the source connects with.
    """
    wanted = set(topics)
    starts = {
        node.source.topic: node.source.start
        for node in topology.nodes
        if node.source is not None and node.source.topic in wanted and node.source.start != EARLIEST
    }
    if not starts:
        return {}
    view = open_view(SourceOptions.parse({**connected, "subscribe": ",".join(sorted(starts))}))
    try:
        found, now_ms, times = view.latest(), round(time.time() * 1000), dict[Partition, int]()
        for key in found:
            start = starts[key[0]]
            if isinstance(start, timedelta):
                times[key] = max(0, now_ms - round(start.total_seconds() * 1000))
            elif isinstance(start, int):
                times[key] = start
        return to_checkpoint(found | view.first_since(times))
    finally:
        view.close()
