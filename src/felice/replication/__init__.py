"""Replication: the partitions on this broker, each as leader or follower.

`partitions` is the registry: it follows the cluster's image. A `partition` is a `replica` (log, high watermark, waiting
requests) with a role; `leader` and `follower` decide for it (pure), with `divergence`, `truncation` and `selector`.
`flushing` brings its log to disk. `isr` writes changes of in-sync sets to the metadata store. `fetcher` copies records
from leaders, in fetch sessions (`fetch_session`); `peers` has the connections to other brokers. `throttle` limits the
bandwidth, and `traffic` counts. `share` has the windows of share groups (pure).
"""
