"""The driver's requests to the cluster: which partitions a query reads, and their first and last offsets.

Keeps true: a result covers all requested partitions, or the request raises. Offsets outside the log are reported, never
            planned silently. For the end of a micro-batch (`latest_from`), a partition whose leader cannot be asked
            has its start: the batch reads nothing of it, and a later one continues there.
How:        requests go through `client.blocking`. It asks once, within `kafka.request.timeout.ms`. The view retries.
Leaves:     reading records to `fetching`, and writing them to `writer`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from felice.client.blocking import BlockingClient
from felice.client.error import KafkaError, KafkaException
from felice.client.model import TopicMetadata
from felice.pipelines.spark.mistakes import OptionError, QueryError
from felice.pipelines.spark.offsets import EARLIEST, LATEST, Offsets, Partition
from felice.pipelines.spark.options import (
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Earliest,
    Latest,
    Position,
    SourceOptions,
)
from felice.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

# How often a running query says again which partitions it cannot read.
HELD_LOG_INTERVAL_S = 60.0
# A partition with one of these errors may be gone, and not only without a leader.
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)

Answer = TypeVar("Answer")


class DataLoss(QueryError, RuntimeError):
    """Records that the query should read are gone, and `failOnDataLoss` is true."""


class TopicsMissing(KafkaException):
    """Topics of a running query are missing: not created yet, not yet known to a restarted broker, or deleted."""

    def __init__(self, error: KafkaError, topics: list[str]) -> None:
        super().__init__(error)
        self.topics = topics


def report_losses(losses: Iterable[str], fail: bool) -> None:
    """Raises `DataLoss` with all losses, or logs them if `fail` (option failOnDataLoss) is false."""
    found = list(losses)
    if found and fail:
        raise DataLoss("; ".join(found) + '. Set option("failOnDataLoss", "false") to go on without them.')
    for loss in found:
        log.warning("%s", loss)


class ClusterView:
    """The cluster as one query sees it. It exists in the driver's Python process and is never pickled."""

    def __init__(self, options: SourceOptions, client: BlockingClient) -> None:
        self._options = options
        self._client = client
        self._partitions: list[Partition] = []
        self._partitions_good_until = float("-inf")
        self._answered = False
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._deleted: set[str] = set()
        self.recreated: set[str] = set()
        """Topics that were deleted and created again since this view was opened, until `forget_recreated`."""
        self._held = frozenset[Partition]()
        self._held_logged_at = float("-inf")

    def partitions(self) -> list[Partition]:
        """Returns the partitions that match the subscription, cached for `topics_good_for_s` seconds."""
        if time.monotonic() >= self._partitions_good_until:
            self._partitions = self._ask_patiently()
            self._partitions_good_until = time.monotonic() + self._options.topics_good_for_s
        return self._partitions

    def forget_recreated(self) -> None:
        """Clears `recreated`, after a plan has taken these topics into account."""
        self.recreated.clear()

    def earliest(self, partitions: Iterable[Partition] | None = None) -> Offsets:
        """Returns the first offset of each given partition, or of every partition of the subscription."""
        return (
            self._offsets_of_all(EARLIEST) if partitions is None else self._offsets_at(EARLIEST, partitions)
        )

    def latest(self) -> Offsets:
        """Returns the end offset (exclusive) of every partition of the subscription."""
        return self._offsets_of_all(LATEST)

    def latest_from(self, start: Mapping[Partition, int]) -> Offsets:
        """Returns as `latest`, but the offset of `start` for a partition whose leader cannot be asked now.

        Raises the error if no partition can be asked, or one of them is not in `start`.
        """
        return self._offsets_of_all(LATEST, start)

    def first_since(self, timestamps_ms: Mapping[Partition, int]) -> Offsets:
        """Returns each partition's first offset from its timestamp on; partitions without such a record are absent."""
        return {key: offset for key, offset in self._list_offsets(timestamps_ms).items() if offset >= 0}

    def start(self, position: Position) -> Offsets:
        """Resolves the option for the start of a query. Raises `QueryError` if it does not fit the partitions."""
        return self._resolve(position, "starting")

    def end(self, position: Position) -> Offsets:
        """Resolves the option for the end of a batch query. Raises `QueryError` if it does not fit the partitions."""
        return self._resolve(position, "ending")

    def close(self) -> None:
        """Closes the client's connections."""
        self._client.close()

    def _resolve(self, position: Position, end: str) -> Offsets:
        match position:
            case Earliest():
                return self.earliest()
            case Latest():
                return self.latest()
            case AtOffsets(offsets):
                self._expect_all(f"{end}Offsets", offsets)
                return self._within_log(offsets)
            case AtTimestamp(timestamp_ms):
                wanted = dict.fromkeys(self.partitions(), timestamp_ms)
                return self._at_timestamps(f"{end}Timestamp", wanted)
            case AtTimestamps(timestamps_ms):
                self._expect_all(f"{end}OffsetsByTimestamp", timestamps_ms)
                return self._at_timestamps(f"{end}OffsetsByTimestamp", timestamps_ms)

    def _expect_all(self, name: str, given: Mapping[Partition, int]) -> None:
        partitions = set(self.partitions())
        if missing := sorted(partitions - given.keys()):
            raise OptionError(name, f"lacks {_listed(missing)}; -1 stands for latest, -2 for earliest")
        if unknown := sorted(given.keys() - partitions):
            raise OptionError(name, f"names {_listed(unknown)}, which this query does not read")

    def _within_log(self, offsets: Offsets) -> Offsets:
        earliest, latest = self.earliest(), self.latest()
        named = {LATEST: latest, EARLIEST: earliest}
        resolved = {key: named[offset][key] if offset in named else offset for key, offset in offsets.items()}
        report_losses(
            (
                f"partition {key[1]} of topic {key[0]} holds offsets {earliest[key]} to {latest[key]}, not {offset}"
                for key, offset in sorted(resolved.items())
                if not earliest[key] <= offset <= latest[key]
            ),
            self._options.fail_on_data_loss,
        )
        return {key: min(max(offset, earliest[key]), latest[key]) for key, offset in resolved.items()}

    def _at_timestamps(self, name: str, timestamps_ms: Mapping[Partition, int]) -> Offsets:
        found = self._list_offsets(timestamps_ms)
        if late := sorted(key for key, offset in found.items() if offset < 0):
            if name.startswith("starting") and not self._options.late_timestamp_is_latest:
                raise OptionError(
                    name,
                    f"{_listed(late)} hold no record that new; set startingOffsetsByTimestampStrategy=latest "
                    "to start at their ends",
                )
            found.update(self._offsets_at(LATEST, late))
        return found

    def _offsets_of_all(self, which: int, start: Mapping[Partition, int] | None = None) -> Offsets:
        """Returns the offsets of all present partitions. Topics may have changed since the last request."""
        give_up_at = time.monotonic() + self._options.client.request_timeout_ms / 1000
        while True:
            try:
                return self._list_offsets(dict.fromkeys(self.partitions(), which), start or {})
            except KafkaException as error:
                is_gone = error.code == KafkaError.UNKNOWN_TOPIC_OR_PART
                if not (is_gone and self._answered) or time.monotonic() >= give_up_at:
                    raise
                self._partitions_good_until = float("-inf")
                time.sleep(self._options.offset_retry_interval_ms / 1000)

    def _offsets_at(self, which: int, partitions: Iterable[Partition]) -> Offsets:
        return self._list_offsets(dict.fromkeys(partitions, which))

    def _list_offsets(
        self, wanted: Mapping[Partition, int], instead: Mapping[Partition, int] | None = None
    ) -> Offsets:
        """Asks for the offsets. `instead` has those of partitions that need not be asked if others can be."""
        found: Offsets = {}
        if wanted:
            self._retry(lambda: self._ask_offsets(wanted, instead or {}, found))
        return found

    def _ask_offsets(
        self, wanted: Mapping[Partition, int], instead: Mapping[Partition, int], found: Offsets
    ) -> None:
        """Adds the offsets that can be had to `found`; raises an error of a partition that is lacking then."""
        rows = self._client.offsets_of_each({key: wanted[key] for key in wanted if key not in found})
        failed = {key: row for key, row in rows.items() if isinstance(row, KafkaException)}
        found |= {key: row.offset for key, row in rows.items() if not isinstance(row, KafkaException)}
        # The offset of a topic that was created again has no meaning in the topic of now.
        can_wait = {
            key: error
            for key, error in failed.items()
            if key in instead
            and key[0] not in self.recreated
            and error.error.retriable()
            and error.code not in _GONE
        }
        if lasting := sorted(key for key in failed if not failed[key].error.retriable()):
            raise failed[lasting[0]]
        if failed and (not found or len(can_wait) < len(failed)):
            raise failed[min(failed.keys() - can_wait.keys() or failed.keys())]
        found |= {key: instead[key] for key in can_wait}
        if instead:
            self._say_held(can_wait)

    def _say_held(self, held: Mapping[Partition, KafkaException]) -> None:
        """Logs which partitions a stream goes on without, when they change and every now and then."""
        now = time.monotonic()
        if held.keys() == self._held and (not held or now < self._held_logged_at + HELD_LOG_INTERVAL_S):
            return
        if back := self._held - held.keys():
            log.warning("the query reads %s again", _listed(sorted(back)))
        if held:
            reason = held[min(held)].error.str()
            log.warning(
                "the query goes on without %s, and reads them when their leaders answer: %s",
                _listed(sorted(held)),
                reason,
            )
        self._held, self._held_logged_at = frozenset(held), now

    def _ask_patiently(self) -> list[Partition]:
        """Treats a topic as deleted if it is missing for longer than a broker's restart takes."""
        try:
            return self._retry(self._ask_partitions)
        except TopicsMissing as missing:
            report_losses(
                (f"topic {name} was deleted while the query was running" for name in missing.topics),
                self._options.fail_on_data_loss,
            )
            self._deleted.update(missing.topics)
            return self._retry(self._ask_partitions)

    def _ask_partitions(self) -> list[Partition]:
        subscription = self._options.subscription
        named = sorted(set(subscription.topics) | {topic for topic, _ in subscription.partitions})
        described = self._client.metadata(named or None).topics
        # As in Kafka's consumers, a pattern does not match internal topics; a name does.
        topics = {
            name: topic
            for name, topic in sorted(described.items())
            if subscription.matches(name) and not (subscription.pattern and topic.is_internal)
        }
        self._refuse_faults({name: topic.error for name, topic in topics.items() if topic.error})
        self._note_ids(topics)
        existing = [(name, partition) for name in topics for partition in sorted(topics[name].partitions)]
        if not subscription.partitions:
            return existing
        gone = sorted(set(subscription.partitions) - set(existing))
        if missing := [key for key in gone if key[0] not in self._deleted]:
            raise OptionError("assign", f"there is no {_listed(missing)}")
        return [key for key in subscription.partitions if key not in gone]

    def _note_ids(self, topics: Mapping[str, TopicMetadata]) -> None:
        for name, topic in topics.items():
            if topic.topic_id is None or topic.error:
                continue
            if self._topic_ids.setdefault(name, topic.topic_id) != topic.topic_id:
                self.recreated.add(name)
                self._topic_ids[name] = topic.topic_id
            self._deleted.discard(name)

    def _refuse_faults(self, faults: Mapping[str, KafkaError]) -> None:
        """Asks again in a running query: a restarted broker may not know all topics yet."""
        faults = {name: fault for name, fault in faults.items() if name not in self._deleted}
        missing = [name for name, fault in faults.items() if fault.code() == KafkaError.UNKNOWN_TOPIC_OR_PART]
        if missing and self._answered:
            raise TopicsMissing(faults[missing[0]], missing)
        for fault in faults.values():
            if self._answered and fault.retriable():
                raise KafkaException(fault)
        option = self._options.subscription.option
        if missing:
            raise OptionError(
                option,
                f"cannot read {', '.join(missing)}: no such topic; create it first, or correct its name",
            )
        if faults:
            listed = ", ".join(f"{name} ({fault.str()})" for name, fault in faults.items())
            raise OptionError(option, f"cannot read {listed}")

    def _retry(self, ask: Callable[[], Answer]) -> Answer:
        """Retries: a new query fails soon if brokers do not answer, a running query waits for their restart."""
        give_up_at = time.monotonic() + (
            self._options.client.request_timeout_ms / 1000 if self._answered else 0
        )
        attempts_left = self._options.offset_retries
        while True:
            try:
                answer = ask()
            except KafkaException as error:
                if not error.error.retriable() or (attempts_left <= 0 and time.monotonic() >= give_up_at):
                    raise
                attempts_left -= 1
                log.warning("a request for offsets failed and is repeated: %s", error.error.str())
                time.sleep(self._options.offset_retry_interval_ms / 1000)
            else:
                self._answered = True
                return answer


def open_view(options: SourceOptions) -> ClusterView:
    """Returns a view with a client of its own, which the caller closes with `ClusterView.close`."""
    return ClusterView(options, BlockingClient(options.client))


def _listed(partitions: Iterable[Partition]) -> str:
    """Names the partitions as text: partitions 0, 2 of topic a and partition 1 of topic b."""
    topics: dict[str, list[str]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(str(partition))
    return " and ".join(
        f"partition{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} of topic {topic}"
        for topic, numbers in topics.items()
    )
