"""Where a broker's session with the metadata store comes from.

`EmbeddedSource` is a journal in the broker's own first log directory, for a broker that stands alone.
`SharedSource` is one session of a store that several brokers of this process share.
`InheritedSource` is one session of a store that the parent of this process keeps.
`ZooKeeperSource` is a session with the ensemble of `zookeeper.connect`.
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
from felice.metadata.store_files import CorruptStore
from felice.server.startup import StartupError
from felice.server.zookeeper_source import ZooKeeperSource

# The embedded store's directory, inside the first of `log.dirs`.
STORE_DIRECTORY = "metadata"


class StoreSource(Protocol):
    """Opens the one store that a broker uses for its whole life; `renew` is the store's own."""

    @property
    def stands_alone(self) -> bool:
        """Whether no other broker can ever come to this store."""
        ...

    @property
    def where(self) -> str | None:
        """The option that leads to the store, with its value; None where no option does."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """How long the session of a broker that died may outlive it."""
        ...

    async def open(self) -> MetadataStore:
        """Raises `StartupError` with the reason."""
        ...

    def release(self) -> None:
        """After the store was closed."""
        ...


class EmbeddedSource:
    stands_alone = True
    where = None
    session_timeout_ms = 0

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._files = StoreFiles(disk, directory)

    async def open(self) -> MetadataStore:
        return self._files.open()

    def release(self) -> None:
        self._files.release()


class SharedSource:
    """`connect` begins a session with a store that somebody else opens and closes."""

    stands_alone = False
    where = None

    def __init__(self, connect: Callable[[], MetadataStore], session_timeout_ms: int = 0) -> None:
        self._connect = connect
        self.session_timeout_ms = session_timeout_ms

    async def open(self) -> MetadataStore:
        return self._connect()

    def release(self) -> None:
        """Nothing of it is this broker's."""


class InheritedSource:
    """A session with a store that this process's parent keeps, over a connection that it left open for us."""

    stands_alone = False
    where = None

    def __init__(self, descriptor: int, clock: Clock) -> None:
        self._descriptor = descriptor
        self._clock = clock
        self.session_timeout_ms = 0

    async def open(self) -> MetadataStore:
        from felice.metadata.served import ServedStore

        try:
            store = await ServedStore.open(*await open_local(self._descriptor), self._clock)
        except (OSError, StoreError) as error:
            raise StartupError(f"nobody keeps a metadata store at descriptor {self._descriptor}") from error
        self.session_timeout_ms = int(store.timeout_s * 1000)
        return store

    def release(self) -> None:
        """The connection was closed with the store."""


class StoreFiles:
    """The files of an embedded store, which one process at a time may use."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._lock: Lock | None = None

    def open(self) -> EmbeddedStore:
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
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def source_of(config: BrokerConfig, env: Environment) -> StoreSource:
    """The source that a configuration asks for."""
    if config.zookeeper_connect is not None:
        return ZooKeeperSource(config, env.clock)
    return EmbeddedSource(env.disk, config.log_directories[0] / STORE_DIRECTORY)
