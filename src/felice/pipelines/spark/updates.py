"""Writes results in update mode to a topic. Uses `foreachBatch`: Spark refuses this mode in a Python sink.

Keeps true: the changed rows of each batch are written exactly once, by a batch write that is identified by the query
            and the batch.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from felice.pipelines.spark.mistakes import OptionError
from felice.pipelines.spark.options import SinkOptions
from felice.pipelines.spark.properties import QUERY_ID


def write_updates(frame: DataFrame, **options: str | int) -> DataStreamWriter:
    """`frame.writeStream` in update mode, to the topic and brokers of `options`; give it a checkpoint and start it.

    `options` are those of the sink. With Spark Connect they must include `txnAppId`, a name that no other query has.
    """
    # A wrong option is reported now, not by the first batch.
    SinkOptions.parse({name: str(value) for name, value in options.items() if name != "txnAppId"})

    def write(batch: DataFrame, batch_id: int) -> None:
        named = {"txnAppId": options.get("txnAppId") or _query_id(batch), "txnVersion": batch_id}
        if options.get("deliveryGuarantee") == "at_least_once":
            named = {}
        batch.write.format("felice").options(**options | named).mode("append").save()

    return frame.writeStream.outputMode("update").foreachBatch(write)


def _query_id(batch: DataFrame) -> str:
    try:
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    except Exception:  # Connect has no Spark context to ask.
        query_id = None
    if query_id is None:
        raise OptionError("txnAppId", "is required here: a name of the query's own, the same at each start")
    return str(query_id)
