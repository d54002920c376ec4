"""State of the producers that write to one partition.

Keeps true:  T2  the sequences of a producer epoch are contiguous in the log. A batch
                 that repeats one of the last five is not appended again, nor a batch
                 from before a restart that is no longer remembered.
             T1  the last stable offset is not above the high watermark, nor above
                 the first record of a transaction that is open, or whose marker is not
                 below the high watermark yet.

Decides and remembers only. `Log` asks before it appends (`check`, `check_marker`)
and reports afterwards (`update`, `complete`). `snapshots` has the file format.

Producers expire by the broker's clock at the append, never by record timestamps:
a producer of old events must not be forgotten as soon as it writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import NamedTuple

from felice.dataclass import dataclass
from felice.log.snapshots import SnapshotEntry
from felice.log.transaction_index import AbortedTransaction
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader, increment_sequence
from felice.records.control import ControlType, EndTransactionMarker

# Kafka's number: with max.in.flight <= 5 it covers every retry of a client.
BATCHES_REMEMBERED = 5
TRANSACTION_V2 = 2
_LAST_SEQUENCE = 2**31 - 1


class RememberedBatch(NamedTuple):
    """One of the last batches of a producer, remembered to recognise retries."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence of the batch's first record."""
        return increment_sequence(self.last_sequence, -self.offset_delta)

    @property
    def first_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerState:
    """State of one producer id in one partition."""

    producer_id: int
    epoch: int
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1
    last_timestamp: int = -1
    batches: list[RememberedBatch] = field(default_factory=list)
    is_restored: bool = False
    """Restored from a snapshot, in this epoch: batches before the remembered one are unknown."""
    markers_seen: int = 0
    """Number of markers seen; a change invalidates coordinator answers obtained earlier."""

    @property
    def last_sequence(self) -> int:
        """The last sequence that was appended, `NO_SEQUENCE` if none is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def has_open_transaction(self) -> bool:
        """Whether the producer has a transaction without a marker in this partition."""
        return self.current_txn_first_offset >= 0

    def duplicate_of(self, header: BatchHeader) -> RememberedBatch | None:
        """Returns the remembered batch that `header` repeats, None if it repeats none."""
        if header.producer_epoch == self.epoch:
            last_sequence = header.last_sequence
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                    return batch
        return None

    def has_forgotten(self, header: BatchHeader) -> bool:
        """Whether the batch is older than all remembered batches, and the snapshot may have dropped it.

        After a restart only the last batch of each producer is known. Such a batch was stored before and is refused
        as a duplicate. For a producer that was not restored, such a batch was never stored: it is out of order.
        """
        has_room = 0 < len(self.batches) < BATCHES_REMEMBERED
        if not self.is_restored or header.producer_epoch != self.epoch or not has_room:
            return False
        behind = (self.batches[0].first_sequence - header.last_sequence) % (_LAST_SEQUENCE + 1)
        return 0 < behind <= _LAST_SEQUENCE // 2

    def adopt_epoch(self, epoch: int) -> None:
        """Takes the epoch of a new batch. A different epoch starts with new sequences."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.is_restored = False

    def remember(self, batch: RememberedBatch) -> None:
        """Adds a batch; of more than `BATCHES_REMEMBERED` the oldest is dropped."""
        if len(self.batches) == BATCHES_REMEMBERED:
            del self.batches[0]
        self.batches.append(batch)

    def entry(self) -> SnapshotEntry:
        """The producer's entry for a snapshot."""
        last = self.batches[-1] if self.batches else RememberedBatch(NO_SEQUENCE, -1, 0, -1)
        return SnapshotEntry(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.current_txn_first_offset,
        )

    @classmethod
    def from_entry(cls, entry: SnapshotEntry) -> ProducerState:
        """Restores a producer from its entry in a snapshot."""
        state = cls(
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
            entry.timestamp,
            is_restored=True,
        )
        if entry.last_offset >= 0:
            state.remember(
                RememberedBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            )
        return state


class ProducerStates:
    """All producers of one partition, from all batches below `end_offset`."""

    __slots__ = ("_ended", "_ongoing", "_states", "end_offset", "expiration_ms")

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self.end_offset = 0
        self._states: dict[int, ProducerState] = {}
        # First offsets of open transactions by producer id. A dict keeps insertion order, which is offset order:
        # the first value is the earliest.
        self._ongoing: dict[int, int] = {}
        # Ended transactions: first offset -> offset of the marker, until the high watermark passes the marker.
        self._ended: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def get(self, producer_id: int) -> ProducerState | None:
        """The state of one producer, None if the partition does not know it."""
        return self._states.get(producer_id)

    # -- before an append ------------------------------------------------------------------------------

    def check(
        self, header: BatchHeader, *, sequences: bool = True, transaction_version: int = 0
    ) -> RememberedBatch | None:
        """The remembered batch that `header` repeats, None if the batch may be appended. Raises `ApiError`.

        Records that a coordinator writes have no sequences: only the epoch is checked.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            if sequences and transaction_version >= TRANSACTION_V2 and header.base_sequence != 0:
                # Each transaction has its own epoch and starts with sequence 0, so an earlier batch is still on
                # its way.
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id}: sequence {header.base_sequence} came first in its transaction",
                )
            # KIP-360: the state may have expired, so any sequence may be the first.
            return None
        if sequences and (duplicate := state.duplicate_of(header)) is not None:
            return duplicate
        self._check_epoch(state, header.producer_epoch)
        if sequences:
            if state.has_forgotten(header):
                # Clients treat this as success. OUT_OF_ORDER would make them write the batch again in a new epoch.
                raise ApiError(
                    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} has written sequence {header.base_sequence} long ago",
                )
            self._check_sequence(state, header)
        if state.has_open_transaction and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction here, but the batch is not transactional",
            )
        return None

    def is_next(self, header: BatchHeader) -> bool:
        """T2: whether a batch that `check` allowed continues the sequence of its producer epoch."""
        state = self._states.get(header.producer_id)
        if state is None or not state.batches or state.epoch != header.producer_epoch:
            return True
        # After the last sequence comes 0. Each append passes here, so this is not `increment_sequence`.
        return header.base_sequence == (state.batches[-1][0] + 1) & _LAST_SEQUENCE or state.epoch < 0

    def _check_epoch(self, state: ProducerState, epoch: int) -> None:
        if epoch < state.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {state.producer_id} has epoch {state.epoch} here, the batch has {epoch}",
            )

    def _check_sequence(self, state: ProducerState, header: BatchHeader) -> None:
        if state.epoch == NO_PRODUCER_EPOCH:
            return
        fresh = header.producer_epoch > state.epoch or not state.batches
        expected = 0 if fresh else increment_sequence(state.last_sequence, 1)
        if header.base_sequence != expected:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {state.producer_id} epoch {header.producer_epoch}: "
                f"sequence {header.base_sequence} came, {expected} was expected",
            )

    def check_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int = 0
    ) -> None:
        """Raises `ApiError` if the marker is not allowed.

        In transaction V2 a marker has a higher epoch than the transaction it ends. It may be repeated when no
        transaction is open.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            return
        ends_own_epoch = state.has_open_transaction and header.producer_epoch == state.epoch
        if transaction_version >= TRANSACTION_V2 and ends_own_epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker of epoch {header.producer_epoch} cannot end the open transaction of producer"
                f" {header.producer_id}, which has the same",
            )
        self._check_epoch(state, header.producer_epoch)
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker for producer {header.producer_id} came from coordinator epoch "
                f"{marker.coordinator_epoch}, after one from {state.coordinator_epoch}",
            )

    # -- after an append -------------------------------------------------------------------------------

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Takes account of a data batch with a producer id that was appended at `base_offset`."""
        state = self._state_of(header)
        last_offset = base_offset + header.last_offset_delta
        state.remember(
            RememberedBatch(header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp)
        )
        state.last_timestamp = now_ms
        if header.is_transactional and not state.has_open_transaction:
            state.current_txn_first_offset = base_offset
            self._ongoing[header.producer_id] = base_offset

    def complete(
        self, header: BatchHeader, marker: EndTransactionMarker, offset: int, now_ms: int
    ) -> AbortedTransaction | None:
        """Takes account of a marker appended at `offset`. Returns the transaction index entry if it aborted one.

        A marker without an open transaction stays in the log and adds nothing to the index.
        """
        state = self._state_of(header)
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp = now_ms
        state.markers_seen += 1
        if not state.has_open_transaction:
            return None
        first_offset, state.current_txn_first_offset = state.current_txn_first_offset, -1
        del self._ongoing[header.producer_id]
        self._ended[first_offset] = offset
        if marker.control_type is ControlType.COMMIT:
            return None
        last_stable_offset = next(iter(self._ongoing.values()), offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, offset, last_stable_offset)

    def _state_of(self, header: BatchHeader) -> ProducerState:
        state = self._states.get(header.producer_id)
        if state is None:
            state = self._states[header.producer_id] = ProducerState(
                header.producer_id, header.producer_epoch
            )
        else:
            state.adopt_epoch(header.producer_epoch)
        return state

    # -- questions -------------------------------------------------------------------------------------

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """First offset of the earliest transaction that a read_committed consumer must wait for; None if none."""
        if not self._ongoing and not self._ended:
            return None
        for first, marker in list(self._ended.items()):
            if marker < high_watermark:
                del self._ended[first]
        return min([*self._ended, *list(self._ongoing.values())[:1]], default=None)

    def expire(self, now_ms: int) -> int:
        """Removes idle producers without an open transaction after `expiration_ms`; returns how many."""
        expired = [
            producer_id
            for producer_id, state in self._states.items()
            if now_ms - state.last_timestamp >= self.expiration_ms and not state.has_open_transaction
        ]
        for producer_id in expired:
            del self._states[producer_id]
        return len(expired)

    # -- snapshots -------------------------------------------------------------------------------------

    def entries(self) -> list[SnapshotEntry]:
        """The entries for a snapshot at `end_offset`."""
        return [state.entry() for state in self._states.values()]

    def restore(self, entries: Iterable[SnapshotEntry], end_offset: int, now_ms: int) -> None:
        """Replaces the state by a snapshot, without producers that have expired by now."""
        self.clear(end_offset)
        for state in map(ProducerState.from_entry, entries):
            if state.has_open_transaction or now_ms - state.last_timestamp < self.expiration_ms:
                self._states[state.producer_id] = state
        open_states = [state for state in self._states.values() if state.has_open_transaction]
        for state in sorted(open_states, key=lambda state: state.current_txn_first_offset):
            self._ongoing[state.producer_id] = state.current_txn_first_offset

    def clear(self, end_offset: int) -> None:
        """Forgets all producers; the state is then that of an empty log at `end_offset`."""
        self._states.clear()
        self._ongoing.clear()
        self._ended.clear()
        self.end_offset = end_offset
