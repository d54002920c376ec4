"""Creates a Spark session that can read and write topics: finds Java, and registers the data source.

Keeps true: workers run the Python of the driver. The user's own settings (JAVA_HOME, PYSPARK_PYTHON, a running session)
            are used and not overwritten, unless Spark cannot run with them. On this machine, Spark starts Python
            through `worker_python`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from importlib.util import find_spec
from typing import BinaryIO

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from felice.env.java import find_java
from felice.env.variables import changed
from felice.pipelines.spark import class_archive
from felice.pipelines.spark.source import FeliceDataSource
from felice.pipelines.spark.worker_python import directory_of_workers, early_python, prepared_process

JAVA_STOPS_WITHIN_S = 30
CONNECT = "sc://"
PYTHON = "PYSPARK_PYTHON"
FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_UNIX_SOCKETS = "spark.python.unix.domain.socket."
_LONGEST_DIRECTORY = 60
"""The path of a Unix socket has some hundred bytes, of which Spark's names take 42."""
_SQL = (
    "pyspark.worker",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "felice.pipelines.spark.source",
    "felice.pipelines.spark.writer",
    "felice.pipelines.streams.on_spark.source",
    "felice.pipelines.streams.plan",
    # Arrow imports pandas in each process that calculates with it, if it is installed.
    *(["pandas"] if find_spec("pandas") else []),
)
"""What programs of a session import: Spark's own, and the sources of this project."""


def session(name: str, master: str = "local[*]", *, config: Mapping[str, str] | None = None) -> SparkSession:
    """A SparkSession with `format("felice")` ready.

    `master`: `local[*]` this machine, `spark://host:7077` a cluster, `sc://host` Spark Connect, and `sc://local[*]` a
    Connect server that is started on this machine.
    """
    prepare_environment()
    _prepare_workers(master, config or {}, _SQL)
    # A session that runs already keeps its settings.
    is_new = SparkSession.getActiveSession() is None
    builder = SparkSession.builder.appName(name)
    builder = (
        builder.remote(connect_address(master)) if master.startswith(CONNECT) else builder.master(master)
    )
    for key, value in {**_local_config(master), **(config or {})}.items():
        builder = builder.config(key, value)
    with _environment_of_java(master):
        spark = builder.getOrCreate()
    if is_new:
        spark.conf.set(FILTER_PUSHDOWN, "true")
    if is_new and not master.startswith(CONNECT):
        _shuffle_into_few(spark)
    register(spark)
    return spark


def bare_context(
    name: str, master: str, config: Mapping[str, str], stderr: BinaryIO, modules: Sequence[str]
) -> SparkContext:
    """Spark without SQL, for jobs of plain Python: it starts sooner, and needs two Python processes less.

    The jobs' Python has imported the `modules`. For `stderr` see `start_java`.
    """
    _prepare_workers(master, config, modules)
    start_java(master, config, stderr)
    settings = {**_local_config(master), **config}
    conf = SparkConf().setAppName(name).setMaster(master).setAll(list(settings.items()))
    with _environment_of_java(master):
        context = SparkContext.getOrCreate(conf)
    _let_workers_report_early(context)
    return context


def connect_address(master: str) -> str:
    """The address for Spark Connect. `sc://local[2]` becomes `local[2]`: Spark then starts a server on this machine."""
    rest = master.removeprefix(CONNECT)
    return rest if rest.startswith("local") and not rest.startswith("localhost") else master


def start_java(master: str, config: Mapping[str, str], stderr: BinaryIO) -> None:
    """Start Spark's Java before its session, and write the standard error of Java and its workers to a file.

    Pass the `master` and `config` of the later session, because options of Java have an effect only here. A Java that
    runs already is kept.
    """
    if SparkContext._gateway is not None:
        return
    prepare_environment()
    conf = SparkConf(loadDefaults=False).setAll(list(config.items()))
    with _environment_of_java(master):
        gateway = launch_gateway(conf, {"stderr": stderr})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def register(spark: SparkSession) -> None:
    """Register `format("felice")` in a session that the caller created, classic or Connect."""
    register_source(spark, FeliceDataSource)


def register_source(spark: SparkSession, source: type[FeliceDataSource]) -> None:
    """Register a data source, and tell it the session's cores and whether the session allows filters."""
    _let_workers_report_early(getattr(spark, "_sc", None))
    takes_filters = str(spark.conf.get(FILTER_PUSHDOWN, "false")).lower() == "true"
    known = {"cores": _cores(spark), "takes_filters": takes_filters}
    spark.dataSource.register(type(source.__name__, (source,), known))


def stop(spark: SparkSession | SparkContext) -> None:
    """Stop a classic session or a context, and wait until its Java has ended, with its temporary files."""
    spark.stop()
    prepared_process.end()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    # Spark's Java ends when its standard input does; PySpark would leave that to the end of this process.
    process = gateway.proc
    process.stdin.close()
    process.wait(timeout=JAVA_STOPS_WITHIN_S)
    SparkContext._gateway = SparkContext._jvm = None


def has_java_ended() -> bool:
    """Whether this process has started a Java process that has ended."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def forget_ended_java() -> None:
    """If the Java process of this process has ended, let the next session start another. PySpark alone would not."""
    gateway = SparkContext._gateway
    if gateway is None or not has_java_ended():
        return
    for end in (getattr(SparkContext._active_spark_context, "stop", None), gateway.shutdown):
        if end is not None:
            with suppress(Exception):  # Both also tell Java, and free what is here.
                end()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def prepare_environment() -> None:
    """Set the environment variables that Spark's JVM and its workers inherit."""
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault(PYTHON, sys.executable)


def _local_config(master: str) -> dict[str, str]:
    """Java and Python on one machine talk through Unix sockets.

    Through TCP, Java's first small writes to a worker wait 40 ms for each task: the system collects what follows
    (Nagle's algorithm), and the receiver delays its acknowledgement.
    """
    directory = str(directory_of_workers())
    if not _is_on_this_machine(master) or len(directory) > _LONGEST_DIRECTORY:
        return {}
    return {_UNIX_SOCKETS + "enabled": "true", _UNIX_SOCKETS + "dir": directory}


def _environment_of_java(master: str) -> AbstractContextManager[None]:
    """Spark's Java, and a Connect server of this machine, take options of Java and the Python for workers from the
    environment in which they are started.
    """
    values = {class_archive.OPTIONS_OF_JAVA: class_archive.options_of_java()}
    if _is_on_this_machine(master):
        values[PYTHON] = early_python(os.environ[PYTHON])
    return changed(values)


def _is_on_this_machine(master: str) -> bool:
    return connect_address(master).startswith("local")


def _prepare_workers(master: str, config: Mapping[str, str], modules: Sequence[str]) -> None:
    """Import what workers need while Java starts."""
    if _is_on_this_machine(master):
        prefix = "spark.executorEnv."
        added = {name.removeprefix(prefix): text for name, text in config.items() if name.startswith(prefix)}
        # PySpark gives its workers this seed, too.
        prepared_process.start(modules, {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")} | added)


def _let_workers_report_early(context: SparkContext | None) -> None:
    """For what is passed to Spark from now on. A Connect client has no context: it does not say which Python runs."""
    if context is not None and (context.master or "").startswith("local"):
        context.pythonExec = early_python(context.pythonExec)


def _shuffle_into_few(spark: SparkSession) -> None:
    """As many shuffle partitions as cores, unless the user has set a number.

    Spark's own 200 cost a streaming query with state 200 tasks a batch, and some 50 ms of Python or state store each.
    """
    if not spark.sparkContext.getConf().contains(SHUFFLE_PARTITIONS):
        spark.conf.set(SHUFFLE_PARTITIONS, str(_cores(spark)))


def _cores(spark: SparkSession) -> int:
    """A Connect session has no SparkContext to ask; then this machine's cores are the best guess."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        return os.cpu_count() or 1
