"""The log directories of a broker: locked and loaded at the start, closed at the end.

Keeps true: a directory whose disk is dead stays offline, and the broker starts with the others. A broker without any
            usable directory does not start.
            A directory is marked clean only by `close`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping

from felice.config import BrokerConfig, TopicConfig
from felice.env import Environment
from felice.log.directory import LogDirectory
from felice.log.errors import LogDirectoryError
from felice.protocol.errors import ApiError
from felice.server.startup import StartupError

_log = logging.getLogger("felice.server")

HighWatermarksOf = Callable[[LogDirectory], Mapping[tuple[str, int], int]]


class LogDirectories:
    """The directories of `log.dirs`, in that order."""

    def __init__(self) -> None:
        self._directories: list[LogDirectory] = []

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    def __len__(self) -> int:
        return len(self._directories)

    def __getitem__(self, index: int) -> LogDirectory:
        return self._directories[index]

    @property
    def are_all_offline(self) -> bool:
        """Whether no directory is usable."""
        return all(directory.offline_reason is not None for directory in self._directories)

    def acquire(
        self,
        env: Environment,
        config: BrokerConfig,
        broker_id: int,
        cluster_id: str,
        new_directory_id: Callable[[], uuid.UUID],
    ) -> None:
        """Locks every directory for this broker; raises `StartupError`."""
        reasons = []
        for path in config.log_directories:
            directory = LogDirectory(
                env.disk,
                env.clock,
                path,
                recovery_threads=config.num_recovery_threads_per_data_dir,
                producer_id_expiration_ms=config.producer_id_expiration_ms,
            )
            try:
                directory.acquire(
                    node_id=broker_id, cluster_id=cluster_id, new_directory_id=new_directory_id()
                )
            except LogDirectoryError as error:
                if directory.offline_reason is None:
                    raise StartupError(str(error)) from error
                reasons.append(str(error))
            self._directories.append(directory)
        if len(reasons) == len(self._directories):
            raise StartupError("; ".join(reasons))
        for reason in reasons:
            _log.error("a log directory is offline; the broker starts without it", extra={"reason": reason})

    def reconfigure(self, config: BrokerConfig) -> None:
        """Applies the options that may change while the broker runs."""
        for directory in self._directories:
            directory.update_producer_expiration(config.producer_id_expiration_ms)
            directory.recovery_threads = config.num_recovery_threads_per_data_dir

    async def load(self, config_of: Callable[[str], TopicConfig]) -> None:
        """Recovers every log, on a thread.

        If the start is cancelled, it returns only after the thread has ended, because the thread uses the files.
        """
        loading = asyncio.get_running_loop().run_in_executor(None, self._load, config_of)
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            await asyncio.wait((loading,))
            raise

    def _load(self, config_of: Callable[[str], TopicConfig]) -> None:
        for directory in self._directories:
            try:
                if directory.offline_reason is None:
                    directory.load(config_of)
            except OSError as error:
                directory.fail(error)
            except LogDirectoryError as error:
                raise StartupError(str(error)) from error
            except ApiError as error:
                raise StartupError(f"{directory.path}: {error}") from error
        if self.are_all_offline:
            reasons = (f"{directory.path}: {directory.offline_reason}" for directory in self._directories)
            raise StartupError("; ".join(reasons))

    async def close(self, high_watermarks: HighWatermarksOf) -> None:
        """Flushes all logs and marks the directories clean."""
        loop = asyncio.get_running_loop()
        for directory in self._directories:
            await loop.run_in_executor(None, directory.close, high_watermarks(directory))
        self._directories.clear()

    def abandon(self) -> None:
        """Releases the directories without marking them clean."""
        for directory in self._directories:
            directory.abandon()
