"""Opens a broker's session with the metadata store.

`EmbeddedSource` opens a store in the broker's first log directory, for a broker that stands alone.
`SharedSource` opens a session of a store that several brokers of this process share.
`InheritedSource` opens a session of a store in the parent process.
`ZooKeeperSource` opens a session with the ensemble of `zookeeper.connect`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from felice.config import BrokerConfig
from felice.env import Clock, Disk, DiskLocked, Environment, Lock
from felice.env.network import open_local
from felice.metadata.embedded import EmbeddedStore
from felice.metadata.store import MetadataStore, StoreError
from felice.metadata.store_files import JOURNAL, SNAPSHOT, CorruptStore
from felice.server.membership.zookeeper_source import ZooKeeperSource
from felice.server.startup import StartupError

# The directory of the embedded store, below the first of `log.dirs`.
STORE_DIRECTORY = "metadata"


class StoreSource(Protocol):
    """Opens the store that a broker uses until it ends. The store itself renews expired sessions."""

    @property
    def stands_alone(self) -> bool:
        """Whether no other broker can ever use this store."""
        ...

    @property
    def where(self) -> str | None:
        """The option that selects the store, with its value; None if no option does."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """How long the session of a broker may outlive the broker."""
        ...

    async def open(self) -> MetadataStore:
        """Opens the store. Raises `StartupError` with the reason if that fails."""
        ...

    def release(self) -> None:
        """Releases the resources of the source, after the store was closed."""
        ...


class EmbeddedSource:
    """A store of its own for a broker that stands alone."""

    stands_alone = True
    where = None
    session_timeout_ms = 0

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._files = StoreFiles(disk, directory)

    def exists(self) -> bool:
        """Whether the directory has files of a store; opening creates them."""
        return self._files.exist()

    async def open(self) -> MetadataStore:
        """Opens the files, and recovers the store from its snapshot and journal."""
        return self._files.open()

    def release(self) -> None:
        """Closes the files and gives their lock back."""
        self._files.release()


class SharedSource:
    """`connect` opens a session of a store that the caller opens and closes."""

    stands_alone = False
    where = None

    def __init__(self, connect: Callable[[], MetadataStore], session_timeout_ms: int = 0) -> None:
        self._connect = connect
        self.session_timeout_ms = session_timeout_ms

    async def open(self) -> MetadataStore:
        """A new session of the shared store."""
        return self._connect()

    def release(self) -> None:
        """Does nothing: the store does not belong to this broker."""


class InheritedSource:
    """A session of the parent process's store, over an inherited connection."""

    stands_alone = False
    where = None

    def __init__(self, descriptor: int, clock: Clock) -> None:
        self._descriptor = descriptor
        self._clock = clock
        self.session_timeout_ms = 0

    async def open(self) -> MetadataStore:
        """Raises `StartupError` if the descriptor is not connected to a store."""
        from felice.metadata.served import ServedStore

        try:
            store = await ServedStore.open(*await open_local(self._descriptor), self._clock)
        except (OSError, StoreError) as error:
            raise StartupError(f"no metadata store is connected to descriptor {self._descriptor}") from error
        self.session_timeout_ms = int(store.timeout_s * 1000)
        return store

    def release(self) -> None:
        """Does nothing: closing the store closed the connection."""


class StoreFiles:
    """The files of an embedded store. A lock lets only one process use them."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._lock: Lock | None = None

    def exist(self) -> bool:
        """Whether there is a journal or a snapshot."""
        return any(self._disk.exists(self._directory / name) for name in (JOURNAL, SNAPSHOT))

    def open(self) -> EmbeddedStore:
        """Locks the files and opens the store. Raises `StartupError`."""
        directory, disk = self._directory, self._disk
        try:
            disk.mkdir(directory)
            self._lock = disk.lock(directory / ".lock")
            return EmbeddedStore.open(disk, directory)
        except DiskLocked:
            raise StartupError(
                f"data directory {directory.parent} is in use by another broker; stop it or choose another directory"
            ) from None
        except CorruptStore as error:
            raise StartupError(str(error)) from error
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StartupError(f"data directory {directory.parent} cannot be used: {reason}") from error

    def release(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def source_of(config: BrokerConfig, env: Environment) -> StoreSource:
    """Returns the source that a configuration selects."""
    if config.zookeeper_connect is not None:
        return ZooKeeperSource(config, env.clock)
    return EmbeddedSource(env.disk, config.log_directories[0] / STORE_DIRECTORY)
