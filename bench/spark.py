"""Measures the rows for each second that Spark reads from a topic and writes to a topic."""

from __future__ import annotations

import time

from bench.systems import Felice
from bench.workloads import Figures, create_topic


def source_and_sink(rows: int, value_bytes: int) -> Figures:
    """Fills a topic, reads it into Spark's noop sink, and copies it to another topic. Starting Spark does not count."""
    import felice.spark

    with Felice() as system:
        spark = felice.spark.session("bench", master="local[2]")
        try:
            topic, copy = create_topic(system.bootstrap), create_topic(system.bootstrap)
            options = {"kafka.bootstrap.servers": system.bootstrap}
            filler = spark.range(rows).selectExpr(
                "cast(cast(id as string) as binary) as key",
                f"cast(repeat('x', {value_bytes}) as binary) as value",
            )

            def write(frame: object, to: str) -> float:
                begun = time.perf_counter()
                frame.write.format("felice").options(**options, topic=to).mode("append").save()  # type: ignore[attr-defined]
                return time.perf_counter() - begun

            def read() -> float:
                begun = time.perf_counter()
                frame = spark.read.format("felice").options(**options, subscribe=topic).load()
                frame.write.format("noop").mode("overwrite").save()
                return time.perf_counter() - begun

            write(filler.limit(1000), copy)  # warm-up, because the first job starts Python workers
            sink_s = write(filler, topic)
            read()
            return {
                "sink rows/s": rows / sink_s,
                "source to noop rows/s": rows / read(),
                "topic to topic rows/s": rows
                / write(
                    spark.read.format("felice")
                    .options(**options, subscribe=topic)
                    .load()
                    .select("key", "value"),
                    copy,
                ),
            }
        finally:
            spark.stop()
