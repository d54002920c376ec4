"""The transaction version that other clients choose, observed in their requests, and exactly-once copies in each
version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance.copying import QUICK, SETTINGS, copy_exactly_once
from conformance.test_transactions_clients import COMMITTED, EVERYTHING, confluent_writes, kafka_python_writes
from conformance.test_transactions_clients import confluent_reads as reads
from conformance.topics import create_topic_over
from conformance.wire import Wire, unique_name
from felice.client.admin import AdminClient, FeatureUpdate, UpgradeType
from felice.server.context import RequestContext
from felice.server.handlers.table import OFFERED, Handle, Handlers
from felice.server.process.embedded import EmbeddedBroker
from peers.golang import require_go_peer
from peers.pipe import PipePeer

pytestmark = [pytest.mark.felice_only, pytest.mark.timeout(1800)]


class Witness(Handlers):
    """The broker's handlers, and the versions of the transactional requests that arrived, by API."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, set[int]] = defaultdict(set)

    def __missing__(self, api_key: int) -> Handle:
        self[api_key] = wrapped = partial(self._note, OFFERED[api_key].name, super().__missing__(api_key))
        return wrapped

    def _note(self, name: str, handle: Handle, request: Any, context: RequestContext) -> Any:
        if name != "Produce" or request.transactional_id is not None:
            self.seen[name].add(context.version)
        return handle(request, context)


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def broker(tmp_path: Path, witness: Witness) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data", properties=SETTINGS, handlers=witness) as running:
        yield running


def finalize(broker: EmbeddedBroker, level: int) -> None:
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        change = FeatureUpdate("transaction.version", level, UpgradeType.SAFE_DOWNGRADE)
        admin.update_features([change]).result(60)


def new_topic(broker: EmbeddedBroker) -> str:
    name = unique_name("t")
    with Wire(broker.bootstrap) as wire:
        create_topic_over(wire, name, QUICK.partitions)
    return name


def copy(broker: EmbeddedBroker, kills: int) -> None:
    """Java copies exactly once while the copier is killed often."""
    copy_exactly_once("java", broker.bootstrap, replace(QUICK, kills=kills), seed=30)


def test_java_uses_transaction_v2_where_the_cluster_has_settled_on_it(
    broker: EmbeddedBroker, witness: Witness
) -> None:
    copy(broker, 1)
    assert "AddPartitionsToTxn" not in witness.seen
    assert "AddOffsetsToTxn" not in witness.seen
    assert min(witness.seen["Produce"]) >= 12
    assert witness.seen["EndTxn"] == witness.seen["TxnOffsetCommit"] == {5}


@pytest.mark.parametrize("level", [0, 1])
def test_java_keeps_to_the_old_flow_after_a_downgrade(
    broker: EmbeddedBroker, witness: Witness, level: int
) -> None:
    finalize(broker, level)
    copy(broker, 2 if level == 0 else 0)
    assert witness.seen["AddPartitionsToTxn"] == {3}
    assert "AddOffsetsToTxn" in witness.seen
    assert max(witness.seen["Produce"]) <= 11
    assert max(witness.seen["EndTxn"]) == max(witness.seen["TxnOffsetCommit"]) == 4


@pytest.mark.parametrize("write", [confluent_writes, kafka_python_writes])
def test_clients_of_the_old_flow_work_where_v2_is_finalized(
    broker: EmbeddedBroker, witness: Witness, write: Any
) -> None:
    topic = new_topic(broker)
    write(broker.bootstrap, topic, unique_name("old"))
    assert reads(broker.bootstrap, topic, "read_committed", len(COMMITTED)) == COMMITTED
    assert reads(broker.bootstrap, topic, "read_uncommitted", len(EVERYTHING)) == EVERYTHING
    assert "AddPartitionsToTxn" in witness.seen
    assert max(witness.seen["EndTxn"]) < 5


@pytest.mark.parametrize("level", [0, 2])
def test_franz_go_chooses_its_flow_by_the_level(broker: EmbeddedBroker, witness: Witness, level: int) -> None:
    if level < 2:
        finalize(broker, level)
    topic = new_topic(broker)
    peer = PipePeer([str(require_go_peer())])
    try:
        peer.call("transactions", bootstrap=broker.bootstrap, topic=topic, group=unique_name("go"))
    finally:
        peer.close()
    assert reads(broker.bootstrap, topic, "read_committed", len(COMMITTED)) == COMMITTED
    assert reads(broker.bootstrap, topic, "read_uncommitted", len(EVERYTHING)) == EVERYTHING
    assert ("AddPartitionsToTxn" in witness.seen) == (level < 2)
    assert (max(witness.seen["EndTxn"]) == 5) == (level == 2)
