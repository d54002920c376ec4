"""The demo's Spark query: hourly delays by origin and carrier, with the weather of the hour and the airline's name.

A flight counts in the hour of its scheduled departure: with the actual hour, the night hours would have
only delayed flights. The stream is in order of actual departure, so its event time is out of order by the delays.

Keeps true: the last result of a window counts all its flights. Each batch is written exactly
            once. If two batches change a window, it has two results with the same key,
            so in the same partition, and the complete count comes last. Readers keep
            the last record of each key.

The results are updates, which `write_updates` writes. Append mode would never write the last
hours of the year: it would wait for later flights to move the watermark.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from felice.pipelines.spark.updates import write_updates

BATCH_ROWS = 120_000
# The consumer group whose lag shows the progress of the query.
GROUP = "felice-demo-spark"
# Flights of one carrier are in order of departure, at most a day from their schedule. Carriers have different
# partitions, and their shares of the traffic change over the year, so one batch has flights of different days.
# Flights that are later than this would be dropped.
LATENESS = "14 days"

FLIGHT = "carrier string, origin string, dep_delay double"
WEATHER = "origin string, time_hour timestamp, temp double, wind_speed double, precip double, visib double"
AIRLINE = "carrier string, name string"
RESULT = (
    *("origin", "carrier", "airline", "hour"),
    *("flights", "cancelled", "delay_sum_min", "delay_max_min"),
    *("temp", "wind_speed", "precip", "visib"),
)


def start_query(spark: SparkSession, bootstrap: str, checkpoint: Path, results: str) -> StreamingQuery:
    """Starts a query that follows the flights and writes to the topic `results`. The tables are complete already."""
    connected = {"kafka.bootstrap.servers": bootstrap}
    tables = _tables(spark, connected)
    windows = hourly_windows(_flights(spark, connected))
    joined = windows.join(F.broadcast(_weather(tables)), ["origin", "hour"], "left").join(
        F.broadcast(_airlines(tables)), "carrier", "left"
    )
    records = joined.select(
        F.concat_ws("|", "origin", "carrier", F.date_format("hour", "yyyy-MM-dd'T'HH:mm'Z'")).alias("key"),
        F.to_json(F.struct(*RESULT), {"ignoreNullFields": "false"}).alias("value"),
    )

    return (
        write_updates(records, **connected, topic=results)
        .option("checkpointLocation", str(checkpoint))
        .queryName("delays")
        .start()
    )


def hourly_windows(flights: DataFrame) -> DataFrame:
    """Counts and delays by hour, origin and carrier.

    `flights` has the columns scheduled, origin, carrier, dep_delay (minutes, null if cancelled).
    """
    return (
        flights.withWatermark("scheduled", LATENESS)
        .groupBy(F.window("scheduled", "1 hour"), "origin", "carrier")
        .agg(
            F.count("*").alias("flights"),
            (F.count("*") - F.count("dep_delay")).alias("cancelled"),
            F.coalesce(F.sum("dep_delay"), F.lit(0.0)).alias("delay_sum_min"),
            F.max("dep_delay").alias("delay_max_min"),
        )
        .withColumn("hour", F.col("window.start"))
        .drop("window")
    )


def _flights(spark: SparkSession, connected: dict[str, str]) -> DataFrame:
    source = spark.readStream.format("felice").options(
        **connected,
        subscribe="flights",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=BATCH_ROWS,
        groupId=GROUP,
    )
    flight = F.from_json(F.col("value").cast("string"), FLIGHT)
    return (
        source.load()
        .select(F.col("timestamp").alias("scheduled"), flight.alias("f"))
        .select("scheduled", "f.*")
    )


def _tables(spark: SparkSession, connected: dict[str, str]) -> DataFrame:
    """The records of both tables. One source for both: each source starts Python processes of its own."""
    source = spark.read.format("felice").options(**connected, subscribe="weather,airlines").load()
    return source.selectExpr("topic", "offset", "cast(value as string) as value").cache()


def _weather(tables: DataFrame) -> DataFrame:
    return _latest(
        _table(tables, "weather", WEATHER).withColumnRenamed("time_hour", "hour"), "origin", "hour"
    )


def _airlines(tables: DataFrame) -> DataFrame:
    return _latest(_table(tables, "airlines", AIRLINE).withColumnRenamed("name", "airline"), "carrier")


def _table(tables: DataFrame, topic: str, columns: str) -> DataFrame:
    row = F.from_json("value", columns)
    return tables.where(F.col("topic") == topic).select("offset", row.alias("row")).select("offset", "row.*")


def _latest(rows: DataFrame, *key: str) -> DataFrame:
    """The last row of each key. Records with the same key are in one partition, so offsets order them."""
    columns = [column for column in rows.columns if column not in (*key, "offset")]
    last = F.max_by(F.struct(*columns), "offset")
    return rows.groupBy(*key).agg(last.alias("last")).select(*key, "last.*").cache()
