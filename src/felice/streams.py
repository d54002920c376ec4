"""Stream applications with Kafka Streams' semantics, in Python: `App`, `Stream`, `Table`, and a `TestDriver`.

docs/streams.md explains it.
"""

from felice.pipelines.errors import FormatError, OutsideError
from felice.pipelines.limits import TopicLimits
from felice.pipelines.streams.app import App
from felice.pipelines.streams.driver import TestDriver
from felice.pipelines.streams.formats import Format, session_windowed, time_windowed
from felice.pipelines.streams.global_table import GlobalTable
from felice.pipelines.streams.grouped import (
    GroupedStream,
    GroupedTable,
    SessionedStream,
    WindowedStream,
    cogroup,
)
from felice.pipelines.streams.on_spark.program import ApplicationFailed, RunningApp
from felice.pipelines.streams.on_spark.queries import StoredState
from felice.pipelines.streams.processing import Context, KeyValues, Processor, WindowValues
from felice.pipelines.streams.record import Record, RecordMetadata, Timestamped, Window, Windowed
from felice.pipelines.streams.registry_formats import avro, json_schema, protobuf
from felice.pipelines.streams.side_output import SideOutput
from felice.pipelines.streams.stores import Rows
from felice.pipelines.streams.stream import Stream, Table
from felice.pipelines.streams.task import StreamsError
from felice.pipelines.streams.topology import DeadLetters, TopologyError
from felice.pipelines.streams.views import StoreView
from felice.pipelines.streams.windows import (
    CalendarWindows,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    hours,
    mins,
    secs,
)

__all__ = [
    "App",
    "ApplicationFailed",
    "CalendarWindows",
    "Context",
    "DeadLetters",
    "Format",
    "FormatError",
    "GlobalTable",
    "GroupedStream",
    "GroupedTable",
    "JoinWindows",
    "KeyValues",
    "OutsideError",
    "Processor",
    "Record",
    "RecordMetadata",
    "Rows",
    "RunningApp",
    "SessionWindows",
    "SessionedStream",
    "SideOutput",
    "SlidingWindows",
    "StoreView",
    "StoredState",
    "Stream",
    "StreamsError",
    "Table",
    "TestDriver",
    "TimeWindows",
    "Timestamped",
    "TopicLimits",
    "TopologyError",
    "Window",
    "WindowValues",
    "Windowed",
    "WindowedStream",
    "avro",
    "cogroup",
    "hours",
    "json_schema",
    "mins",
    "protobuf",
    "secs",
    "session_windowed",
    "time_windowed",
]
