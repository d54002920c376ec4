"""The metadata store of a single machine: a tree in memory and its journal on disk.

Keeps true: only the user of the broker can read the files.
            A write is on disk before its call returns; after a crash the tree has all acknowledged writes, and
            possibly the one write under way.
How:        one write at a time is planned, appended to `journal`, synced, applied. When the journal outgrows the
            tree, `snapshot` is replaced and the journal emptied; a journal frame not newer than the snapshot is
            skipped, so a crash between the two steps does no harm. `store_files` reads both: it cuts a torn tail and
            refuses damage. Every broker of the process has a session of its own (`connect`); the watches of all
            sessions report each write.
Leaves out: more than one process (`served` has that). The owner of the data directory holds its lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from felice.env import Disk
from felice.metadata.frames import encode_frame
from felice.metadata.journal import encode_changes, encode_snapshot
from felice.metadata.session import TreeSession
from felice.metadata.store import EventKind, Operation, SessionExpired, SessionState, StoreUnavailable
from felice.metadata.store_files import JOURNAL, SNAPSHOT, load_tree
from felice.metadata.tree import Change, OperationResult, Tree

_log = logging.getLogger("felice.metadata")

# A journal smaller than this is not worth a snapshot.
_MIN_COMPACTION_BYTES = 1024 * 1024


class EmbeddedSession(TreeSession):
    """A further session with an `EmbeddedStore`, for one of several brokers of the process."""

    def __init__(self, store: EmbeddedStore, tree: Tree, session_id: int) -> None:
        super().__init__(tree, session_id)
        self._store = store

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """All or nothing, see `MetadataStore.multi`. On disk when this returns."""
        return await self._store.write(operations, self)

    async def renew(self) -> None:
        """Nothing to do while the session lives; raises `SessionExpired` after its end."""
        self._check_alive()

    async def close(self) -> None:
        """Ends this session alone; the store stays open."""
        await self._store.end(self)

    async def abandon(self) -> None:
        """The same as `close`."""
        # End it now: this store has no session timeout that would end it later.
        await self.close()


class EmbeddedStore(TreeSession):
    """A store on this machine's disk, and its owner's session. Create it with `open`."""

    def __init__(self, disk: Disk, directory: Path, tree: Tree) -> None:
        super().__init__(tree, tree.zxid + 1)
        self._disk = disk
        self._snapshot_path = directory / SNAPSHOT
        self._journal = disk.open(directory / JOURNAL, create=True)
        self._snapshot_size_bytes = disk.size(self._snapshot_path) if disk.exists(self._snapshot_path) else 0
        self._sessions: list[TreeSession] = [self]
        self._last_session_id = self.session_id
        self._writing = asyncio.Lock()
        self._under_way: set[asyncio.Future[list[OperationResult]]] = set()
        self._failure: str | None = None

    @classmethod
    def open(cls, disk: Disk, directory: Path) -> EmbeddedStore:
        """Reads the store in `directory`, or creates one."""
        # Its file, not the directory, shows whether there is one: locking creates the directory.
        is_new = not disk.exists(directory / JOURNAL)
        disk.mkdir(directory)
        # The nodes hold SCRAM credentials and passwords.
        disk.restrict(directory)
        store = cls(disk, directory, load_tree(disk, directory))
        disk.restrict(directory / JOURNAL)
        if is_new:
            disk.sync_dir(directory)
            disk.sync_dir(directory.parent)
        # Their sessions ended with the process that held them.
        store._discard_ephemerals()
        return store

    def connect(self) -> EmbeddedSession:
        """Another session, which ends by itself or with the store."""
        self._last_session_id += 1
        session = EmbeddedSession(self, self._tree, self._last_session_id)
        self._sessions.append(session)
        return session

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """All or nothing, see `MetadataStore.multi`. On disk when this returns."""
        return await self.write(operations, self)

    async def write(self, operations: Sequence[Operation], session: TreeSession) -> list[OperationResult]:
        """Carries out a write of one of the sessions."""
        # Shielded: a cancelled caller must not leave a write in the journal that is missing in the tree.
        write = asyncio.ensure_future(self._write_one(operations, session))
        self._under_way.add(write)
        write.add_done_callback(self._on_done)
        return await asyncio.shield(write)

    def _on_done(self, write: asyncio.Future[list[OperationResult]]) -> None:
        self._under_way.discard(write)
        if not write.cancelled():
            write.exception()  # retrieved: asyncio complains about unread errors if the caller was cancelled

    async def _write_one(
        self, operations: Sequence[Operation], session: TreeSession
    ) -> list[OperationResult]:
        async with self._writing:
            if session.session_state is SessionState.EXPIRED:
                raise SessionExpired()
            if self._failure is not None:
                raise StoreUnavailable("/", self._failure)
            changes, outcomes = self._tree.plan(operations, session.session_id)
            if changes:
                await self._write(changes)
        return outcomes

    async def renew(self) -> None:
        """Nothing to do while the store is open; raises `SessionExpired` after `close`."""
        # The session of the store's owner ends only by `close`.
        self._check_alive()

    async def abandon(self) -> None:
        """The same as `close`."""
        await self.close()

    async def end(self, session: TreeSession) -> None:
        """Ends a session: its ephemeral nodes are deleted, and the other sessions are informed."""
        async with self._writing:
            if session.session_state is SessionState.EXPIRED:
                return
            self._silence(session)
            changes = [Change(EventKind.DELETED, path) for path in self._tree.ephemerals(session.session_id)]
            if changes and self._failure is None:
                await self._write(changes)

    def _silence(self, session: TreeSession) -> None:
        session.watches.clear()
        session.life.end()
        self._sessions.remove(session)

    async def close(self) -> None:
        """Ends every session, and closes the journal."""
        async with self._writing:
            if self.life.state is SessionState.EXPIRED:
                return
            for session in list(self._sessions):
                self._silence(session)
            try:
                if self._failure is None:
                    self._discard_ephemerals()
            except (StoreUnavailable, OSError) as error:
                # The next `open` deletes the ephemeral nodes.
                _log.warning("the metadata session was not ended on disk", extra={"reason": str(error)})
            finally:
                self._journal.close()

    async def _write(self, changes: list[Change]) -> None:
        self._append(changes)
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._journal.sync)
        except OSError as error:
            # After a failed sync the content of the disk is unknown, and another sync may report success wrongly.
            self._failure = f"the journal could not be synced: {error}"
            raise StoreUnavailable("/", self._failure) from error
        events = self._tree.apply(changes)
        for session in list(self._sessions):
            session.watches.tell(events)
        if self._journal.size_bytes > max(_MIN_COMPACTION_BYTES, 4 * self._snapshot_size_bytes):
            await self._try_compact()

    async def _try_compact(self) -> None:
        """Runs on a thread: only writes change the tree, and the next write waits for this one."""
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.compact)
        except OSError as error:
            # The write itself is safe in the journal; a longer journal does no harm.
            _log.warning("the metadata journal could not be compacted", extra={"reason": str(error)})

    def _append(self, changes: list[Change]) -> None:
        position = self._journal.size_bytes
        try:
            self._journal.pwrite(encode_frame(encode_changes(self._tree.zxid + 1, changes)), position)
        except OSError as error:
            try:
                self._journal.truncate(position)
                self._journal.sync()
            except OSError as worse:
                self._failure = f"the journal could not be repaired: {worse}"
            raise StoreUnavailable("/", f"the journal could not be written: {error}") from error

    def _discard_ephemerals(self) -> None:
        changes = [Change(EventKind.DELETED, path) for path in self._tree.ephemerals()]
        if changes:
            self._append(changes)
            self._journal.sync()
            self._tree.apply(changes)

    def compact(self) -> None:
        """Replaces the journal by a snapshot of the tree."""
        frame = encode_frame(encode_snapshot(self._tree.zxid, list(self._tree.walk())))
        self._disk.write_atomic(self._snapshot_path, frame)
        self._disk.restrict(self._snapshot_path)
        self._snapshot_size_bytes = len(frame)
        self._journal.truncate(0)
        # Synced before the next write: a power failure then tears at most one frame, and leaves no older ones.
        self._journal.sync()
