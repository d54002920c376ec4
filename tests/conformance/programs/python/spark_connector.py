"""Spark's own Kafka connector against a broker: `spark_connector.py BOOTSTRAP TOPIC JARS DIRECTORY`.

Prints one JSON line: what a batch and a stream read, and what its sink wrote and read back.
"""

import json
import sys
from pathlib import Path

from felice.pipelines.spark.session import session, stop


def main(bootstrap: str, topic: str, jars: str, directory: str) -> None:
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    spark = session("connector", "local[2]", config=settings)
    connected = {"kafka.bootstrap.servers": bootstrap}

    def read(name: str) -> list[list[object]]:
        frame = spark.read.format("kafka").options(**connected, subscribe=name).load()
        rows = frame.selectExpr(
            "cast(key as string) k", "cast(value as string) v", "partition", "offset", "timestamp"
        )
        return sorted([row["k"], row["v"], row["partition"], row["offset"]] for row in rows.collect())

    def stream(name: str, to: str) -> None:
        source = spark.readStream.format("kafka").options(
            **connected, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="40"
        )
        query = (
            source.load()
            .selectExpr("key", "value", "partition")
            .writeStream.format("kafka")
            .options(**connected, topic=to, checkpointLocation=str(Path(directory) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    by_batch = read(topic)
    stream(topic, f"{topic}-copy")
    by_time = (
        spark.read.format("kafka")
        .options(
            **connected, subscribe=topic, startingTimestamp="1", endingOffsets="latest", minPartitions="5"
        )
        .load()
        .count()
    )
    copied = read(f"{topic}-copy")
    again = spark.read.format("felice").options(**connected, subscribe=f"{topic}-copy").load().count()
    print(json.dumps({"batch": by_batch, "by_time": by_time, "copied": copied, "read_by_felice": again}))
    stop(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
