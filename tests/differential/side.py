"""One of the two brokers, and what the run learned from it: producer ids, members, sequence numbers, topic ids.

Keeps true: an operation ends when its effects are complete: the controller's changes are visible, the markers of a
            decided transaction are written, and a request that may be parked had `settle_s` to be answered.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from conformance.wire import ConnectionClosed, Wire, api_named
from differential.address import Address
from differential.batches import batch_of
from differential.normalise import UNKNOWN_ID, Normaliser
from differential.operation import Operation
from differential.plain import Plain, to_message
from felice.protocol.api import Api
from felice.protocol.codec import decode, encode
from felice.protocol.messages.describe_transactions import DescribeTransactionsRequest
from felice.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.primitives import MalformedMessage, UnencodableMessage

ANSWER_TIMEOUT_S = 6.0
READY_TIMEOUT_S = 60.0
CHANGES_METADATA = frozenset(
    {
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "AlterConfigs",
        "IncrementalAlterConfigs",
        "Metadata",
        "ElectLeaders",
        "AlterPartitionReassignments",
    }
)
CHANGES_RIGHTS = frozenset({"CreateAcls", "DeleteAcls", "AlterClientQuotas", "AlterUserScramCredentials"})
DECIDES_TRANSACTIONS = frozenset({"EndTxn", "InitProducerId"})
MAY_BE_PARKED = frozenset({"JoinGroup", "SyncGroup"})

PARKED = {"outcome": "parked"}
BUSY = {"outcome": "not sent: the connection waits for an answer"}
CLOSED = {"outcome": "connection closed"}
NO_ANSWER = {"outcome": "no answer"}


@dataclass
class _Lane:
    """A connection, and the request on it that has no answer yet."""

    wire: Wire
    waiting: Operation | None = None
    asked: Any = None


@dataclass
class Side:
    name: str
    address: Address
    prefix: str
    now_ms: int
    settle_s: float
    normaliser: Normaliser = field(init=False)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    members: dict[str, tuple[str, int]] = field(default_factory=dict)
    sequences: dict[tuple[int, int, str, int], int] = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    _lanes: dict[str, _Lane] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.normaliser = Normaliser(self.prefix)

    def carry_out(self, operation: Operation) -> dict[str, Plain]:
        """The answer, and those of earlier requests that came meanwhile, by lane."""
        time.sleep(operation.pause_s)
        answers = {operation.connection: self._send(operation)}
        self._settle(operation, answers[operation.connection])
        for lane in list(self._lanes):
            late = self._late_answer(lane)
            if late is not None:
                answers[f"earlier request of {lane}" if lane in answers else lane] = late
        return answers

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.wire.close()
        self._lanes.clear()

    # Sending

    def _lane(self, name: str, user: str = "") -> _Lane:
        if name not in self._lanes:
            self._lanes[name] = _Lane(self.address.connect(user, ANSWER_TIMEOUT_S))
        return self._lanes[name]

    def _settling(self) -> Wire:
        """A connection that may ask for everything."""
        return self._lane("settling", self.address.administrator).wire

    def _send(self, operation: Operation) -> Plain:
        lane = self._lane(operation.connection, operation.user)
        if lane.waiting is not None:
            return BUSY
        api = api_named(operation.api)
        try:
            asked = to_message(api.request, self.resolve(operation.body))
            payload = encode(asked, operation.version)
        except UnencodableMessage:
            return {"outcome": "not a request of this version"}
        self._send_payload(lane.wire, api, operation, payload)
        lane.waiting, lane.asked = operation, asked
        if operation.api in MAY_BE_PARKED and not self._is_readable(lane.wire, self.settle_s):
            return PARKED
        if operation.api == "Produce" and asked.acks == 0:
            return self._after_silence(operation.connection)
        return self._receive(operation.connection)

    def _send_payload(self, wire: Wire, api: Api, operation: Operation, payload: bytes) -> None:
        from conformance.wire import CLIENT_ID, request_header

        wire._correlation_id += 1
        header = request_header(
            api.key,
            operation.version,
            wire._correlation_id,
            CLIENT_ID,
            api.request_header_version(operation.version),
        )
        body = payload + b"\0" * -operation.cut if operation.cut <= 0 else payload[: -operation.cut]
        with contextlib.suppress(OSError):  # reading the answer shows that it is closed
            wire.send_frame(header + body)

    def _receive(self, name: str) -> Plain:
        lane = self._lanes[name]
        operation, asked = lane.waiting, lane.asked
        assert operation is not None
        api = api_named(operation.api)
        lane.waiting = None
        try:
            body = lane.wire.receive_body(api.response_header_version(operation.version))
            answer = decode(api.response, body, operation.version)
        except TimeoutError:
            self._forget(name)
            return NO_ANSWER
        except (ConnectionClosed, OSError):
            self._forget(name)
            return CLOSED
        except (MalformedMessage, AssertionError) as error:
            self._forget(name)
            return {"outcome": f"unreadable: {error}"}
        self._learn(operation, asked, answer)
        return self.normaliser.answer(answer, operation.version)

    def _after_silence(self, name: str) -> Plain:
        """Without acknowledgements only the connection shows the outcome: it answers the next request, or is closed."""
        lane = self._lanes[name]
        lane.waiting = None
        try:
            lane.wire.ask(MetadataRequest(topics=[]), 9)
        except (ConnectionClosed, OSError):
            self._forget(name)
            return CLOSED
        return {"outcome": "silence"}

    def _forget(self, name: str) -> None:
        self._lanes.pop(name).wire.close()

    def _late_answer(self, name: str) -> Plain | None:
        lane = self._lanes[name]
        if lane.waiting is None or not self._is_readable(lane.wire, 0):
            return None
        return self._receive(name)

    @staticmethod
    def _is_readable(wire: Wire, timeout_s: float) -> bool:
        return bool(select.select([wire.socket], [], [], timeout_s)[0])

    # Symbols

    def resolve(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.resolve(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        if "ref" in value:
            return self._reference(*value["ref"])
        if "batch" in value:
            return batch_of(self.resolve(value["batch"]), self.now_ms)
        if "time" in value:
            return self.now_ms + value["time"]
        return {name: self.resolve(entry) for name, entry in value.items()}

    def _text(self, text: str) -> str:
        if text.startswith("~"):
            text = self.prefix + text[1:]
        self.normaliser.given.add(text)
        return text

    def _reference(self, kind: str, name: str, *more: Any) -> Any:
        match kind:
            case "pid":
                return self.producers.get(name, (-1, -1))[0]
            case "epoch":
                return self.producers.get(name, (-1, -1))[1] + (more[0] if more else 0)
            case "member":
                return self.members.get(name, ("", -1))[0]
            case "generation":
                return self.members.get(name, ("", -1))[1] + (more[0] if more else 0)
            case "topic_id":
                return self.topic_ids.get(self._text(name), UNKNOWN_ID)
            case "session":
                return self.sessions.get(name, 0)
            case "seq":
                topic, partition, delta = more
                key = (*self.producers.get(name, (-1, -1)), self._text(topic), partition)
                return max(0, self.sequences.get(key, 0) + delta)
        raise LookupError(kind)

    # Learning

    def _learn(self, operation: Operation, asked: Any, answer: Any) -> None:
        match operation.api:
            case "InitProducerId" | "EndTxn" if answer.error_code == 0 and operation.slot:
                self._learn_producer(operation, answer)
            case "JoinGroup" if answer.member_id:
                self._learn_member(operation, answer)
            case "Fetch" if operation.slot and operation.version >= 7:
                self.sessions[operation.slot] = answer.session_id
            case "Produce":
                self._learn_sequences(asked, answer)
            case "Metadata":
                self._learn_topics(answer)

    def _learn_producer(self, operation: Operation, answer: Any) -> None:
        identity = (answer.producer_id, answer.producer_epoch)
        if operation.api == "EndTxn" and (operation.version < 5 or answer.producer_id < 0):
            return
        self.normaliser.learn("producer", answer.producer_id)
        self.producers[operation.slot] = identity

    def _learn_member(self, operation: Operation, answer: Any) -> None:
        if answer.member_id not in self.normaliser.given:
            self.normaliser.learn("member", answer.member_id, operation.slot)
        if operation.slot:
            self.members[operation.slot] = (answer.member_id, answer.generation_id)

    def _learn_sequences(self, asked: Any, answer: Any) -> None:
        from felice.records.batch import BatchHeader

        sent = {
            (topic.name, topic.topic_id, data.index): data.records
            for topic in asked.topic_data
            for data in topic.partition_data
        }
        for topic in answer.responses:
            for row in topic.partition_responses:
                records = sent.get((topic.name, topic.topic_id, row.index))
                if row.error_code or not records:
                    continue
                header = BatchHeader.parse(records)
                name = topic.name or self.normaliser.topic_names.get(topic.topic_id, "")
                key = (header.producer_id, header.producer_epoch, name, row.index)
                end = header.base_sequence + header.record_count
                self.sequences[key] = max(self.sequences.get(key, 0), end)

    def _learn_topics(self, answer: Any) -> None:
        for topic in answer.topics:
            if topic.error_code == 0 and (topic.name or "").startswith(self.prefix):
                self.topic_ids[topic.name] = topic.topic_id
                self.normaliser.topic_names[topic.topic_id] = topic.name

    # Settling

    def _settle(self, operation: Operation, answer: Plain) -> None:
        if operation.api in CHANGES_METADATA and self._changed(operation, answer):
            self._wait_metadata()
        elif operation.api in DECIDES_TRANSACTIONS and operation.body.get("transactional_id"):
            self._wait_transaction(self.resolve(operation.body["transactional_id"]))
        elif operation.api in CHANGES_RIGHTS or self._has_waiting():
            time.sleep(self.settle_s)

    def _has_waiting(self) -> bool:
        return any(lane.waiting is not None for lane in self._lanes.values())

    @staticmethod
    def _changed(operation: Operation, answer: Plain) -> bool:
        return operation.api != "Metadata" or "'error_code': 3" in str(answer)

    def _wait_metadata(self) -> None:
        """Waits until all topics of this run have leaders that answer."""
        time.sleep(self.settle_s)
        wire = self._settling()
        with self._deadline() as is_over:
            while not is_over():
                answer = wire.ask(MetadataRequest(topics=None), 12)
                own = [topic for topic in answer.topics if (topic.name or "").startswith(self.prefix)]
                known = {topic.name: topic.topic_id for topic in own}
                self.topic_ids = known
                self.normaliser.topic_names |= {topic_id: name for name, topic_id in known.items()}
                if all(self._is_led(wire, topic) for topic in own):
                    return
                time.sleep(0.01)

    @staticmethod
    def _is_led(wire: Wire, topic: Any) -> bool:
        if any(row.leader_id < 0 for row in topic.partitions):
            return False
        wanted = [
            ListOffsetsPartition(partition_index=row.partition_index, timestamp=-2)
            for row in topic.partitions
        ]
        asked = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=wanted)]
        )
        rows = wire.ask(asked, 5).topics[0].partitions
        return all(row.error_code == 0 for row in rows)

    def _wait_transaction(self, transactional_id: str) -> None:
        wire = self._settling()
        asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        with self._deadline() as is_over:
            while not is_over():
                state = wire.ask(asked).transaction_states[0].transaction_state
                if not state.startswith("Prepare"):
                    return
                time.sleep(0.005)

    @contextlib.contextmanager
    def _deadline(self) -> Iterator[Any]:
        deadline = time.monotonic() + READY_TIMEOUT_S
        yield lambda: time.monotonic() > deadline
