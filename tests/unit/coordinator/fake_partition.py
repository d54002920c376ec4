"""A partition in memory whose leadership, commits and faults a test controls, and a shard that keeps words."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from felice.config import TopicConfig
from felice.coordinator.shard import NEVER_MS, NO_PRODUCER_ID, Instant, Outcome, Reply, Undo
from felice.log.answers import AppendInfo, AppendOrigin
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.primitives import UnencodableMessage
from felice.records.batch import BatchHeader, stamp


@dataclass
class FakeLog:
    config: TopicConfig = field(default_factory=TopicConfig)
    batches: list[bytes] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)

    def read_bytes(self, offset: int, max_bytes: int, *, end_offset: int) -> bytes:
        if self.faults:
            raise self.faults.pop()
        read = b""
        for batch in self.batches:
            if BatchHeader.parse(batch).last_offset >= offset and (
                not read or len(read + batch) <= max_bytes
            ):
                read += batch
        return read


@dataclass
class FakePartition:
    topic: str = "words"
    partition: int = 0
    is_leader: bool = True
    leader_epoch: int = 0
    log: FakeLog = field(default_factory=FakeLog)
    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    commits_at_once: bool = True
    refusal: ErrorCode | None = None
    fenced: set[int] = field(default_factory=set)
    advanced: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def append(
        self,
        records: bytearray | bytes,
        *,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin,
        transaction_version: int = 0,
    ) -> AppendInfo:
        assert required_acks == -1
        assert origin is AppendOrigin.COORDINATOR
        records = bytearray(records)
        producer_id = BatchHeader.parse(records).producer_id
        if self.refusal is not None or producer_id in self.fenced:
            raise ApiError(self.refusal or ErrorCode.INVALID_PRODUCER_EPOCH)
        stamp(records, 0, self.log_end_offset, self.leader_epoch)
        self.log.batches.append(bytes(records))
        base_offset = self.log_end_offset
        self.log_end_offset = BatchHeader.parse(records).next_offset
        if self.commits_at_once:
            self.high_watermark = self.log_end_offset
        return AppendInfo(base_offset, self.log_end_offset - 1, -1, 0)

    def commit(self) -> None:
        self.high_watermark = self.log_end_offset
        self.advanced.set()

    async def wait_committed(self, offset: int, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while self.high_watermark <= offset:
                    self.advanced.clear()
                    await self.advanced.wait()
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT) from None


@dataclass
class FakePartitions:
    held: dict[int, FakePartition] = field(default_factory=dict)

    def get(self, topic: str, partition: int) -> Any:
        return self.held.get(partition)


@dataclass
class FakeClock:
    steady_s: float = 0.0

    def now_ms(self) -> int:
        return 1_000_000 + int(self.steady_s * 1000)

    def monotonic(self) -> float:
        return self.steady_s


Word = tuple[str, str]


class WordCodec:
    def encode(self, record: Word) -> tuple[bytes, bytes | None]:
        if record[0] == "unencodable":
            raise UnencodableMessage("Word", "key", "it is too long")
        return record[0].encode(), record[1].encode()

    def decode(self, key: bytes, value: bytes | None) -> Word | None:
        if key == b"unknown":
            return None
        return key.decode(), (value or b"").decode()


@dataclass
class WordShard:
    """Keeps the last value of each key."""

    words: dict[str, str] = field(default_factory=dict)
    pending: dict[int, list[Word]] = field(default_factory=dict)
    deadline_ms: int = NEVER_MS
    rung: list[int] = field(default_factory=list)
    waiting: list[Reply] = field(default_factory=list)
    is_loaded: bool = False

    def replay(self, record: Word, producer_id: int = NO_PRODUCER_ID) -> Undo:
        if producer_id != NO_PRODUCER_ID:
            self.pending.setdefault(producer_id, []).append(record)
            return lambda: None
        key, value = record
        before = self.words.get(key)
        self.words[key] = value

        def undo() -> None:
            if before is None:
                del self.words[key]
            else:
                self.words[key] = before

        return undo

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        for record in self.pending.pop(producer_id, []):
            if committed:
                self.replay(record)

    def on_loaded(self, now: Instant) -> Outcome[Word]:
        self.is_loaded = True
        return Outcome()

    def on_unloaded(self, error: ErrorCode) -> list[Reply]:
        return [Reply(reply.waiter, error) for reply in self.waiting]

    def next_deadline_ms(self) -> int:
        return self.deadline_ms

    def on_time(self, now: Instant) -> Outcome[Word]:
        self.rung.append(now.steady_ms)
        self.deadline_ms = NEVER_MS
        return Outcome(records=[("rung", str(now.steady_ms))])
