"""One partition's commit log, in Kafka's directory and file layout.

`log` is the face; `segments` are many of `segment`, which has the index files below it; `producers`, `epochs`
and `retention` decide beside it, `recovery` and `opening` bring files into shape
before anything is served, and `directory` holds all partitions of one disk. The
cleaner is `cleaner_plan` (what, how far), `cleaner_pass` (the work, on a thread) and
`segment_swap` (how its segments take the place of others).
Everything is synchronous and gets its clock and disk as arguments.
"""

from felice.log.errors import CorruptLog, LogDirectoryError, LogOffline
from felice.log.log import AppendInfo, AppendOrigin, Log, TimestampOffset

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "CorruptLog",
    "Log",
    "LogDirectoryError",
    "LogOffline",
    "TimestampOffset",
]
