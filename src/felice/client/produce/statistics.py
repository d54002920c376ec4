"""The producer's part of the statistics: waiting and sent batches by topic and partition."""

from __future__ import annotations

from felice.client.net.cluster import Cluster
from felice.client.net.statistics import Document, partition_row, topic_row
from felice.client.produce.accumulator import Accumulator
from felice.client.produce.batches import ANONYMOUS
from felice.client.produce.counts import ProducerCounts
from felice.client.produce.transaction import State

# The names that librdkafka uses.
_TRANSACTION_STATES = {
    State.NEW: "Init",
    State.INITIALIZING: "WaitPID",
    State.INITIALIZED: "ReadyNotAcked",
    State.READY: "Ready",
    State.OPEN: "InTransaction",
    State.COMMITTING: "CommittingTransaction",
    State.COMMITTED: "CommitNotAcked",
    State.FAILED: "AbortableError",
    State.ABORTING: "AbortingTransaction",
    State.ABORTED: "AbortedNotAcked",
    State.FATAL: "FatalError",
}


def describe_producer(
    document: Document, cluster: Cluster, accumulator: Accumulator, counts: ProducerCounts
) -> None:
    """Add queues, sent records, batch sizes and the state of the transaction to the document."""
    limits = accumulator.limits
    document |= {
        "msg_cnt": accumulator.record_count,
        "msg_size": accumulator.size_bytes,
        "msg_max": limits.queue_records,
        "msg_size_max": limits.queue_bytes,
        "txmsgs": sum(counts.records.values()),
        "txmsg_bytes": sum(counts.bytes.values()),
    }
    for topic, window in counts.batch_bytes.items():
        topic_row(document, topic)["batchsize"] = window.take()
        topic_row(document, topic)["batchcnt"] = counts.batch_records[topic].take()
    for (topic, partition), records in counts.records.items():
        row = partition_row(document, cluster, topic, partition)
        row |= {"txmsgs": records, "txbytes": counts.bytes[topic, partition], "msgs": records}
    _add_queues(document, cluster, accumulator)
    _add_transaction(document, accumulator)


def _add_queues(document: Document, cluster: Cluster, accumulator: Accumulator) -> None:
    with accumulator.lock:
        queues = [(queue, list(queue.ready), list(queue.in_flight)) for queue in accumulator.queues()]
    for queue, ready, flying in queues:
        row = partition_row(document, cluster, queue.topic, queue.partition)
        row |= {
            "xmit_msgq_cnt": sum(batch.record_count for batch in ready),
            "xmit_msgq_bytes": sum(batch.size_bytes for batch in ready),
            "msgs_inflight": sum(batch.record_count for batch in flying),
        }


def _add_transaction(document: Document, accumulator: Accumulator) -> None:
    transaction = accumulator.transaction
    if transaction is None:
        return
    identity = transaction.identity
    document["eos"] = {
        "idemp_state": "Init" if identity == ANONYMOUS else "Assigned",
        "txn_state": _TRANSACTION_STATES[transaction.state],
        "txn_may_enq": transaction.refusal() is None,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
    }
