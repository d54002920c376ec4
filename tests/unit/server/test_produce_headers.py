"""What is known of a transactional batch when it is appended: its header, and its validation if it is compressed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from begun_calls import at_once
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.records.batch import BatchHeader
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec
from felice.records.validate import Validated
from felice.server.handlers import produce
from felice.server.services import Services
from rooms import context_with

VERSION = 12


class World:
    """One partition, whose appends are noted, and an admission that agrees at once."""

    def __init__(self, services: Services) -> None:
        self.writers: list[Any] = []
        self.appended: list[dict[str, Any]] = []
        self.valid: Validated | None = None
        log = SimpleNamespace(produce_rules=None)
        partition = SimpleNamespace(
            append=self._append, is_acknowledged=lambda info, acks: True, is_leader=True, log=log
        )
        validation = SimpleNamespace(validate_small=lambda records, rules, **given: self.valid)
        parts: Any = {
            "partitions": SimpleNamespace(get=lambda *where: partition, find=lambda *where: partition),
            "coordinators": SimpleNamespace(admission=SimpleNamespace(enter=self._enter)),
            "batch_validation": validation,
        }
        self.services = replace(services, **parts)

    def _enter(self, who: Any, partitions: Any, flow: Any) -> None:
        self.writers.append(who)

    def _append(self, records: Any, **given: Any) -> Any:
        self.appended.append(given)
        return SimpleNamespace(base_offset=0, log_append_time_ms=-1, log_start_offset=0)

    def write(self, records: bytes) -> None:
        data = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name="t", partition_data=[data])
        request = ProduceRequest(transactional_id="x", acks=1, timeout_ms=1000, topic_data=[topic])
        at_once(produce.handle(request, context_with(self.services, VERSION)))


def batch(codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec, producer_id=7, producer_epoch=2, base_sequence=0, transactional=True)
    builder.append(1, b"k", b"v")
    return bytes(builder.build())


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    found: list[bytes] = []
    parse = produce.only_batch

    def counted(records: Any, **rules: Any) -> BatchHeader:
        found.append(bytes(records))
        return parse(records, **rules)

    monkeypatch.setattr(produce, "only_batch", counted)
    return found


def test_the_header_that_was_parsed_for_the_transaction_goes_to_the_log(
    services: Services, parsed: list[bytes]
) -> None:
    world = World(services)
    world.write(batch())
    assert [(who.transactional_id, who.producer_id, who.epoch) for who in world.writers] == [("x", 7, 2)]
    assert world.appended[0]["header"] == BatchHeader.parse(batch())
    assert len(parsed) == 1


def test_a_compressed_batch_of_a_transaction_goes_to_the_log_with_its_validation(services: Services) -> None:
    world, records = World(services), batch(Codec.GZIP)
    world.valid = Validated(bytearray(records), BatchHeader.parse(records), 0, -1)
    world.write(records)
    assert world.writers[0].producer_id == 7
    assert world.appended[0]["verdict"] is world.valid
