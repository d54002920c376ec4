"""Copies a topic by a streaming query: `spark_copier.py BOOTSTRAP SOURCE TARGET PLACE ROWS TASKS`.

Says SPARK and the process id of its Java, BATCH and a number after each batch, FAILED and why where the query fails (it
is started again), and DONE when everything is copied. A file PLACE/die holds a number N: the next commit kills Java and
its own process at its Nth request to a broker, and removes the file first. TASKS 0 leaves the rows in the tasks that
read them; else so many tasks get them by chance, in another way at each replay.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from felice.client.blocking import BlockingClient
from felice.pipelines.spark.options import SinkOptions
from felice.pipelines.spark.session import session
from felice.pipelines.spark.source import FeliceDataSource
from felice.pipelines.spark.writer import StreamWriter

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
}


def main(bootstrap: str, source: str, target: str, place: str, rows: str, tasks: str) -> None:
    # A task whose worker is killed runs again, up to four times.
    spark = session("copier", "local[2,4]", config=CONFIG)
    java = int(spark.sparkContext._jvm.ProcessHandle.current().pid())
    spark.dataSource.register(mortal_source(Path(place) / "die", java))
    print("SPARK", java, flush=True)
    connected = {"kafka.bootstrap.servers": bootstrap}
    reading = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": rows}
    frame = spark.readStream.format("felice").options(**connected, **reading).load()
    frame = frame.select("key", "value", "partition")
    if int(tasks):
        frame = frame.repartition(int(tasks), F.rand())
    while True:
        query = (
            frame.writeStream.format("felice")
            .options(**connected, topic=target, checkpointLocation=f"{place}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        if followed(query):
            print("DONE", flush=True)
            return


def followed(query: Any) -> bool:
    """Whether the query copied everything."""
    told = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > told:
            told = progress["batchId"]
            print("BATCH", told, flush=True)
        time.sleep(0.02)
    if (error := query.exception()) is not None:
        print("FAILED", str(error).strip().splitlines()[-1][:300], flush=True)
    return error is None


def mortal_source(order: Path, java: int) -> type:
    """Defined inside a function, so that Spark pickles the whole function."""

    class MortalClient(BlockingClient):
        requests_left = 0

        def ask(self, address: Any, request: Any) -> Any:
            self.count_down()
            answer = super().ask(address, request)
            self.count_down()
            return answer

        def ask_all(self, address: Any, requests: Any) -> Any:
            answers = []
            for request in requests:
                answers.append(self.ask(address, request))
            return answers

        def count_down(self) -> None:
            self.requests_left -= 1
            if self.requests_left == 0:
                os.kill(java, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)

    class MortalWriter(StreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            from felice.pipelines.spark import writer

            if order.exists():
                client = MortalClient(self._options.client)
                client.requests_left = int(order.read_text())
                order.unlink()
                writer.client_of = lambda config: client
            super().commit(messages, batchId)

    class MortalSource(FeliceDataSource):
        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
            return MortalWriter(SinkOptions.parse(self.options))

    return MortalSource


if __name__ == "__main__":
    main(*sys.argv[1:])
