"""The process and its event loop. These metrics exist from the first moment of a broker on."""

from __future__ import annotations

from collections.abc import Iterator

from felice.env.process_stats import ProcessStats, process_stats
from felice.server.lifecycle import Lifecycle, State
from felice.server.metrics.families import Families, Family, Kind, Row, counter, gauge, histogram_rows
from felice.server.metrics.loop_watch import LoopWatch
from felice.server.metrics.names import Dialect, MBean

BROKER_STATES = {
    State.NEW: 0,
    State.LOADING: 2,
    State.JOINING: 1,
    State.RUNNING: 3,
    State.LEAVING: 6,
    State.STOPPING: 7,
}
"""The numbers of Kafka's BrokerState."""

_IDLE = MBean("kafka.server", "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent")
_IDLE_NAMES = {
    Dialect.CONFLUENT: "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
    Dialect.REPORTER: "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
}
_NETWORK_IDLE = MBean("kafka.network", "SocketServer", "NetworkProcessorAvgIdlePercent")


def process(lifecycle: Lifecycle, watch: LoopWatch) -> Families:
    """State of the broker, delay of the event loop, memory, descriptors and processor time."""
    state = MBean("kafka.server", "KafkaServer", "BrokerState")
    yield gauge(
        state,
        "0 new, 1 joining, 2 recovery, 3 running, 6 leaving, 7 stopping.",
        BROKER_STATES[lifecycle.state],
    )
    yield Family(
        "felice_event_loop_delay_seconds",
        Kind.GAUGE,
        "How late timers of the event loop fired: every request of that moment waited as long.",
        histogram_rows({"": watch.delays}),
    )
    yield counter("felice_event_loop_delay_seconds_count", "Measurements of the delay.", watch.ticks)
    yield gauge(
        "felice_event_loop_delay_seconds_max",
        "The largest delay since the metrics were last computed.",
        watch.take_largest_delay(),
    )
    text = "The share of the last 30 s in which the event loop's thread did not compute, 0 to 1."
    yield Family(_IDLE, Kind.GAUGE, text, [("", watch.idle_share)], _IDLE_NAMES)
    yield gauge(_NETWORK_IDLE, text, watch.idle_share)
    yield from _used(process_stats())


def _used(stats: ProcessStats) -> Iterator[Family]:
    yield counter("process_cpu_seconds_total", "Processor time of all threads.", stats.cpu_s)
    for name, text, value in (
        ("process_open_fds", "Open descriptors.", stats.open_descriptors),
        ("process_max_fds", "The limit of open descriptors.", stats.max_descriptors),
        ("process_virtual_memory_bytes", "Virtual memory.", stats.virtual_bytes),
        ("process_resident_memory_bytes", "Resident memory.", stats.resident_bytes),
    ):
        yield Family(name, Kind.GAUGE, text, _known(value))
    server = "kafka_server_kafkaserver_linux_disk"
    yield Family(f"{server}_read_bytes", Kind.GAUGE, "Bytes read from disks.", _known(stats.disk_read_bytes))
    yield Family(
        f"{server}_write_bytes", Kind.GAUGE, "Bytes written to disks.", _known(stats.disk_write_bytes)
    )


def _known(value: int) -> list[Row]:
    return [("", value)] if value >= 0 else []
