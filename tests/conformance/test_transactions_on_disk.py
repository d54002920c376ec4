"""Kafka's own tools read the files of transactions."""

from __future__ import annotations

from conformance.group_calls import find_coordinator
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.transaction_calls import WireProducer, fetch_row, visible
from conformance.wire import unique_name
from peers.java import require_java, run_tool

DUMP = "org.apache.kafka.tools.DumpLogSegments"


def test_kafka_decodes_our_transaction_topic_markers_and_index() -> None:
    require_java()
    with Target({"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}) as own:
        topic = create_topic(own, unique_name("t"), 2)
        with own.wire() as wire:
            find_coordinator(wire, "g")
            producer = WireProducer(wire, "on-disk").begin_life()
            producer.write(topic, b"kept")
            assert producer.add_offsets("g") == 0
            assert producer.commit_offset("g", topic, 41) == 0
            producer.commit()
            producer.write(topic, b"dropped")
            producer.abort()
        own.stop()
        states = dump(own, "__transaction_state-0", "--transaction-log-decoder")
        data = dump(own, f"{topic}-0")
        offsets = dump(own, "__consumer_offsets-0", "--offsets-decoder")
        index = dump(own, f"{topic}-0", suffix="txnindex")
    assert '"type":"0","data":{"transactionalId":"on-disk"}' in states
    numbers = [
        line.split('"transactionStatus":')[1].split(",")[0]
        for line in states.splitlines()
        if "payload" in line
    ]
    # Empty, Ongoing twice, PrepareCommit, CompleteCommit, Ongoing, PrepareAbort, CompleteAbort.
    assert numbers == ["0", "1", "1", "2", "4", "1", "3", "5"]
    assert '"version":"1"' in states
    assert '"transactionPartitions":null' in states
    assert f'{{"topic":"{topic}","partitionIds":[0]}}' in states
    assert "endTxnMarker: COMMIT coordinatorEpoch: 0" in data
    assert "endTxnMarker: ABORT coordinatorEpoch: 0" in data
    assert '"data":{"offset":41' in offsets
    assert "endTxnMarker: COMMIT" in offsets
    assert f"producerId: {producer.producer_id} firstOffset: 2 lastOffset: 3 lastStableOffset: 4" in index


def dump(target: Target, directory: str, *options: str, suffix: str = "log") -> str:
    path = target.log_dir / directory / f"{0:020}.{suffix}"
    return run_tool(DUMP, *options, "--deep-iteration", "--files", str(path)).stdout


def test_kafkas_tool_for_transactions(broker: Target) -> None:
    require_java()
    topic = create_topic(broker, unique_name("t"))
    with broker.wire() as wire:
        producer = WireProducer(wire, unique_name("tool")).begin_life(timeout_ms=900_000)
        producer.write(topic, b"open")
        name = producer.transactional_id
        assert any(name in line and "Ongoing" in line for line in tool(broker, "list").splitlines())
        described = tool(broker, "describe", "--transactional-id", name)
        assert f"{topic}-0" in described
        producers = tool(broker, "describe-producers", "--topic", topic, "--partition", "0")
        assert str(producer.producer_id) in producers
        # An administrator ends what hangs.
        tool(broker, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        row = fetch_row(wire, topic)
        assert (row.last_stable_offset, visible(row)) == (2, [])


def tool(target: Target, *arguments: str) -> str:
    return run_tool(
        "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", target.bootstrap, *arguments
    ).stdout
