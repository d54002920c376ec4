"""Felice's Spark source and sink beside Spark's own Kafka connector: one Spark session, one Felice broker."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.programs import Unavailable
from bench.systems import Felice, Shared, tree_cpu_seconds
from bench.workloads import Figures, scratch_topic

_MASTER = "local[2]"
_BATCHES = 8
_TRIGGERS = 20
_WITHIN_S = 600.0
# Spark reports a trigger without data every ten seconds only, unless this is set.
_IDLE_REPORTS = "spark.sql.streaming.noDataProgressEventInterval"
_IDLE_REPORTS_MS = "10000"


@dataclass(frozen=True, slots=True)
class Connector:
    """A data source of Spark by its name, and the broker that it uses."""

    format: str
    spark: Any
    bootstrap: str

    def options(self, **more: str) -> dict[str, str]:
        """The options that both connectors know."""
        return {"kafka.bootstrap.servers": self.bootstrap, **more}

    def read(self, topic: str) -> Any:
        """The records of a topic."""
        return self.spark.read.format(self.format).options(**self.options(subscribe=topic)).load()

    def write(self, rows: Any, topic: str) -> None:
        """Append rows to a topic, at least once."""
        rows.write.format(self.format).options(**self.options(topic=topic)).mode("append").save()

    def stream(self, topic: str, **more: str) -> Any:
        """The records of a topic, from its beginning, as a stream."""
        options = self.options(subscribe=topic, startingOffsets="earliest", **more)
        return self.spark.readStream.format(self.format).options(**options).load().select("key", "value")


@contextmanager
def _session_on_broker() -> Iterator[tuple[Any, str]]:
    from felice.pipelines.spark.session import session, stop
    from peers.cache import PeerMissing
    from peers.spark_connector import connector_jars

    try:
        jars = connector_jars()
    except PeerMissing as missing:
        raise Unavailable(str(missing)) from None
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    with Felice() as broker:
        spark = session("bench", _MASTER, config=settings)
        try:
            yield spark, broker.bootstrap
        finally:
            stop(spark)


_SESSION = Shared(_session_on_broker)


@contextmanager
def _connector(format_: str) -> Iterator[Connector]:
    with _SESSION as (spark, bootstrap):
        yield Connector(format_, spark, bootstrap)


def felice_connector() -> Any:
    """`format("felice")`."""
    return _connector("felice")


def jvm_connector() -> Any:
    """`format("kafka")`, Spark's own."""
    return _connector("kafka")


def batches(rows: int, value_bytes: int) -> Callable[[Connector], Figures]:
    """Fill a topic, and read it into Spark's noop sink."""

    def run(system: Connector) -> Figures:
        filler = system.spark.range(rows).selectExpr(
            "cast(cast(id as string) as binary) as key",
            f"cast(repeat('x', {value_bytes}) as binary) as value",
        )
        with scratch_topic(system.bootstrap) as topic:
            write_s = _timed(lambda: system.write(filler, topic))
            read_s = _timed(lambda: _to_noop(system.read(topic).select("key", "value")))
        return {"batch write rows/s": rows / write_s, "batch read rows/s": rows / read_s}

    return run


def streams(rows: int, value_bytes: int) -> Callable[[Connector], Figures]:
    """Stream a topic into Spark's noop sink, and into another topic, in eight batches; the query's start counts."""

    def run(system: Connector) -> Figures:
        limit = str(max(1, rows // _BATCHES))
        with scratch_topic(system.bootstrap) as topic, scratch_topic(system.bootstrap) as copy:
            filler = system.spark.range(rows).selectExpr(
                "cast(cast(id as string) as binary) as key",
                f"cast(repeat('x', {value_bytes}) as binary) as value",
            )
            # By the same connector for both, so that both read the same batches of records.
            Connector("felice", system.spark, system.bootstrap).write(filler, topic)
            found = {}
            for figure, sink, options in (
                ("stream read rows/s", "noop", {}),
                ("stream copy rows/s (felice: exactly once)", system.format, {"topic": copy}),
                ("stream copy rows/s, at least once", system.format, _at_least_once(system, copy)),
            ):
                source = system.stream(topic, maxOffsetsPerTrigger=limit)
                found[figure] = rows / _timed(lambda s=source, k=sink, o=options: _caught_up(system, s, k, o))
        return found

    return run


def triggers(idle_s: float) -> Callable[[Connector], Figures]:
    """A query from topic to topic: triggers of one row, triggers without data, and the processor when nothing comes."""

    def run(system: Connector) -> Figures:
        with scratch_topic(system.bootstrap, 1) as topic, scratch_topic(system.bootstrap, 1) as copy:
            with _running(system, topic, copy, reports_ms="0") as query:
                one_row_ms = [_trigger_of_one_row(system, query, topic) for _ in range(_TRIGGERS)]
                empty_ms = _empty_triggers(query)
            with _running(system, topic, copy, reports_ms=_IDLE_REPORTS_MS) as query:
                _wait(lambda: not query.status["isTriggerActive"])
                time.sleep(2)
                java = int(system.spark.sparkContext._jvm.ProcessHandle.current().pid())
                before, begun = tree_cpu_seconds(java), time.monotonic()
                time.sleep(idle_s)
                # Processes that ended meanwhile do not count.
                used_s = sum(s - before.get(one, 0.0) for one, s in tree_cpu_seconds(java).items())
                used = used_s / (time.monotonic() - begun)
        return {
            "trigger of one row, median ms": statistics.median(one_row_ms),
            "empty trigger, median ms": statistics.median(empty_ms),
            "idle query, % of a core": 100 * used,
        }

    return run


def _at_least_once(system: Connector, topic: str) -> dict[str, str]:
    # Spark's own connector has no other guarantee, and no option for it.
    mine = {"deliveryGuarantee": "at_least_once"} if system.format == "felice" else {}
    return {"topic": topic, **mine}


def _timed(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _to_noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _caught_up(system: Connector, source: Any, sink: str, options: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="felice-bench-") as directory:
        writer = source.writeStream.format(sink).options(**(system.options(**options) if options else {}))
        query = writer.option("checkpointLocation", directory).trigger(availableNow=True).start()
        query.awaitTermination()


@contextmanager
def _running(system: Connector, topic: str, copy: str, *, reports_ms: str) -> Iterator[Any]:
    system.spark.conf.set(_IDLE_REPORTS, reports_ms)
    with tempfile.TemporaryDirectory(prefix="felice-bench-") as directory:
        writer = system.stream(topic).writeStream.format(system.format).options(**system.options(topic=copy))
        query = writer.option("checkpointLocation", str(Path(directory) / "checkpoint")).start()
        try:
            yield query
        finally:
            query.stop()


def _trigger_of_one_row(system: Connector, query: Any, topic: str) -> float:
    from confluent_kafka import Producer

    # A producer that sends metrics logs that it begins to, once for each trigger.
    producer = Producer({"bootstrap.servers": system.bootstrap, "enable.metrics.push": False})
    seen = {one["batchId"] for one in query.recentProgress if one["numInputRows"]}
    producer.produce(topic, b"x" * 100)
    producer.flush(30)

    def new() -> list[Any]:
        return [one for one in query.recentProgress if one["numInputRows"] and one["batchId"] not in seen]

    _wait(lambda: bool(new()))
    return float(new()[-1]["durationMs"]["triggerExecution"])


def _empty_triggers(query: Any) -> list[float]:
    def found() -> list[float]:
        return [
            float(one["durationMs"]["triggerExecution"])
            for one in query.recentProgress
            if not one["numInputRows"]
        ]

    _wait(lambda: len(found()) >= _TRIGGERS)
    return found()


def _wait(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not is_done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the query did not answer within {_WITHIN_S:.0f} s")
        time.sleep(0.02)
