"""Whatever is lost or refused between an idempotent producer and its broker, and whenever: each record is written once
and in order (T2)."""

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from felice.client.error import KafkaError, failure
from felice.client.options import ProducerSettings
from felice.client.produce.accumulator import Accumulator, Limits
from felice.client.produce.partitioners import make_partitioner
from felice.client.produce.sender import Delivered, Sender
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.init_producer_id import InitProducerIdResponse
from felice.records.batch import BatchHeader
from felice.records.reader import read_batch
from waiting import LIMIT_S

OK, REFUSED, REQUEST_LOST, REPLY_LOST, FORGOTTEN, UNREACHABLE = range(6)


class ModelPartition:
    """Kafka's checks of an idempotent producer: the last five batches, epochs, and gaps in the sequences."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self.epoch = -1
        # An unknown producer may start with any sequence. A batch after a refused batch is refused, too.
        self.takes_any = True
        self.recent: list[tuple[int, int, int]] = []

    def append(self, data: Any) -> tuple[int, int]:
        header = BatchHeader.parse(data)
        for first, last, offset in self.recent:
            if (header.producer_epoch, header.base_sequence, header.last_sequence) == (
                self.epoch,
                first,
                last,
            ):
                return ErrorCode.NONE, offset
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        fresh = header.producer_epoch > self.epoch
        if self.takes_any or not (fresh or self.recent):
            expected = header.base_sequence
        else:
            expected = 0 if fresh else self.recent[-1][1] + 1
        self.takes_any = False
        if header.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.values)
        if fresh:
            self.recent = []
        self.epoch = header.producer_epoch
        self.recent = [*self.recent[-4:], (header.base_sequence, header.last_sequence, offset)]
        self.values += [record.value for record in read_batch(data, header)]
        return ErrorCode.NONE, offset


class ScriptedCluster:
    """Replaces `Cluster`: one broker that responds by script, and then always with success."""

    def __init__(self, script: list[int]) -> None:
        self.partition = ModelPartition()
        self.script = list(script)
        self._connection: ScriptedConnection | None = None
        self.timeout_s = 1.0
        self.topology = SimpleNamespace(
            version=0,
            brokers={1: None},
            names_by_id={},
            leader=lambda topic, partition: 1,
            leader_epoch=lambda topic, partition: 0,
            partition_count=lambda topic: 1,
            topic_id=lambda topic: None,
            on_leader_hint=lambda *hint: False,
        )

    def spawn(self, work: Any) -> Any:
        return asyncio.get_running_loop().create_task(work)

    def refresh_soon(self) -> Any:
        return self.spawn(asyncio.sleep(0))

    async def call_any(self, request: Any) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=1, producer_epoch=0)

    def traffic_to(self, leader: int) -> None:
        """No statistics are counted."""

    def open_connection(self, leader: int) -> "ScriptedConnection | None":
        return self._connection

    async def connection(self, leader: int) -> "ScriptedConnection":
        if self._connection is None:
            await asyncio.sleep(0)
            if self.script and self.script[0] == UNREACHABLE:
                self.script.pop(0)
                raise failure(KafkaError._TRANSPORT, retriable=True)
            self._connection = ScriptedConnection(self)
        return self._connection

    def lose(self) -> None:
        self._connection = None


class ScriptedConnection:
    """Responds in order. After a lost request or response, all later ones are lost, too."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._cluster, self.script, self.partition = cluster, cluster.script, cluster.partition
        self._is_lost = False
        self._order = asyncio.Lock()

    def _lost(self) -> Exception:
        if not self._is_lost:
            self._is_lost = True
            self._cluster.lose()
        return failure(KafkaError._TRANSPORT, retriable=True)

    async def call(self, request: Any, timeout_s: float) -> Any:
        data = request.build(9).topic_data[0].partition_data[0].records
        async with self._order:
            await asyncio.sleep(0)
            if self._is_lost:
                raise self._lost()
            outcome = self.script.pop(0) if self.script else OK
            if outcome == REQUEST_LOST:
                raise self._lost()
            if outcome == FORGOTTEN:
                # The broker lost its state of the producer; old sequences now look like gaps.
                self.partition.recent = self.partition.recent[-1:]
            if outcome == REFUSED:
                self.partition.takes_any = False
            code, offset = (
                (ErrorCode.NOT_ENOUGH_REPLICAS, -1) if outcome == REFUSED else self.partition.append(data)
            )
            if outcome == REPLY_LOST:
                raise self._lost()
        row = SimpleNamespace(
            index=0,
            error_code=int(code),
            error_message=None,
            base_offset=offset,
            log_append_time_ms=-1,
            current_leader=None,
        )
        topic = SimpleNamespace(name="t", partition_responses=[row])
        return SimpleNamespace(responses=[topic], throttle_time_ms=0)


async def produce_all(script: list[int], sizes: list[int]) -> tuple[list[bytes | None], list[Delivered]]:
    config = {"bootstrap.servers": "x:1", "retry.backoff.ms": 1, "retry.backoff.max.ms": 1}
    now = asyncio.get_running_loop().time
    accumulator = Accumulator(Limits(batch_records=2, linger_s=0.0), make_partitioner("sticky"), now)
    cluster = ScriptedCluster(script)
    delivered: list[Delivered] = []
    done = asyncio.Event()
    total = sum(sizes)

    def on_delivered(finished: Delivered) -> None:
        delivered.append(finished)
        if sum(each.batch.record_count for each in delivered) == total:
            done.set()

    sender = Sender(cluster, accumulator, ProducerSettings.parse(config), on_delivered, lambda *drop: None)  # type: ignore[arg-type]
    accumulator.open_topic("t", 1, (0,))
    number = 0
    for size in sizes:
        for _ in range(size):
            accumulator.append("t", 0, 1, None, b"%d" % number, None, None)
            number += 1
        sender.wake()
        await asyncio.sleep(0)
    async with asyncio.timeout(LIMIT_S):
        await done.wait()
    sender.close()
    return cluster.partition.values, delivered


outcomes = st.sampled_from([OK, OK, REFUSED, REQUEST_LOST, REPLY_LOST, UNREACHABLE])


@settings(max_examples=60, deadline=None)
@given(st.lists(outcomes, max_size=25), st.lists(st.integers(1, 5), min_size=1, max_size=12))
# A retry that is refused again while newer batches are written after it leaves the window of five batches.
@example([REPLY_LOST, OK, OK, OK, REFUSED], [1, 1, 3, 3])
# The connection for the first request cannot be opened; the connection for the second can.
@example([UNREACHABLE], [2, 2])
def test_every_record_is_written_once_and_in_order(script: list[int], sizes: list[int]) -> None:
    values, delivered = asyncio.run(produce_all(script, sizes))
    assert all(finished.error is None for finished in delivered)
    assert values == [b"%d" % number for number in range(sum(sizes))]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([OK, REFUSED, REPLY_LOST, FORGOTTEN]), max_size=15), st.integers(1, 20))
def test_a_forgetful_broker_may_cause_copies_but_never_loss(script: list[int], count: int) -> None:
    values, delivered = asyncio.run(produce_all(script, [1] * count))
    assert all(finished.error is None for finished in delivered)
    assert set(values) == {b"%d" % number for number in range(count)}
