"""Internal topics do not count for the quota of the client whose request creates them."""

from __future__ import annotations

from pathlib import Path

from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.describe_client_quotas import EntityData
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.server.process.embedded import EmbeddedBroker
from waiting import wait_until


def limit_each_client(wire: Wire, partitions_per_s: float) -> None:
    entity = [EntityData(entity_type="client-id", entity_name=None)]
    change = OpData(key="controller_mutation_rate", value=partitions_per_s)
    row = EntryData(entity=entity, ops=[change])
    assert wire.ask(AlterClientQuotasRequest(entries=[row])).entries[0].error_code == 0


def create(wire: Wire, name: str, partitions: int) -> int:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return int(wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000)).topics[0].error_code)


def test_a_client_may_create_topics_after_its_request_created_internal_ones(tmp_path: Path) -> None:
    """As Apache Kafka 4.3.1: there the controller counts them for the broker that asks it to create them."""
    properties = {"offsets.topic.num.partitions": "50"}
    with EmbeddedBroker(tmp_path, properties=properties) as broker, Wire(broker.bootstrap) as wire:
        # So low that nothing comes back while the test runs: 11 s' allowance is less than one partition.
        limit_each_client(wire, 0.001)
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
        wait_until(lambda: wire.ask(asked).coordinators[0].error_code == 0)
        assert create(wire, "first", 50) == 0
        with Wire(broker.bootstrap) as other:
            assert create(other, "second", 1) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
