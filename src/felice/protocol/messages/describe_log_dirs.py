"""DescribeLogDirs (key 35): the log directories of one broker, and what they hold (KIP-113).

A top-level error from version 3; the volume's size and free space from version 4 (KIP-827);
whether new partitions are kept away from the directory from version 5.
"""

from __future__ import annotations

from felice.protocol.schema import (
    FIRST_OWN_TAG,
    array,
    boolean,
    int16,
    int32,
    int64,
    request,
    response,
    string,
    struct,
)


@struct
class DescribableLogDirTopic:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@request(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    """The requested partitions; None requests all."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@struct
class DescribeLogDirsPartition:
    """One replica in the directory.

    `offset_lag` is how far its end lies behind the high watermark or, if it is a future replica, behind the
    replica that it is to replace.
    """

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct
class DescribeLogDirsTopic:
    """Replicas of one topic."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct
class DescribeLogDirsResult:
    """One directory. -1 bytes: not known.

    `stray_logs` is Felice's own: names of directories in it that hold records and were set aside. Clients of Kafka
    skip a tag that they do not know (KIP-482).
    """

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(versions="4+", default=-1, ignorable=True)
    usable_bytes: int = int64(versions="4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean(versions="5+", default=False, ignorable=True)
    stray_logs: list[str] = array(string, versions="2+", tag=FIRST_OWN_TAG, ignorable=True)


@response(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    """One entry for each directory."""

    throttle_time_ms: int = int32()
    error_code: int = int16(versions="3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
