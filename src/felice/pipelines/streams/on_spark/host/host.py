"""Many Apps in one streaming query of Spark, each with its own positions, state and results exactly once.

    host = Host("localhost:9092", "/data/host")
    host.start()
    host.put(app)
    host.states()

Keeps true: what `put`, `drop`, `pause` and `resume` have changed is durable when they return. A host that starts
            again, also after a kill, goes on with the newest plan.
            An App that fails stops alone: its failure is durable before the batch runs again without it. A batch whose
            results are decided never runs without an App that took part in it: the App would write them again.
How:        Spark's query runs all the time; a change is a new plan, which the next batch takes. The query is started
            again only after a failure, or if an App has more parts one after the other than the query has stages.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from felice.client.blocking import BlockingClient
from felice.client.blocking.coordinators import BlockingCoordinators
from felice.client.error import KafkaException
from felice.dataclass import dataclass
from felice.pipelines.spark.cluster import open_view
from felice.pipelines.spark.ledger import last_decision
from felice.pipelines.spark.mistakes import QueryError
from felice.pipelines.spark.offsets import Offsets, from_checkpoint, to_checkpoint
from felice.pipelines.spark.options import SinkOptions, SourceOptions
from felice.pipelines.spark.session import has_java_ended, register_source
from felice.pipelines.streams.app import App
from felice.pipelines.streams.on_spark.application import Application
from felice.pipelines.streams.on_spark.changes import KEPT, of_program, other_stores, planned
from felice.pipelines.streams.on_spark.directory import (
    Checkpoint,
    CheckpointError,
    Description,
    write_durably,
)
from felice.pipelines.streams.on_spark.host.failing import Failed, failed_in
from felice.pipelines.streams.on_spark.host.left_out import AGGREGATE, LeftOut
from felice.pipelines.streams.on_spark.host.level import LIMIT_S, Hosting, run_level
from felice.pipelines.streams.on_spark.host.outages import Outages
from felice.pipelines.streams.on_spark.host.plans import (
    Entry,
    Failure,
    HostPlan,
    KnownApp,
    PlanFiles,
    ReadFailures,
    check_hosted,
    levels_of,
    written_topics,
)
from felice.pipelines.streams.on_spark.host.positions import Positions
from felice.pipelines.streams.on_spark.host.reader import (
    HOSTING,
    MAX_RECORDS,
    NAME,
    HostDataSource,
    written_hosting,
)
from felice.pipelines.streams.on_spark.lock import RunLock
from felice.pipelines.streams.on_spark.modules import SentModule
from felice.pipelines.streams.on_spark.packs import SPARK_SCHEMA
from felice.pipelines.streams.on_spark.progress import METRICS
from felice.pipelines.streams.on_spark.rows import OUT
from felice.pipelines.streams.on_spark.runner import (
    QUERY_CONFIG,
    check,
    connected_options,
    sent_topology,
    session_for_applications,
    workers_for_state,
    write_logs_in_less_time,
)
from felice.pipelines.streams.on_spark.running import STOP_WITHIN_S, failure_of
from felice.pipelines.streams.on_spark.spark_logs import SparkLogs
from felice.pipelines.streams.on_spark.starts import found_starts

MAX_RECORDS_OF_BATCH = 200_000
FIRST_LEVELS = 2
"""The stages of a query. Each more takes some milliseconds of a batch."""
MOST_ATTEMPTS = 5
"""So many times in a row the query is started again after failures that are of no App."""
_AGAIN_AFTER_S = 1.0
_POLL_S = 0.1
_TOPIC_WITHIN_S = 5.0
"""Brokers need a moment to make a topic."""
_DECISION_WITHIN_MS = 10_000
_FINE_AFTER_S = 10.0
"""A query that runs for this time after an error that no App caused has recovered, even without records to read."""
_JAVA_ENDED = "Spark's Java process has ended; the host starts it again"

log = logging.getLogger(__name__)


class State(Enum):
    """What a hosted App does."""

    RUNNING = "running"
    PAUSED = "paused"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class HostedState:
    """The state of an App; why it failed; how many records its topics had after its positions, when last reported."""

    state: State
    error: str | None = None
    behind: int | None = None
    is_overdue: bool = False
    """Whether it failed because it did not return in time."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many records it left out since the host was started, by reason: skipped, late, null, time."""


class Host:
    """Runs Apps in one query. Its methods may be called from several threads."""

    def __init__(
        self,
        bootstrap: str,
        checkpoint: str | Path,
        *,
        client: Mapping[str, object] = MappingProxyType({}),
        spark: SparkSession | None = None,
        master: str = "local[*]",
        partitions: int | None = None,
        max_records: int = MAX_RECORDS_OF_BATCH,
        modules: tuple[SentModule, ...] = (),
        name: str = "felice-host",
        limit_s: float = LIMIT_S,
    ) -> None:
        """`client` has properties of a client, such as its login. `partitions` is the number of tasks of each part with
        state, which the first start fixes: the number of cores unless given. `max_records` limits a batch; the Apps
        share it. Without a session, `start` makes one with this `master`. An App whose code takes longer than `limit_s`
        for its records of a batch has failed.
        """
        self.name = name
        self._connected = connected_options(bootstrap, client)
        self._config = SinkOptions.parse(self._connected).client
        self._checkpoint = Checkpoint(Path(checkpoint).absolute())
        self._spark, self._master = spark, master
        self._partitions, self._max_records, self._modules = partitions, max_records, modules
        self._limit_s = limit_s
        self._files = PlanFiles(self._checkpoint.directory)
        self._run_lock = RunLock(self._checkpoint, name)
        self._changing = threading.RLock()
        self._query: StreamingQuery | None = None
        self._levels = FIRST_LEVELS
        self._stops = threading.Event()
        self._follower: threading.Thread | None = None
        self._failure: str | None = None
        self._trouble: str | None = None
        """Why the query was started again, until it has finished a batch or runs for a while."""
        self._newest = HostPlan()
        self._left_out = LeftOut()
        self._read_failures = ReadFailures()
        self._outages = Outages(self._config)

    def start(self) -> None:
        """Start Spark's query with the newest plan. Raises `CheckpointError` if another process runs the host."""
        if self._checkpoint.is_used:
            raise CheckpointError(
                f"{self._checkpoint.path} is the checkpoint of an application; use another directory"
            )
        self._run_lock.take()
        try:
            spark = self._spark = self._spark or session_for_applications(self.name, self._master)
            self._run_lock.note_java(int(spark.sparkContext._jvm.ProcessHandle.current().pid()))  # type: ignore[union-attr]
            register_source(spark, HostDataSource)
            self._failure = self._trouble = None
            self._left_out = LeftOut()
            self._start_query(spark)
        except BaseException:
            self._run_lock.release()
            raise
        self._stops.clear()
        self._follower = threading.Thread(target=self._follow, args=(spark,), name=self.name, daemon=True)
        self._follower.start()

    def put(self, app: App, *, paused: bool = False) -> None:
        """Add an App, or replace the one of its name, which goes on at its positions and with its state. Returns when
        that is durable.

        Raises `CheckpointError` if the new version has other stores, `TopologyError` if the App cannot run here, and
        `QueryError` if a topic is missing.
        """
        check(app)
        check_hosted(app.name, app.topology)
        self._check_writable(written_topics(app.topology))
        pickled = sent_topology(app.topology)
        is_clocked = bool(Application(app.topology, None).clocked)
        with self._changing:
            plan = self._plan()
            before = plan.find(app.name)
            described = self._described(app, before)
            entry = Entry(
                app.name,
                before.incarnation if before else f"{app.name}@{plan.number + 1}",
                self._files.write_app(pickled),
                levels_of(app.topology),
                app.topology.subscription(),
                written_topics(app.topology),
                is_clocked,
                self._starts(app, before),
                described,
                is_paused=paused,
                cleared=self._cleared(plan, before),
            )
            self._write(plan.following(app.name, entry))

    def drop(self, name: str, *, state: bool = True) -> None:
        """Remove an App. With `state` its positions and stores go, too; otherwise an App of this name that is put later
        goes on with them. Raises `KeyError` if there is no such App.
        """
        with self._changing:
            plan = self._plan()
            entry = plan.named(name)
            self._write(plan.following(name, None if state else replace(entry, is_detached=True)))

    def pause(self, name: str) -> None:
        """Stop an App. Its positions and its state stay. Raises `KeyError` if there is no such App."""
        self._change(name, lambda plan, entry: replace(entry, is_paused=True))

    def resume(self, name: str) -> None:
        """Go on with an App that was paused, or that failed: at the batch in which it did. Raises `QueryError` if a
        topic that it writes is missing.
        """
        with self._changing:
            writes = self._plan().named(name).writes
        self._check_writable(writes, 0.0)
        self._change(
            name,
            lambda plan, entry: replace(entry, is_paused=False, cleared=self._cleared(plan, entry)),
        )

    def states(self) -> Mapping[str, HostedState]:
        """The Apps. If the query cannot go on, all that would run have its error."""
        with self._changing:
            plan = self._plan()
        failed = plan.failed(self._files.failures(self._read_failures))
        behind, left_out = self._reported(plan)
        found = {}
        for one in plan.entries:
            if one.is_detached:
                continue
            told = HostedState(
                State.RUNNING, None, behind.get(one.incarnation), left_out=left_out.get(one.incarnation, {})
            )
            if (failure := failed.get(one.incarnation)) is not None:
                told = replace(told, state=State.ERROR, error=failure.error, is_overdue=failure.is_overdue)
            elif one.is_paused:
                told = replace(told, state=State.PAUSED)
            elif self._failure is not None:
                told = replace(told, state=State.ERROR, error=self._failure)
            found[one.name] = told
        return found

    def runs_newest_plan(self) -> bool:
        """Whether the last batch that Spark has planned uses the newest plan. Before that, a batch of an older plan may
        run Apps that the newest plan has stopped.
        """
        with self._changing:
            plan = self._plan()
        done, planned = self._last_positions()
        return (planned or done or Positions()).plan == plan.number

    def stop(self) -> None:
        """Stop the query after its running batch, or after a time. Spark's session stays."""
        self._stops.set()
        if self._follower is not None:
            self._follower.join()
            self._follower = None
        self._outages.close()
        self._run_lock.note_java(None)
        self._run_lock.release()

    @property
    def failure(self) -> str | None:
        """Why the query has ended, and is not started again; None while it runs."""
        return self._failure

    @property
    def trouble(self) -> str | None:
        """Why no App can write results at present, although no App has failed; None while Apps can write results."""
        return self._failure or self._outages.reason or self._trouble

    def _plan(self) -> HostPlan:
        number = self._files.latest_number()
        if self._newest.number != number:
            self._newest = self._files.plan(number)
        return self._newest

    def _write(self, plan: HostPlan) -> None:
        if self._follower is None:
            raise CheckpointError("the host is not started, and another process may run it")
        self._files.write(plan)
        done, _ = self._last_positions()
        if done is not None:
            self._files.remove_older(done.plan, done.batch)

    def _change(self, name: str, change: Callable[[HostPlan, Entry], Entry]) -> None:
        with self._changing:
            plan = self._plan()
            self._write(plan.following(name, change(plan, plan.named(name))))

    def _cleared(self, plan: HostPlan, entry: Entry | None) -> int:
        """The number of the last failure of an App, which no longer counts."""
        if entry is None:
            return -1
        failure = plan.failed(self._files.failures()).get(entry.incarnation)
        return entry.cleared if failure is None else failure.number

    def _described(self, app: App, before: Entry | None) -> Description:
        if before is None:
            return Description(app.name, partitions=0, starting={}, **of_program(app.topology))
        known = KnownApp(self._checkpoint.path, before.description, self._checkpoint.last_batches())
        change = planned(app, known)
        assert change is not None, "the App is described"
        levels = levels_of(app.topology)
        if (
            change.rewritten
            or any(one.what != KEPT for one in change.fates)
            or _levels_by_directory(levels, change.after)
            != _levels_by_directory(before.levels, before.description)
        ):
            raise other_stores(known)
        return change.after

    def _starts(self, app: App, before: Entry | None) -> dict[str, dict[str, int]]:
        """Where topics begin. Raises `QueryError` if one is missing."""
        option, value = app.topology.subscription()
        if not value:
            return {}
        view = open_view(SourceOptions.parse({**self._connected, option: value}))
        try:
            view.partitions()
        finally:
            view.close()
        known = dict(before.starts) if before else {}
        old = set(before.description.topics) if before else set()
        new = [topic for topic in app.topology.topics() if topic not in old]
        return known | found_starts(app.topology, new, self._connected)

    def _check_writable(self, topics: Sequence[str], within_s: float = _TOPIC_WITHIN_S) -> None:
        """Raise `QueryError` for a missing topic that brokers do not make. Otherwise all Apps would wait for it in
        the first batch with a result.
        """
        until = time.monotonic() + within_s
        with BlockingClient(self._config) as client:
            while topics:
                found = client.metadata(topics, allow_auto_create=True).topics
                faults = {name: error for name in topics if (error := found[name].error) is not None}
                if not faults:
                    return
                if time.monotonic() > until or not all(error.retriable() for error in faults.values()):
                    told = "; ".join(
                        f"topic {name} cannot be written: {one.str()}" for name, one in faults.items()
                    )
                    raise QueryError(told)
                time.sleep(_POLL_S)

    def _places(self, spark: SparkSession) -> int:
        path = self._checkpoint.directory / "host.json"
        with suppress(FileNotFoundError):
            kept = int(json.loads(path.read_text())["partitions"])
            if self._partitions not in (None, kept):
                raise CheckpointError(f"{self._checkpoint.path} has {kept} partitions, and keeps them")
            return kept
        places = self._partitions or int(spark.sparkContext.defaultParallelism)
        write_durably(path, json.dumps({"format": 1, "partitions": places}))
        return places

    def _start_query(self, spark: SparkSession) -> None:
        # In a thread of its own: a data source is known to the session that is active there.
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]
        for option, value in QUERY_CONFIG.items():
            spark.conf.set(option, value)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        hosting = Hosting(
            self._files,
            str(self._checkpoint.directory / "state"),
            self._places(spark),
            self._config,
            self._modules,
            self._limit_s / attempts_of_tasks(spark),
        )
        self._levels = max(self._levels, self._plan().levels)
        source = spark.readStream.format(NAME).options(
            **self._connected,
            **{HOSTING: written_hosting(hosting), MAX_RECORDS: str(self._max_records)},
            includeHeaders="true",
            **{"kafka.isolation.level": "read_committed"},
        )
        results = _stages(source.load(), hosting, self._levels)
        write_logs_in_less_time(spark)
        writer = results.writeStream.format(NAME).options(
            **self._connected, **{HOSTING: written_hosting(hosting)}
        )
        writer = writer.queryName(self.name)
        writer = writer.option("checkpointLocation", str(self._checkpoint.path))
        self._query = writer.trigger(processingTime="0 milliseconds").start()

    def _follow(self, spark: SparkSession) -> None:
        """Start the query again when an App has failed, or needs more stages."""
        attempts, last, fine_at = 0, -1, 0.0
        while not self._stops.wait(_POLL_S):
            query = self._query
            assert query is not None, "start began it"
            try:
                self._outages.look()
                if query.isActive:
                    if self._plan().levels > self._levels:
                        self._end(query)
                        self._start_query(spark)
                    elif self._trouble is not None and (
                        time.monotonic() > fine_at or self._checkpoint.last_batches()[1] > last
                    ):
                        self._trouble = None
                    continue
                failed = failed_in(str(query.exception()))
                if failed is None or not self._noted(failed):
                    done = self._checkpoint.last_batches()[1]
                    attempts, last = (attempts + 1 if done == last else 1), done
                    self._trouble, fine_at = failure_of(query), time.monotonic() + _FINE_AFTER_S
                    log.warning("the host's query has failed, and is started again: %s", self._trouble)
                    if attempts >= MOST_ATTEMPTS:
                        self._failure = self._trouble
                        return
                    if self._stops.wait(_AGAIN_AFTER_S):
                        return
                self._start_query(spark)
            except Exception as error:  # Java has ended, or the disk is full.
                has_ended = has_java_ended()
                self._failure = _JAVA_ENDED if has_ended else f"{type(error).__name__}: {error}"
                log.warning("the host cannot go on: %s", self._failure, exc_info=not has_ended)
                return
        if self._query is not None:
            with suppress(Exception):
                self._end(self._query)

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query after its running batch."""
        until = time.monotonic() + STOP_WITHIN_S
        planned, done = self._checkpoint.last_batches()
        while query.isActive and planned > done and time.monotonic() < until:
            if self._checkpoint.last_batches()[1] >= planned:
                break
            time.sleep(_POLL_S)
        query.stop()

    def _noted(self, failed: Failed) -> bool:
        """Write down which Apps failed in the last planned batch, with their positions before it. Returns False if they
        must take part in that batch.
        """
        done, planned = self._last_positions()
        if planned is not None and not self._is_undecided(planned.batch):
            return False
        at = planned or done or Positions()
        before = (done or Positions()) if planned is not None else at
        failures = self._files.failures()
        reached = before.corrected(self._files.plan(before.plan), failures)
        for name in failed.incarnations:
            log.warning("%s failed in batch %d: %s", name, at.batch, failed.error)
            positions = to_checkpoint(reached.apps.get(name, {}))
            number = self._files.next_failure(self._plan())
            failure = Failure(number, name, at.batch, failed.error, positions, failed.is_overdue)
            self._files.write_failure(failure)
        return True

    def _is_undecided(self, batch: int) -> bool:
        """Whether brokers say that the results of a batch are not decided. A driver that was killed may have decided
        them, and not noted that the batch is done: it runs again, and Apps that took part must do so again. One that
        fails only now, such as one that waits for something, would else go on before this batch.
        """
        try:
            with BlockingClient(self._config, retry_timeout_ms=_DECISION_WITHIN_MS) as client:
                decision = last_decision(BlockingCoordinators(client), self._checkpoint.query_id)
        except (KafkaException, QueryError, OSError) as error:
            log.warning("brokers do not say whether batch %d is decided: %s", batch, error)
            return False
        return decision is None or decision.batch_id < batch

    def _last_positions(self) -> tuple[Positions | None, Positions | None]:
        """The end of the last batch that is done, and that of a later one that is planned."""
        planned, done = self._checkpoint.last_batches()
        logs = SparkLogs(self._checkpoint.path)
        texts = [logs.planned_offsets(number) if number >= 0 else None for number in (done, planned)]
        found = [None if text is None else Positions.of(json.loads(text)) for text in texts]
        return found[0], found[1] if planned > done else None

    def _reported(self, plan: HostPlan) -> tuple[dict[str, int], dict[str, Mapping[str, int]]]:
        """How many records each App has not read, and how many it left out, by incarnation."""
        query, progress = self._query, None
        with suppress(Exception):  # Java may have ended.
            progress = None if query is None else query.lastProgress
            if query is not None and progress is not None:
                self._left_out.add(progress, lambda: query.recentProgress)
        return _behind(progress, plan), {
            one.incarnation: self._left_out.of(one.incarnation) for one in plan.entries
        }


def attempts_of_tasks(spark: SparkSession) -> int:
    """How often Spark runs a task that fails: each attempt has a part of an App's time."""
    context = spark.sparkContext
    master = context.master or ""
    if master.startswith("local"):
        given = re.search(r",\s*(\d+)\s*\]", master)
        return int(given[1]) if given else 1
    return int(context.getConf().get("spark.task.maxFailures", "4") or 4)


def _behind(progress: Any, plan: HostPlan) -> dict[str, int]:
    if progress is None:
        return {}
    source = progress["sources"][0]
    try:
        latest, end = _document(source["latestOffset"]), _document(source["endOffset"])
        ends = from_checkpoint(latest)
        reached = Positions.of(end)
    except (KeyError, TypeError, ValueError):
        return {}
    return {
        one.incarnation: _count_behind(one, reached.apps.get(one.incarnation, {}), ends)
        for one in plan.entries
    }


def _document(given: object) -> Any:
    return json.loads(given) if isinstance(given, str) else given


def _count_behind(entry: Entry, at: Offsets, ends: Offsets) -> int:
    return sum(max(0, end - at.get(key, 0)) for key, end in ends.items() if entry.reads(key[0]))


def _levels_by_directory(levels: tuple[tuple[int, ...], ...], described: Description) -> dict[str, int]:
    return {described.directory_of(part): level for level, parts in enumerate(levels) for part in parts}


def _stages(packs: DataFrame, hosting: Hosting, levels: int) -> DataFrame:
    for level in range(levels):
        placed = packs.repartitionById(hosting.places, "place")
        with workers_for_state(packs.sparkSession):
            run = partial(run_level, hosting=hosting, level=level, is_last=level == levels - 1)
            packs = placed.mapInArrow(run, SPARK_SCHEMA)
    packs = packs.observe(METRICS, functions.expr(AGGREGATE))
    return packs.where(f"part = {OUT}").select("topic", "packed")
