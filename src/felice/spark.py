"""Spark over topics: `felice.spark.session(name)`, or `felice.spark.register(spark)` for your own session.

    spark = felice.spark.session("orders")
    spark.read.format("felice").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders")

The work is done in `felice.pipelines.spark`; this is its public name.
"""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ModuleNotFoundError(
        "felice.spark needs Spark: pip install 'felice[spark]'", name="pyspark"
    ) from error

from felice.env.java import JavaNotFound
from felice.pipelines.spark.lag import offsets_behind
from felice.pipelines.spark.registry.columns import from_registry, to_registry
from felice.pipelines.spark.session import register, session
from felice.pipelines.spark.updates import write_updates

__all__ = [
    "JavaNotFound",
    "from_registry",
    "offsets_behind",
    "register",
    "session",
    "to_registry",
    "write_updates",
]
