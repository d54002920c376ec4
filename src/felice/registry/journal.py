"""The topic `_schemas` and the state that follows from it.

Keeps true:  `state` has every record that was read, in the order of the topic. A record that cannot be read is named in
             the log with its offset, and skipped: it never stops the registry.
             `write` returns when its records are in the state. After a write whose outcome is unknown, and after
             another registry led, `take_over` comes before the next write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from felice.client.compacted.errors import Fenced, FollowingStopped, OutcomeUnknown
from felice.client.compacted.records import CompactedRecord
from felice.client.compacted.topic import CompactedTopic
from felice.client.error import KafkaError, KafkaException
from felice.registry.errors import RegistryError, store_failed, timed_out, too_large
from felice.registry.records import DamagedRecord, Record, UnknownRecord, decode
from felice.registry.state import State

_log = logging.getLogger("felice.registry")

DEFAULT_TOPIC = "_schemas"
READ_TIMEOUT_S = 30.0
MOST_RECORDS = 5_000
"""The most records of one transaction."""

MakeTopic = Callable[[Callable[[CompactedRecord], None]], CompactedTopic[bytes, bytes]]


def topic_maker(config: Mapping[str, object], name: str, group: str, replication_factor: int) -> MakeTopic:
    """Makes the topic of a registry. All registries of one group that use one topic share its fence."""

    def make(on_record: Callable[[CompactedRecord], None]) -> CompactedTopic[bytes, bytes]:
        return CompactedTopic(
            config,
            name,
            fence=f"{group}-{name}",
            on_record=on_record,
            keep=False,
            replication_factor=replication_factor,
        )

    return make


class Journal:
    """See the module. `state` must be empty; `make_topic` gets the function that takes records."""

    def __init__(self, state: State, make_topic: MakeTopic) -> None:
        self.state = state
        self._topic = make_topic(self._on_record)
        self.is_ours = False
        """Whether this registry was the last to take the topic over, as far as it knows."""
        self._losses = 0

    async def start(self, timeout_s: float) -> None:
        """Creates the topic if it is missing, and reads it to its end. Raises as `CompactedTopic.start`."""
        await self._topic.start(timeout_s)

    async def stop(self) -> None:
        """Ends reading and writing."""
        await self._topic.stop()

    async def take_over(self) -> None:
        """Fences every other writer, and reads what they wrote. Raises `RegistryError` (50001)."""
        self.lose()
        losses = self._losses
        try:
            await self._topic.take_over(READ_TIMEOUT_S)
            await self._topic.wait_end(READ_TIMEOUT_S)
        except KafkaException as error:
            raise store_failed(f"The topic {self._topic.name} cannot be taken over: {error}") from error
        self.is_ours = losses == self._losses

    def lose(self) -> None:
        """Another registry may have written: the topic must be taken over again before the next write."""
        self.is_ours = False
        self._losses += 1

    async def write(self, written: Sequence[Record]) -> None:
        """Writes records, and waits until they are in the state. Raises `RegistryError`.

        All are written or none, except more than `MOST_RECORDS`: those are deletions of thousands of versions, and
        when an error ends them in the middle, the same request deletes the rest.
        """
        encoded = self.state.encode(written)
        for start in range(0, len(encoded), MOST_RECORDS):
            try:
                offset = await self._topic.write(encoded[start : start + MOST_RECORDS])
            except KafkaException as error:
                raise self._described(error) from error
            try:
                await self._topic.wait_read(offset, READ_TIMEOUT_S)
            except KafkaException as error:
                # The state lacks what is written. The next write must not be made from it.
                self.lose()
                raise timed_out(
                    f"The topic {self._topic.name} took the write at offset {offset}, but it was not read back: {error}"
                ) from error

    def _described(self, error: KafkaException) -> RegistryError:
        name = self._topic.name
        if isinstance(error, OutcomeUnknown):
            self.lose()
            return timed_out(f"It is not known whether the topic {name} took the write: {error}")
        if isinstance(error, Fenced):
            self.lose()
            return store_failed(f"Another registry took the topic {name} over: {error}")
        if isinstance(error, FollowingStopped):
            return store_failed(f"The topic {name} can no longer be followed: {error}")
        if error.code == KafkaError.MSG_SIZE_TOO_LARGE:
            return too_large("Register operation failed because schema is too large")
        if error.code in (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT):
            return timed_out(f"The topic {name} did not take the write in time: {error}")
        return store_failed(f"The topic {name} did not take the write: {error}")

    def _on_record(self, record: CompactedRecord) -> None:
        facts = {"offset": record.offset, "topic": self._topic.name}
        try:
            decoded = decode(record.key, record.value)
        except DamagedRecord as error:
            _log.warning("skipped a damaged record", extra={**facts, "reason": str(error)})
            return
        except UnknownRecord as error:
            _log.warning("skipped a record of an unknown kind", extra={**facts, "keytype": str(error)})
            return
        assert record.key is not None, "a record without a key is damaged"
        fault = self.state.apply(decoded, record.key, record.timestamp)
        if fault is not None:
            _log.error("skipped a record that contradicts an earlier one", extra={**facts, "reason": fault})
