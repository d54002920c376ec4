"""A scripted broker on a real socket: it sends the scripted responses and records the requests."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from felice.protocol.api import API
from felice.protocol.codec import decode
from felice.protocol.errors import ErrorCode
from felice.protocol.frames import decode_request_header, encode_response
from felice.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from felice.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from felice.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from felice.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from felice.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from felice.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from felice.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from felice.records.batch import BatchHeader, iter_batches, stamp
from felice.records.reader import read_records

Handler = Callable[[Any, int], Any]


def brokers_at(ports: Mapping[int, int]) -> list[MetadataResponseBroker]:
    """The rows of brokers in a metadata response, with the port of this machine by broker id."""
    return [
        MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port) for number, port in ports.items()
    ]


class Hang:
    """As a scripted response: the broker never responds."""


class Disconnect:
    """As a scripted response: the broker closes the connection instead."""


class FakeBroker:
    """`with FakeBroker({"topic": 2}) as broker`; `broker.script(Request, answer, ...)` sets the next responses."""

    def __init__(
        self, topics: dict[str, int] | None = None, ranges: dict[int, tuple[int, int]] | None = None
    ) -> None:
        self.topics = {
            name: (uuid.uuid5(uuid.NAMESPACE_DNS, name), count) for name, count in (topics or {}).items()
        }
        self.ranges = ranges
        self.requests: list[tuple[Any, int]] = []
        self.logs: dict[tuple[str, int], bytearray] = defaultdict(bytearray)
        self.ends: dict[tuple[str, int], int] = defaultdict(int)
        self.leader_epoch = 3
        self.scripts: dict[type, deque[Any]] = defaultdict(deque)
        self.handlers: dict[type, Handler] = {
            ApiVersionsRequest: self._api_versions,
            MetadataRequest: self._metadata,
            ProduceRequest: self._produce,
            FetchRequest: self._fetch,
            ListOffsetsRequest: self._list_offsets,
            InitProducerIdRequest: lambda request, version: InitProducerIdResponse(
                producer_id=7, producer_epoch=0
            ),
            FindCoordinatorRequest: self._find_coordinator,
        }
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FakeBroker:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._sessions: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._ready.set()
        await self._stop.wait()
        # Accept pending connections first: if the server is closed or cancelled before, they would stay open.
        while accepting := asyncio.all_tasks() - self._sessions - {asyncio.current_task()}:
            await asyncio.gather(*accepting, return_exceptions=True)
        server.close()
        # Let each session start: a session cancelled before its start does not run its cleanup either.
        await asyncio.sleep(0)
        for task in self._sessions:
            task.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._sessions.add(asyncio.create_task(self._session(reader, writer)))

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                if not await self._answer(frame, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        header, position = decode_request_header(frame)
        api = API.by_key[header.api_key]
        if header.api_version not in api.versions:
            raise AssertionError(f"{api.name} v{header.api_version}")
        request = decode(api.request, frame, header.api_version, position)
        self.requests.append((request, header.api_version))
        script = self.scripts[type(request)]
        answer = script.popleft() if script else self.handlers[type(request)]
        if callable(answer) and not isinstance(answer, type):
            answer = answer(request, header.api_version)
        if answer is Disconnect:
            return False
        if answer is Hang:
            await asyncio.sleep(3600)
        if answer is not None:
            version = header.api_version
            if isinstance(answer, tuple):
                answer, version = answer
            writer.write(encode_response(header.api_key, version, header.correlation_id, answer))
        return True

    def script(self, request_type: type, *answers: Any) -> None:
        """Set the next responses to requests of this type; after them, the default handler responds again."""
        self.scripts[request_type].extend(answers)

    def asked(self, request_type: type) -> list[Any]:
        return [request for request, _ in list(self.requests) if isinstance(request, request_type)]

    def values(self, topic: str, partition: int) -> list[bytes | None]:
        return [record.value for record in read_records(bytes(self.logs[topic, partition]))]

    def batches(self, topic: str, partition: int) -> list[BatchHeader]:
        return list(iter_batches(bytes(self.logs[topic, partition])))

    # The default responses

    def _api_versions(self, request: Any, version: int) -> ApiVersionsResponse:
        rows = self.ranges or {key: (api.versions.min, api.versions.max) for key, api in API.by_key.items()}
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in rows.items()
            ]
        )

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        names = (
            list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="fake",
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topic_id, count = self.topics[name]
        partitions = [
            MetadataResponsePartition(
                partition_index=number,
                leader_id=1,
                leader_epoch=self.leader_epoch,
                replica_nodes=[1],
                isr_nodes=[1],
            )
            for number in range(count)
        ]
        return MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)

    def name(self, row: Any) -> str:
        names = {topic_id: name for name, (topic_id, _) in self.topics.items()}
        return getattr(row, "name", "") or getattr(row, "topic", "") or names[row.topic_id]

    def append(self, topic: str, partition: int, data: Any) -> int:
        header = BatchHeader.parse(data)
        base, copy = self.ends[topic, partition], bytearray(data)
        stamp(copy, 0, base, self.leader_epoch)
        self.logs[topic, partition] += copy
        self.ends[topic, partition] = base + header.last_offset_delta + 1
        return base

    def _produce(self, request: ProduceRequest, version: int) -> ProduceResponse | None:
        topics = []
        for topic in request.topic_data:
            rows = [
                PartitionProduceResponse(
                    index=row.index, base_offset=self.append(self.name(topic), row.index, bytes(row.records))
                )
                for row in topic.partition_data
            ]
            topics.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
            )
        return None if request.acks == 0 else ProduceResponse(responses=topics)

    def produce_error(self, code: int) -> Handler:
        """Refuse every partition of the next Produce."""

        def refuse(request: ProduceRequest, version: int) -> ProduceResponse:
            return ProduceResponse(
                responses=[
                    TopicProduceResponse(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partition_responses=[
                            PartitionProduceResponse(index=row.index, error_code=code, base_offset=-1)
                            for row in topic.partition_data
                        ],
                    )
                    for topic in request.topic_data
                ]
            )

        return refuse

    def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        topics = []
        for topic in request.topics:
            rows = [self._fetch_row(self.name(topic), row) for row in topic.partitions]
            topics.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        return FetchResponse(responses=topics)

    def _fetch_row(self, topic: str, row: Any) -> PartitionData:
        log = bytes(self.logs[topic, row.partition])
        end = self.ends[topic, row.partition]
        data = b"".join(
            log[header.position : header.end]
            for header in iter_batches(log)
            if header.next_offset > row.fetch_offset
        )
        return PartitionData(
            partition_index=row.partition,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=0,
            records=data,
            aborted_transactions=[],
        )

    def _list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=row.partition_index,
                            offset=0 if row.timestamp == -2 else self.ends[topic.name, row.partition_index],
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _find_coordinator(self, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        rows = [
            Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.port)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows)
