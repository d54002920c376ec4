"""One partition's commit log, in Kafka's directory and file layout.

`log` is the API. `segments` lists a log's segments, each a `segment` with its index files. `producers`, `epochs`
and `retention` decide. `durability` knows what has reached the disk, and `flush` brings it there. `opening` and
`recovery` load a log and repair its files before it is served. `directory` holds all partitions of one disk,
`directory_checkpoints` their checkpoints. The cleaner is `cleaner_plan` (which log, how far), `cleaner_pass` (the
work, on a thread) and `segment_swap` (how cleaned segments replace others).
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
