"""The state of a query's exactly-once writes on the brokers: its transactions, and the last decision.

Keeps true: everything is under names that the query's id determines, so that any driver of the query finds it.
Where:      `identity` has the transactional ids of tasks.
            The decision is an offset of the group `felice-spark-QUERY-sink`, for partition 0 of each topic that the
            batch was written to: the offset is the batch id, its metadata the transactions and a number that grows
            with each decision. A batch that is decided again may go to other topics; the number tells the decisions
            apart then. The driver commits it in a transaction of its own, `felice-spark-QUERY-driver`, which
            fences older drivers.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import accumulate, pairwise

from felice.client.blocking.coordinators import ONGOING, BlockingCoordinators, TransactionalProducer
from felice.client.error import KafkaException
from felice.client.group.requests import CommittedOffset
from felice.pipelines.spark.commit import Decision, Outcome, Prepared
from felice.pipelines.spark.identity import is_of_task, task_prefix
from felice.pipelines.spark.mistakes import ClusterError, QueryError
from felice.protocol.errors import ErrorCode

DECISION_TIMEOUT_MS = 60_000
METADATA_MAX_BYTES = 4096
"""The brokers' default for offset.metadata.max.bytes."""

_ABORTED_STATES = ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class BrokerLedger:
    """`commit.Ledger` over Kafka's brokers."""

    def __init__(self, coordinators: BlockingCoordinators, query_id: str, topics: Iterable[str]) -> None:
        self._ask = coordinators
        self._query_id = query_id
        self._topics = sorted(topics)
        self._driver: TransactionalProducer | None = None
        self._last_number = 0

    def take_over(self) -> Decision | None:
        """Fences older drivers of the query, and returns the last decision; None before the first."""
        self._driver = self._ask.begin(f"{task_prefix(self._query_id)}driver", DECISION_TIMEOUT_MS)
        last = last_decision(self._ask, self._query_id)
        self._last_number = last.number if last is not None else 0
        return last

    def not_open(self, transactions: Iterable[Prepared]) -> list[Prepared]:
        """Returns the transactions that their coordinator does not report as ongoing."""
        rows = list(transactions)
        described = self._ask.describe(row.transactional_id for row in rows)
        open_now = {found.producer for found in described.values() if found.state == ONGOING}
        return [row for row in rows if _producer(row) not in open_now]

    def decide(self, decision: Decision) -> None:
        """Makes the decision durable. Raises `ClusterError` if a newer driver has taken over."""
        assert self._driver is not None, "take_over comes first"
        numbered = replace(decision, number=self._last_number + 1)
        metadata = to_metadata(numbered, task_prefix(self._query_id))
        offsets = {(topic, 0): CommittedOffset(decision.batch_id, metadata) for topic in self._topics}
        self._ask.add_offsets(self._driver, sink_group(self._query_id), offsets)
        code = self._ask.end([self._driver], committed=True)[self._driver.transactional_id]
        if code:
            raise ClusterError(f"batch {decision.batch_id} cannot be decided: {ErrorCode.of(code).name}")

    def commit(self, transactions: Iterable[Prepared]) -> Mapping[Prepared, Outcome]:
        """Commits each transaction, and returns how each ended."""
        rows = {row.transactional_id: row for row in transactions}
        codes = self._ask.end(map(_producer, rows.values()), committed=True)
        return {row: self._outcome(row, codes[name]) for name, row in rows.items()}

    def _outcome(self, row: Prepared, code: int) -> Outcome:
        if code == ErrorCode.NONE:
            return Outcome.COMMITTED
        if code == ErrorCode.INVALID_TXN_STATE:
            return Outcome.ABORTED
        if code in _FENCED:
            # A timeout raises the epoch and aborts. Otherwise a raised epoch does not show how the transaction ended.
            found = self._ask.describe([row.transactional_id]).get(row.transactional_id)
            if found is not None and found.state in _ABORTED_STATES:
                return Outcome.ABORTED
            return Outcome.UNKNOWN
        if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return Outcome.UNKNOWN
        raise ClusterError(
            f"transaction {row.transactional_id} cannot be committed: {ErrorCode.of(code).name}"
        )

    def abort(self, transactions: Iterable[Prepared]) -> None:
        """Aborts the transactions; has no effect on those that have ended."""
        # A transaction that cannot be aborted has already ended.
        self._ask.end(map(_producer, transactions), committed=False)

    def abort_strays(self, keep: Collection[Prepared]) -> None:
        """Aborts the query's open transactions other than those in `keep`: failed attempts left them."""
        is_open = self._ask.list_open(task_prefix(self._query_id))
        names = [name for name in is_open if is_of_task(name, self._query_id)]
        kept = set(map(_producer, keep))
        found = [row.producer for row in self._ask.describe(names).values() if row.state == ONGOING]
        # Abort with the producer's own epoch instead of a new one, so that a commit meanwhile can be recognised.
        self._ask.end((producer for producer in found if producer not in kept), committed=False)


def last_decision(coordinators: BlockingCoordinators, query_id: str) -> Decision | None:
    """The last decision of a query; None before the first one. If this driver has fenced older drivers, no decision
    can follow it unless this driver makes it.
    """
    prefix = task_prefix(query_id)
    rows = coordinators.committed(sink_group(query_id)).values()
    decisions = [from_metadata(row.offset, row.metadata, prefix) for row in rows]
    # A topic that an earlier batch, or an aborted decision, was written to still has that decision.
    return max(decisions, key=lambda decision: (decision.batch_id, decision.number), default=None)


def sink_group(query_id: str) -> str:
    """The name of the group that holds a query's last decision."""
    return f"{task_prefix(query_id)}sink"


def to_metadata(decision: Decision, prefix: str) -> str:
    """Encodes the transactions in few bytes: consecutive numbers as differences, then compressed."""
    rows = decision.transactions
    names = [row.transactional_id.removeprefix(prefix).split("-") for row in rows]
    columns = [
        [row.slot for row in rows],
        [process for process, _, _ in names],
        [int(attempt) for _, _, attempt in names],
        _differences([row.producer_id for row in rows]),
        _differences([row.producer_epoch for row in rows]),
        [row.rows for row in rows],
        [row.fingerprint for row in rows],
        decision.number,
    ]
    packed = zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), 9)
    text = base64.b85encode(packed).decode()
    if len(text) > METADATA_MAX_BYTES:
        raise QueryError(
            f"{len(rows)} tasks wrote batch {decision.batch_id}, too many to commit exactly once together: "
            "write fewer partitions, for instance with coalesce(150)"
        )
    return text


def from_metadata(batch_id: int, text: str, prefix: str) -> Decision:
    """Decodes what `to_metadata` encoded. Raises `QueryError` if another program wrote it."""
    try:
        slots, processes, attempts, producer_ids, epochs, *rest, number = json.loads(
            zlib.decompress(base64.b85decode(text))
        )
        ids = [
            f"{prefix}{name}-{slot}-{attempt}"
            for slot, name, attempt in zip(slots, processes, attempts, strict=True)
        ]
        columns = zip(slots, ids, accumulate(producer_ids), accumulate(epochs), *rest, strict=True)
        transactions = tuple(Prepared(*column) for column in columns)
    except (ValueError, zlib.error, binascii.Error, TypeError) as error:
        group = f"{prefix}sink"
        raise QueryError(
            f"the offsets of group {group} hold no decision of this sink ({error}); has another program written them?"
        ) from None
    return Decision(batch_id, transactions, number)


def _differences(numbers: list[int]) -> list[int]:
    return [*numbers[:1], *(later - earlier for earlier, later in pairwise(numbers))]


def _producer(row: Prepared) -> TransactionalProducer:
    return TransactionalProducer(row.transactional_id, row.producer_id, row.producer_epoch)


def abort_quietly(coordinators: BlockingCoordinators, producer: TransactionalProducer) -> None:
    """Aborts the transaction of a failed task. If that fails, the next commit or the timeout aborts it."""
    try:
        coordinators.end([producer], committed=False)
    except KafkaException:
        return
