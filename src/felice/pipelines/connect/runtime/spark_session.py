"""Spark for the tasks of a worker, started with the first task: a worker without tasks needs no Java."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.runtime.task_process import TaskSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from felice.pipelines.connect.runtime.spark_jobs import SparkJobs

_log = logging.getLogger("felice.connect.runtime")

MASTER = "spark.master"
_APP = "spark.app.name"


class SparkTasks:
    """Runs tasks as jobs of a session (`Jobs`). `config` are the session's options, `spark.master` among them."""

    def __init__(self, config: Mapping[str, str], slots: int) -> None:
        self._config = config
        self._slots = slots
        self._starting: asyncio.Future[SparkJobs] | None = None
        self._session: SparkSession | None = None

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
        if self._session is not None:
            from felice.pipelines.spark.session import stop

            await asyncio.to_thread(stop, self._session)

    def _started(self) -> SparkJobs:
        try:
            from felice.pipelines.connect.runtime.spark_jobs import CONFIG, SparkJobs
            from felice.pipelines.spark.session import session
        except ImportError as error:
            raise ConnectError(f"tasks need Spark: pip install 'felice[connect]' ({error})") from error
        master = self._config.get(MASTER, f"local[{self._slots}]")
        _log.info("Spark starts", extra={"master": master})
        given = {name: text for name, text in self._config.items() if name not in (MASTER, _APP)}
        try:
            self._session = session(
                self._config.get(_APP, "felice-connect"), master, config={**CONFIG, **given}
            )
            self._session.sparkContext.setLogLevel("ERROR")
        except Exception as error:
            raise ConnectError(f"Spark cannot be started with the master {master}: {error}") from error
        return SparkJobs(self._session.sparkContext, self._slots)
