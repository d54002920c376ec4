"""Options of Java where Spark runs on one machine, and its work is done by Python or is short."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyspark

COLLECTOR = "-XX:+UseSerialGC"
OPTIONS = " ".join(
    (
        # In the first minutes the optimising compiler takes half of Java's processor time. It does not make the copies
        # between Python processes faster.
        "-XX:TieredStopAtLevel=1",
        # The heap grows as the program needs, and shrinks again. Otherwise it is never smaller than 1/64 of the
        # machine's memory.
        COLLECTOR,
        "-Xms64m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40",
        "-XX:-UsePerfData",
    )
)
ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}
"""In this environment Java's threads share two pools of memory outside the heap. Otherwise each of eight pools or more
keeps what it once needed.
"""
_READ_BY_JAVA = "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"
_READ_BY_SPARK = "PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS"


def options_for_few_resources() -> str:
    """The options, without the garbage collector if the user has chosen one: Java does not start with two."""
    return OPTIONS.replace(COLLECTOR, "") if _names_a_collector(_users_options()) else OPTIONS


def _names_a_collector(options: str) -> bool:
    return re.search(r"-XX:\+Use\w+GC", options) is not None


def _users_options() -> str:
    """What the environment and Spark's defaults say."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or f"{home}/conf") / "spark-defaults.conf"
    texts = [os.environ.get(variable, "") for variable in (*_READ_BY_JAVA, *_READ_BY_SPARK)]
    return "\n".join([*texts, defaults.read_text() if defaults.is_file() else ""])
