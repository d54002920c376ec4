"""Starts Spark's Python workers as PySpark's own daemon does, from a process that has imported what workers need.

Keeps true: a process with more than one thread is never forked. If an import starts a thread, PySpark's daemon takes
            over, which imports nothing.
How:        Forked workers share the memory of what was imported before. Python's search for cycles writes to each
            object that it looks at. It leaves out frozen objects, so their memory stays shared.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path

from pyspark import daemon

IMPORTED = (
    "pyspark.worker",
    "felice.pipelines.spark.source",
    "felice.pipelines.spark.writer",
    "felice.pipelines.streams.on_spark.source",
)
_THREADS = Path("/proc/self/task")


def main() -> None:
    """Take the requests of Spark's Java until it ends. The arguments of the process are those of PySpark's daemon."""
    for name in IMPORTED:
        import_module(name)
    if not _has_one_thread():
        os.execv(sys.executable, [sys.executable, "-m", daemon.__name__, *sys.argv[1:]])
    gc.collect()
    gc.freeze()
    daemon.manager()


def _has_one_thread() -> bool:
    """False also where the system does not tell."""
    return _THREADS.exists() and len(list(_THREADS.iterdir())) == 1


if __name__ == "__main__":
    main()
