"""One partition's commit log, in Kafka's directory and file layout.

`log` is the API; it appends. Below it `segmented` rolls, removes and truncates segments, and `readable` reads.
`segments` lists a log's segments, each a `segment` with its index files. `producers`, `epochs` and `retention` decide.
`durability` knows what has reached the disk, and `flush` brings it there. `opening` and `recovery` load a log and
repair its files before it is served. `directory` holds all partitions of one disk, `partition_logs` opens and creates
their logs, and `directory_checkpoints` has their checkpoints. The cleaner is `cleaner_plan` (which log, how far),
`cleaner_pass` (the work, on a thread) and `segment_swap` (how cleaned segments replace others).
Everything is synchronous and gets its clock and disk as arguments.
"""

from felice.log.answers import AppendInfo, AppendOrigin, TimestampOffset
from felice.log.errors import CorruptLog, LogDirectoryError, LogOffline
from felice.log.log import Log

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "CorruptLog",
    "Log",
    "LogDirectoryError",
    "LogOffline",
    "TimestampOffset",
]
