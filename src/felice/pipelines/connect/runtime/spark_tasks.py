"""Spark for the tasks of a worker, started with the first task: a worker without tasks needs no Java."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.runtime.task_process import TaskSpec

if TYPE_CHECKING:
    from pyspark import SparkContext

    from felice.pipelines.connect.runtime.spark_jobs import SparkJobs

_log = logging.getLogger("felice.connect.runtime")

MASTER = "spark.master"
_APP = "spark.app.name"


class _LogFile:
    """What Spark's Java and its Python processes write. It is left behind unless the worker stopped well."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def open(self) -> BinaryIO:
        """The file, in the folder for temporary files."""
        if self._file is None:
            number, name = tempfile.mkstemp(prefix="felice-connect-spark-", suffix=".log")
            os.close(number)
            self._file = Path(name).open("wb")  # noqa: SIM115 - it is closed at the worker's end
        return self._file

    def delete(self) -> None:
        """Removes it."""
        if self._file is not None:
            self._file.close()
            Path(self._file.name).unlink(missing_ok=True)


class SparkTasks:
    """Runs tasks as jobs of a session (`Jobs`). `config` are the session's options, `spark.master` among them."""

    def __init__(self, config: Mapping[str, str], slots: int) -> None:
        self._config = config
        self._slots = slots
        self._log_file = _LogFile()
        self._starting: asyncio.Future[SparkJobs] | None = None
        self._context: SparkContext | None = None

    async def start(self, spec: TaskSpec, on_end: Callable[[BaseException | None], None]) -> str:
        """As `Jobs.start`. Raises `ConnectError` if there is no Spark, too."""
        if self._starting is None or (self._starting.done() and self._starting.exception() is not None):
            self._starting = asyncio.ensure_future(asyncio.to_thread(self._started))
        jobs = await asyncio.shield(self._starting)
        return jobs.start(spec, on_end)

    def cancel(self, name: str) -> None:
        """As `Jobs.cancel`."""
        if self._starting is not None and self._starting.done() and self._starting.exception() is None:
            jobs = self._starting.result()
            # It waits for an answer of Spark's Java.
            asyncio.get_running_loop().run_in_executor(None, jobs.cancel, name)

    async def close(self) -> None:
        """As `Jobs.close`."""
        if self._starting is not None:
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._context is not None:
            from felice.pipelines.spark.session import stop

            await asyncio.to_thread(stop, self._context)
            self._log_file.delete()

    def _started(self) -> SparkJobs:
        try:
            from felice.pipelines.connect.runtime.spark_jobs import CONFIG, IMPORTED, SparkJobs
            from felice.pipelines.spark.session import bare_context
        except ImportError as error:
            raise ConnectError(f"tasks need Spark: pip install 'felice[connect]' ({error})") from error
        master = self._config.get(MASTER, f"local[{self._slots}]")
        log_file = self._log_file.open()
        _log.info("Spark starts with the master %s; its own log is %s", master, log_file.name)
        given = {name: text for name, text in self._config.items() if name not in (MASTER, _APP)}
        config = {**CONFIG, **given}
        try:
            name = self._config.get(_APP, "felice-connect")
            self._context = bare_context(name, master, config, log_file, IMPORTED)
        except Exception as error:
            raise ConnectError(
                f"Spark cannot be started with the master {master}: {error}; its log is {log_file.name}"
            ) from error
        return SparkJobs(self._context, self._slots)
