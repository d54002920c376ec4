"""The same program on any master: `spark_anywhere.py MASTER BOOTSTRAP SOURCE TARGET PLACE [ROWS]`.

Copies a topic exactly once by a stream, in batches of ROWS, counts the copy in a batch, and prints what it found as a
line of JSON.
"""

import json
import sys

import felice.spark

CONFIG = {
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
}


def main(master: str, bootstrap: str, source: str, target: str, place: str, rows_per_batch: str = "") -> None:
    config = CONFIG | ({} if master.startswith("sc://") else {"spark.ui.enabled": "false"})
    spark = felice.spark.session("anywhere", master, config=config)
    connected = {"kafka.bootstrap.servers": bootstrap}
    frame = spark.readStream.format("felice").options(
        **connected, subscribe=source, startingOffsets="earliest"
    )
    if rows_per_batch:
        frame = frame.option("maxOffsetsPerTrigger", rows_per_batch)
    query = (
        frame.load()
        .select("key", "value")
        .writeStream.format("felice")
        .options(**connected, topic=target, checkpointLocation=place)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copy = spark.read.format("felice").options(**connected, subscribe=target)
    read = copy.option("kafka.isolation.level", "read_committed").load()
    rows = read.selectExpr("count(1)", "count(distinct value)").collect()[0]
    print(json.dumps({"rows": rows[0], "distinct": rows[1], "query": str(query.id)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
