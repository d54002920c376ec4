"""Starts an App as one streaming query on Spark: from its topics through its tasks to its topics, exactly once.

Keeps true: one query with one checkpoint is the whole application. Spark's logs say which offsets a batch has; the
            state's versions have the batch's number; the sink writes a batch once. So offsets, state and results always
            agree, and a batch that runs again replaces what its first run left.
How:        The source gives out packs of records, each for one place (`source`); then each part with state has a
            shuffle by place and a stage. Packs of other parts pass through, so that the query stays one line of stages
            and nothing is computed twice.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakSet

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from felice.env.interrupts import children_ignore_sigterm
from felice.pipelines.errors import PlainError
from felice.pipelines.spark import java
from felice.pipelines.spark.options import SinkOptions
from felice.pipelines.spark.session import forget_ended_java, register_source, session
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.message_classes import reduced
from felice.pipelines.streams.on_spark.changes import (
    NO_CHOICES,
    Choices,
    MakeChange,
    check_partitions,
    make,
    of_program,
    other_stores,
    planned,
)
from felice.pipelines.streams.on_spark.checkpoint_copy import copy_of, describe
from felice.pipelines.streams.on_spark.directory import (
    Checkpoint,
    CheckpointError,
    Description,
    address_of,
    below,
    is_address,
)
from felice.pipelines.streams.on_spark.filling import TableTopics
from felice.pipelines.streams.on_spark.frames import frame_of_packs, packs_of_frame
from felice.pipelines.streams.on_spark.large_state import MIB, STATE_MEMORY_MB, LargeStates
from felice.pipelines.streams.on_spark.modules import SentModule
from felice.pipelines.streams.on_spark.packs import DROPPED, MOST_BYTES, READ, SKIPPED, SPARK_SCHEMA
from felice.pipelines.streams.on_spark.places import place_at
from felice.pipelines.streams.on_spark.progress import METRICS, dropped_metric
from felice.pipelines.streams.on_spark.rows import OUT
from felice.pipelines.streams.on_spark.source import (
    COPY,
    MAX_IDLE_MS,
    NAME,
    PLAN,
    STARTS,
    StreamsDataSource,
    written_plan,
)
from felice.pipelines.streams.on_spark.spark_logs import SparkLogs
from felice.pipelines.streams.on_spark.stage import Plan, packed_ticks, run_part
from felice.pipelines.streams.on_spark.starts import FindStarts, found_starts
from felice.pipelines.streams.scope import Scope
from felice.pipelines.streams.topology import Described, Node, TopicFormats, Topology, TopologyError

FRAME = "(results)"
"""In place of a topic for the results that a DataFrame has. No topic of Kafka can have this name."""
EARLIEST = {"startingOffsets": "earliest"}
MAX_RECORDS = 200_000
"""A task holds its part of a batch in memory. With fewer records, the fixed costs of a batch count more."""
FOR_STATE = "FELICE_STREAMS_STATE"
"""Set in the environment of workers that hold state."""
WORKER_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
}
"""In this environment a Python worker gives memory back to the system after each batch. Otherwise it would keep as much
as its largest batch needed.
"""
SPARK_CONFIG = {
    **{f"spark.executorEnv.{name}": value for name, value in WORKER_MEMORY.items()},
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    # Applications of one process share the cores batch by batch; a long batch of one does not hold up the others.
    "spark.scheduler.mode": "FAIR",
}
QUERY_CONFIG = {
    # Spark must not change the number of tasks by itself, because each task has the state of one partition.
    "spark.sql.adaptive.enabled": "false",
    # Spark sends 10,000 rows to Python at once. A row is a pack of megabytes, so their bytes are limited.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 * MOST_BYTES),
}

_registered: WeakSet[SparkSession] = WeakSet()


def session_for_applications(name: str, master: str) -> SparkSession:
    """A session with the settings of `felice run`, active in this thread. Its Java ignores SIGTERM, and ends when this
    process ends; one that was killed is replaced. The handlers of signals stay as they are.
    """
    forget_ended_java()
    # In the main thread PySpark would replace the handler of Ctrl-C.
    with children_ignore_sigterm(), ThreadPoolExecutor(1) as other_thread:
        spark = other_thread.submit(_session, name, master).result()
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]
    return spark


def _session(name: str, master: str) -> SparkSession:
    if not master.startswith("local"):
        return session(name, master, config=SPARK_CONFIG)
    for variable, value in java.ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    # Spark puts the user's own `extraJavaOptions` behind these, and the last value of an option counts.
    options = {"spark.driver.defaultJavaOptions": java.options_for_few_resources()}
    return session(name, master, config=SPARK_CONFIG | options)


def start(
    scope: Scope,
    spark: SparkSession,
    bootstrap: str,
    checkpoint: Path,
    *,
    client: Mapping[str, object] = MappingProxyType({}),
    partitions: int | None = None,
    state: str | None = None,
    until_caught_up: bool = False,
    trigger_ms: int = 0,
    max_records: int | None = None,
    max_task_idle_ms: int = 0,
    state_memory_mb: int | None = None,
    local_state: Path | None = None,
    modules: tuple[SentModule, ...] = (),
    choices: Choices = NO_CHOICES,
) -> StreamingQuery:
    """Start an App. With `until_caught_up` it ends when it has processed all records that exist now.

    `client` has properties of a client, such as its login, for both the source and the sink. `partitions` is the
    number of tasks of each part with state: the number of cores, unless the first start names another number. `state`
    is where the stores are, if not in the checkpoint; the first start fixes it, too. `max_records` limits the records
    of a batch that are from topics: `MAX_RECORDS`, unless the application also reads DataFrames, which have no limit.
    A batch waits up to `max_task_idle_ms` for records of empty partitions. Stores that take more than
    `state_memory_mb` in memory are kept in `local_state`, on each worker's machine. The `modules` are sent to the
    workers. `choices` are for a new version of the program (`changes`). The caller must hold a `lock.RunLock` on the
    checkpoint.
    """
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", scope.name)
    connected = connected_options(bootstrap, client)
    kept = Checkpoint(checkpoint.absolute())
    results = _results_of(
        scope,
        spark,
        connected,
        kept,
        partitions,
        max_records,
        max_task_idle_ms=max_task_idle_ms,
        state_memory_mb=state_memory_mb,
        local_state=local_state,
        modules=modules,
        choices=choices,
        state=state,
    )
    write_logs_in_less_time(spark)
    writer = results.writeStream.format(NAME).options(**connected, **_copied(kept, scope.name))
    writer = writer.option("checkpointLocation", str(kept.path)).queryName(scope.name)
    timed = {"availableNow": True} if until_caught_up else {"processingTime": f"{trigger_ms} milliseconds"}
    return writer.trigger(**timed).start()


def dataframe(
    scope: Scope,
    node: Node,
    formats: tuple[Format, Format],
    spark: SparkSession,
    bootstrap: str,
    checkpoint: Path,
    *,
    client: Mapping[str, object] = MappingProxyType({}),
    partitions: int | None = None,
    max_records: int | None = None,
) -> DataFrame:
    """The records of a node, in the columns of `frames.SPARK_SCHEMA`, for a query of the caller. Its checkpoint must be
    this one. For the other arguments see `start`.
    """
    letters = {name for node in scope.topology.nodes if node.source for name in node.source.dead_letters}
    if letters := letters | scope.topology.late_letters():
        raise TopologyError(
            f'a DataFrame has no topics for dead letters ({", ".join(sorted(letters))}); use "skip"'
        )
    kept = Checkpoint(checkpoint.absolute())
    sink = Node(f"frame-{len(scope.topology.nodes)}", sink=TopicFormats(FRAME, *formats, is_frame=True))
    with scope.topology.with_node(sink, node):
        results = _results_of(
            scope, spark, connected_options(bootstrap, client), kept, partitions, max_records, is_own=False
        )
    return frame_of_packs(results.where(functions.col("topic") == FRAME), kept.path)


def write_logs_in_less_time(spark: SparkSession) -> None:
    """Spark's usual way to write a file of its logs, through Hadoop's newer interface, takes some 27 ms longer, and a
    batch writes two, one after the other.

    This way looks whether the file exists before it renames. That is enough, because a lock keeps others out.
    """
    assert spark._jvm is not None, "a classic session has Java"
    for package in ("checkpointing.", ""):
        name = f"org.apache.spark.sql.execution.streaming.{package}FileSystemBasedCheckpointFileManager"
        try:
            spark._jvm.java.lang.Class.forName(name)
        except Py4JJavaError:
            continue  # Another version of Spark has it elsewhere.
        spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", name)
        return


def _copied(kept: Checkpoint, application: str) -> dict[str, str]:
    """What the sink must know of the checkpoint's copy."""
    copy = copy_of(kept, application)
    return {} if copy is None else {COPY: json.dumps([str(copy.directory), copy.address, application])}


def connected_options(bootstrap: str, client: Mapping[str, object]) -> dict[str, str]:
    """The options with which source and sink connect."""
    return {f"kafka.{name}": str(value) for name, value in {**client, "bootstrap.servers": bootstrap}.items()}


def _results_of(
    scope: Scope,
    spark: SparkSession,
    connected: dict[str, str],
    kept: Checkpoint,
    partitions: int | None,
    max_records: int | None,
    *,
    is_own: bool = True,
    max_task_idle_ms: int = 0,
    state_memory_mb: int | None = None,
    local_state: Path | None = None,
    modules: tuple[SentModule, ...] = (),
    choices: Choices = NO_CHOICES,
    state: str | None = None,
) -> DataFrame:
    """The packs of all results. `is_own`: for the application's own query, and not for one of the caller."""
    for name, value in QUERY_CONFIG.items():
        spark.conf.set(name, value)
    written = sent_topology(scope.topology)
    description = described(
        scope,
        kept,
        int(spark.sparkContext.defaultParallelism),
        partitions,
        change=partial(make, fill=TableTopics(kept.path, connected)) if is_own else None,
        find_starts=partial(found_starts, connected=connected),
        choices=choices,
        state=state,
    )
    plan = Plan(
        written,
        description.partitions,
        directories_of(scope.topology, kept, description),
        SinkOptions.parse(connected).client,
        None if is_own else str(kept.path),
        modules,
        _large_states(scope.topology, spark, kept, description, state_memory_mb, local_state),
    )
    register_once(spark)
    topics, frames, inputs = scope.topology.topics(), scope.topology.frames(), []
    # A limit of topics would let the rows of DataFrames, which have none, pass them.
    limit = max_records or (None if frames else MAX_RECORDS)
    if topics:
        source = spark.readStream.format(NAME).options(
            **connected,
            **{PLAN: written_plan(plan)},
            **dict([scope.topology.subscription()]),
            includeHeaders="true",
            **{"kafka.isolation.level": "read_committed"},
            **({"groupId": scope.name} if is_own else {}),
            **(description.starting or EARLIEST),
            **_limited(limit),
            **{MAX_IDLE_MS: str(max_task_idle_ms), STARTS: json.dumps(description.starts)},
        )
        inputs.append(source.load())
    inputs += [packs_of_frame(name, scope.frames[name], spark, plan) for name in frames]
    if plan.application().clocked:
        inputs.append(_ticks(spark, plan))
    if is_own:
        logs = SparkLogs(kept.path)
        logs.set_sources(len(inputs))
        if topics:
            logs.keep_topics(scope.topology.reads)
    return _stages(scope.topology, reduce(DataFrame.union, inputs), plan)


def _large_states(
    topology: Topology,
    spark: SparkSession,
    kept: Checkpoint,
    description: Description,
    state_memory_mb: int | None,
    local_state: Path | None,
) -> LargeStates:
    """When and where workers keep what does not fit in memory: on one machine, in the checkpoint."""
    parts = [part.number for part in topology.parts() if part.is_placed]
    share = _checked_memory(state_memory_mb) * MIB // (description.partitions * len(parts) or 1)
    if local_state is not None:
        return LargeStates(str(local_state.absolute()), share)
    if not (spark.sparkContext.master or "").startswith("local"):
        return LargeStates(None, share)
    large = LargeStates(str(kept.directory / "local"), share)
    # Tasks of another version of the program, or of another number of partitions, have left theirs.
    large.remove_others(
        kept.task_location(description, part, place)
        for part in parts
        for place in range(description.partitions)
    )
    return large


def _checked_memory(state_memory_mb: int | None) -> int:
    if state_memory_mb is not None and state_memory_mb < 1:
        raise TopologyError(f"state_memory_mb is {state_memory_mb}, but must be at least 1")
    return STATE_MEMORY_MB if state_memory_mb is None else state_memory_mb


class _Sender(cloudpickle.Pickler):
    """Pickles what an application consists of."""

    def reducer_override(self, given: Any) -> Any:
        """How an object is written."""
        found = reduced(given)
        return super().reducer_override(given) if found is None else found  # type: ignore[no-untyped-call]


def sent_topology(topology: Topology) -> bytes:
    """A topology as workers get it. Raises `TopologyError` for one that holds what cannot be sent."""
    try:
        written = io.BytesIO()
        _Sender(written).dump(topology)  # type: ignore[no-untyped-call]
        return written.getvalue()
    except PlainError as error:
        raise TopologyError(str(error)) from None
    except (TypeError, pickle.PicklingError) as error:
        raise TopologyError(f"the application cannot be sent to Spark's workers: {error}") from error


def register_once(spark: SparkSession) -> None:
    """Register the data source of applications in a session, unless it was registered there before."""
    if spark not in _registered:
        register_source(spark, StreamsDataSource)
        _registered.add(spark)


def _limited(max_records: int | None) -> dict[str, str]:
    return {} if max_records is None else {"maxOffsetsPerTrigger": str(max_records)}


def _ticks(spark: SparkSession, plan: Plan) -> DataFrame:
    """A row for each second, for timers of the wall clock. Spark logs them with the batch, so it can run again."""
    seconds = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    return seconds.mapInArrow(partial(packed_ticks, plan=plan), SPARK_SCHEMA)


def _stages(topology: Topology, packs: DataFrame, plan: Plan) -> DataFrame:
    for part in topology.parts():
        if part.is_placed:
            placed = packs.repartitionById(plan.places, "place")
            with workers_for_state(packs.sparkSession):
                packs = placed.mapInArrow(partial(run_part, plan=plan, number=part.number), SPARK_SCHEMA)
    counts = {"read": READ, "skipped": SKIPPED}
    packs = packs.observe(
        METRICS,
        *(functions.expr(f"sum(if(part = {part}, count, 0)) as {name}") for name, part in counts.items()),
        *(_dropped(label, reason) for label, reason in plan.application().drops()),
    )
    return packs.where(f"part = {OUT}").select("topic", "packed")


def _dropped(label: str, reason: str) -> Column:
    """The number of records that an operator left out for a reason."""
    part, topic, origin, count = (functions.col(name) for name in ("part", "topic", "origin", "count"))
    is_mine = (part == DROPPED) & (topic == label) & (origin == reason)
    return functions.sum(functions.when(is_mine, count).otherwise(0)).alias(dropped_metric(label, reason))


@contextmanager
def workers_for_state(spark: SparkSession) -> Iterator[None]:
    """Functions of Spark that are defined in this block run in Python workers of their own, and only these hold state.

    Spark keeps idle workers in one queue for each set of environment variables, and gives a task the first worker of
    its queue. With one queue for source, sink and stages, each worker came to run each task, and held a copy of the
    whole state.
    """
    environment = spark.sparkContext.environment
    environment[FOR_STATE] = "1"
    try:
        yield
    finally:
        del environment[FOR_STATE]


def described(
    app: Described,
    checkpoint: Checkpoint,
    default: int,
    partitions: int | None = None,
    *,
    change: MakeChange | None = None,
    find_starts: FindStarts = lambda topology, topics: {},
    choices: Choices = NO_CHOICES,
    state: str | None = None,
) -> Description:
    """Check that the checkpoint belongs to this App; describe the App in a new checkpoint, with `partitions` or the
    default. `change` changes the state to that of another version of the program. `find_starts` says where topics
    begin that are read for the first time.

    Raises `CheckpointError` if it belongs to another App, has another number of partitions, or must be changed and
    cannot be.
    """
    check(app)
    needed = planned(app, checkpoint, choices)
    if needed is None:
        description = Description(
            app.name,
            partitions=partitions or default,
            starting=checkpoint.starting(),
            is_frame=app.topology.has_frame_of_results(),
            starts=find_starts(app.topology, app.topology.topics()),
            **of_program(app.topology),
            state_at=_own_directory(stores_at, app.name)
            if (stores_at := state or checkpoint.copy_address)
            else "",
        )
        describe(checkpoint, description)
        return description
    found = needed.before
    check_partitions(found, checkpoint, partitions)
    if state is not None and address_of(_absolute(state)) != address_of(found.state_at).rpartition("/")[0]:
        kept = found.state_at or checkpoint.path
        raise CheckpointError(
            f"the state of {app.name} is kept at {kept}, and stays there; leave --state out"
        )
    if needed.added or needed.removed:
        gone = {*needed.added, *needed.removed}
        starts = {topic: at for topic, at in found.starts.items() if topic not in gone}
        starts |= find_starts(app.topology, needed.added)
        needed = replace(needed, after=replace(needed.after, starts=starts))
    if change is not None:
        return change(app, checkpoint, needed)
    if needed.is_needed:
        raise other_stores(checkpoint)
    if found.is_frame:
        describe(checkpoint, needed.after)
        return needed.after
    # Nothing is started, so the next start must still see which topics are new.
    return replace(needed.after, topics=found.topics, frames=found.frames, starts=found.starts)


def _own_directory(state: str, application: str) -> str:
    """A directory for one checkpoint. Another one with the same application may have left files there."""
    directory = below(_absolute(state), f"{application}-{secrets.token_hex(4)}")
    place_at(directory).children()  # Raises an error now if the place cannot be reached.
    return directory


def _absolute(location: str) -> str:
    return location if is_address(location) else str(Path(location).absolute())


def directories_of(topology: Topology, checkpoint: Checkpoint, description: Description) -> tuple[str, ...]:
    """Where the state of each part's tasks is."""
    state = checkpoint.state_location(description)
    return tuple(below(state, description.directory_of(part.number)) for part in topology.parts())


def check(app: Described) -> None:
    """Raise `TopologyError` if the App cannot run."""
    parts = app.topology.parts()
    writes = any(one for part in parts for one in part.sinks if not one.is_repartition)
    if not (writes or any(node.is_end or node.stores for part in parts for node in part.nodes)):
        raise TopologyError(
            f"{app.name} does nothing with its records: write a topic (to), keep a table (to_table, count), or call a "
            "function (foreach)"
        )
