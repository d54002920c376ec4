"""`felice start` that writes a census of its objects on SIGUSR2. Runs as a script, in the broker's process.

The first argument is the file that receives one line of JSON for each signal: tasks, objects, and the most frequent
types. With PYTHONTRACEMALLOC set, also where memory was allocated.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

TYPES = 60


def census() -> dict[str, Any]:
    objects = gc.get_objects()
    types = Counter(f"{type(found).__module__}.{type(found).__qualname__}" for found in objects)
    counted: dict[str, Any] = {
        "at": time.time(),
        "tasks": sum(isinstance(found, asyncio.Task) and not found.done() for found in objects),
        "objects": len(objects),
        "types": dict(types.most_common(TYPES)),
    }
    if tracemalloc.is_tracing():
        top = tracemalloc.take_snapshot().statistics("lineno")[:TYPES]
        counted["memory"] = {str(found.traceback): found.size for found in top}
    return counted


def main() -> None:
    from felice.cli.main import main as felice

    path = Path(sys.argv.pop(1))

    def write(*_: object) -> None:
        with path.open("a") as out:
            out.write(json.dumps(census()) + "\n")

    signal.signal(signal.SIGUSR2, write)
    felice()


if __name__ == "__main__":
    main()
