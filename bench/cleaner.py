"""Measures the log cleaner on one thread, without a broker, on a topic of a million keys with two records each.

Half of the records are superseded, and they are spread evenly, so that every batch must be rebuilt. This is the
worst case of a pass. MB/s of input counts each byte of the log once, although a pass reads the dirty part twice.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

from felice.config import TopicConfig
from felice.env import SystemClock, SystemDisk
from felice.log.cleaner_pass import CleanerSettings, CleaningPass, log_facts
from felice.log.cleaner_plan import cleanable
from felice.log.log import Log
from felice.log.throttle import Throttle
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec
from felice.records.kernels import IMPLEMENTATION

_RECORDS_A_BATCH = 500
_NOW_MS = 1_700_000_000_000


def clean_keys(keys: int, record_bytes: int, codec: Codec = Codec.NONE) -> dict[str, float]:
    """Cleans a log of `2 * keys` records and returns the figures."""
    with tempfile.TemporaryDirectory(prefix="felice-bench-") as directory:
        log = Log.open(
            SystemDisk(),
            SystemClock(),
            Path(directory),
            ("bench", 0),
            TopicConfig(cleanup_policy=("compact",), segment_bytes=256 * 1024 * 1024),
        )
        _fill(log, keys, record_bytes, codec)
        input_mb = log.size_bytes / 1e6
        begun, cpu = time.perf_counter(), time.thread_time()
        work = _clean(log)
        seconds, cpu_s = time.perf_counter() - begun, time.thread_time() - cpu
        assert work.stats.records_kept == keys, work.stats
        assert work.end_offset == 2 * keys
        return {
            "input MB": input_mb,
            "input MB/s": input_mb / seconds,
            "input MB per cpu s": input_mb / cpu_s,
            "records/s": 2 * keys / seconds,
            "offset map MB": work.stats.map_slots * 24 / 1e6,
            "compiled": float(IMPLEMENTATION == "compiled"),
        }


def _fill(log: Log, keys: int, record_bytes: int, codec: Codec) -> None:
    chance = random.Random(7)
    numbers = list(range(keys)) * 2
    chance.shuffle(numbers)
    value = chance.randbytes(record_bytes)
    for start in range(0, len(numbers), _RECORDS_A_BATCH):
        builder = BatchBuilder(codec)
        for number in numbers[start : start + _RECORDS_A_BATCH]:
            builder.append(_NOW_MS, b"key-%012d" % number, value)
        log.append(builder.build(), leader_epoch=0, now_ms=_NOW_MS)
    log.roll()


def _clean(log: Log) -> CleaningPass:
    found = cleanable(log_facts(log, log.log_end_offset, None), _NOW_MS)
    settings = CleanerSettings(134_217_728, 0.9, 524_288, random.Random(7).randbytes(16))
    work = CleaningPass(
        log, found, settings, Throttle(SystemClock(), lambda: sys.float_info.max), now_ms=_NOW_MS
    )
    work.index()
    for group in work.groups():
        segment = work.clean(group)
        assert segment is not None
        assert work.swap_in(group, segment)
    return work
