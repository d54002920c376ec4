"""Load of requests: administrators, connections that come and go or break off, Java's clients."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

from conformance.wire import Wire, unique_name
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.list_transactions import ListTransactionsRequest
from peers.cache import PeerMissing
from peers.clients import PipeClient
from peers.java import java_command, programs_dir
from peers.record import PeerRecord
from soak.actor import Actor, passing, wait_until
from soak.clients import WAIT_S, Topics, library_of

SET = AlterConfigOpType.SET
# Large enough for pooled memory of its own (from 128 KiB), and in total more than the pool holds (8 MiB).
FRAME_BYTES = 131_000
FRAMES_AT_ONCE = 70


class Administrator(Actor):
    """Creates topics, describes everything, changes configurations, deletes the topics."""

    name = "administration"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._topics = Topics(bootstrap)

    def round(self, number: int, seconds: float) -> list[str]:
        faults: list[str] = []
        for moment in passing(seconds, 0.25):
            faults += self._visit(number)
            wait_until(moment)
        return faults

    def _visit(self, number: int) -> list[str]:
        library = library_of(number)
        admin = library.admin.AdminClient({"bootstrap.servers": self._bootstrap})
        names = [self._topics.create(unique_name("visited"), 4) for _ in range(3)]
        admin.create_partitions([library.admin.NewPartitions(names[0], 7)])[names[0]].result(WAIT_S)
        seen = admin.list_topics(timeout=WAIT_S).topics
        faults = [f"{name} is not listed" for name in names if name not in seen]
        if len(seen[names[0]].partitions) != 7:
            faults.append(f"{names[0]} has {len(seen[names[0]].partitions)} partitions and not 7")
        self._ask_librdkafka(names)
        self._ask_plainly(names)
        self._topics.delete(*names)
        left = admin.list_topics(timeout=WAIT_S).topics
        return [*faults, *(f"{name} is still there" for name in names if name in left)]

    def _ask_librdkafka(self, names: list[str]) -> None:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self._bootstrap})
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        asked.append(ConfigResource(ResourceType.BROKER, "0"))
        for future in admin.describe_configs(asked).values():
            future.result(WAIT_S)
        changed = ConfigResource(ResourceType.TOPIC, names[1])
        changed.add_incremental_config(ConfigEntry("retention.ms", "60000", incremental_operation=SET))
        for future in admin.incremental_alter_configs([changed]).values():
            future.result(WAIT_S)
        offsets = {TopicPartition(names[0], p): OffsetSpec.latest() for p in range(7)}
        for future in admin.list_offsets(offsets).values():
            future.result(WAIT_S)
        groups = [row.group_id for row in admin.list_consumer_groups().result(WAIT_S).valid]
        for future in admin.describe_consumer_groups(groups or ["nobody"]).values():
            future.result(WAIT_S)
        admin.describe_cluster().result(WAIT_S)

    def _ask_plainly(self, names: list[str]) -> None:
        with Wire(self._bootstrap) as wire:
            wire.ask(ListTransactionsRequest())
            wire.ask(DescribeProducersRequest(topics=[TopicRequest(name=names[0], partition_indexes=[0])]))


class Connections(Actor):
    """Many short connections: some send requests, some nothing, some break off within a frame, some while they wait."""

    name = "connections"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._dice = random.Random(15)

    def round(self, number: int, seconds: float) -> list[str]:
        if number == 0:
            self._fill_the_pool()
        for moment in passing(seconds, 8):
            with Wire(self._bootstrap) as wire:
                self._dice.choice((self._ask, self._keep_silent, self._break_off, self._leave_waiting))(wire)
                if self._dice.random() < 0.5:  # close with a reset
                    linger = struct.pack("ii", 1, 0)
                    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            wait_until(moment)
        return []

    def _fill_the_pool(self) -> None:
        """Fill the pool at the start: overlapping frames are rare and would fill it over the whole hour, like a
        leak.
        """
        with contextlib.ExitStack() as held:
            for _ in range(FRAMES_AT_ONCE):
                self._send_part(held.enter_context(Wire(self._bootstrap)), FRAME_BYTES - 1)
            with Wire(self._bootstrap) as last:
                self._ask(last)

    def _ask(self, wire: Wire) -> None:
        wire.ask(ApiVersionsRequest(), 0)

    def _keep_silent(self, wire: Wire) -> None:
        pass

    def _break_off(self, wire: Wire) -> None:
        self._send_part(wire, self._dice.randrange(20_000))

    def _send_part(self, wire: Wire, size: int) -> None:
        wire.send_raw(struct.pack(">i", FRAME_BYTES) + os.urandom(size))

    def _leave_waiting(self, wire: Wire) -> None:
        waiting = FetchPartition(
            partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1 << 20
        )
        asked = FetchRequest(
            replica_id=-1,
            max_wait_ms=30_000,
            min_bytes=50 << 20,
            max_bytes=50 << 20,
            session_epoch=0,
            topics=[FetchTopic(topic="retained", partitions=[waiting])],
        )
        wire.send(asked, 12)


class Java(Actor):
    """Kafka's Java clients: produce, consume, and a group that reads the same records again."""

    name = "Java's clients"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._topics = Topics(bootstrap)
        if not (programs_dir() / ".stamp").exists():
            raise PeerMissing("the Java programs are not compiled")
        command = java_command("JavaPeer", first=[programs_dir()], options=["-Xmx96m"])
        self._client = PipeClient("java", command)

    def round(self, number: int, seconds: float) -> list[str]:
        topic = self._topics.create(unique_name("java"), 2)
        sent = [PeerRecord(b"k", b"%d" % n, partition=n % 2) for n in range(int(seconds * 10))]
        self._client.produce(self._bootstrap, topic, sent, ("none", "gzip", "lz4", "zstd")[number % 4])
        read = self._client.consume(self._bootstrap, topic, len(sent))
        grouped = self._in_a_group(f"java-{number % 3}", topic, len(sent))
        self._topics.delete(topic)
        wanted = sorted(record.value or b"" for record in sent)
        return [
            f"{what} got {len(found)} records, and not each of the {len(sent)} once"
            for what, found in (("the consumer", read), ("the group", grouped))
            if sorted(record.value or b"" for record in found) != wanted
        ]

    def _in_a_group(self, group: str, topic: str, count: int) -> list[Any]:
        member = self._client.join(self._bootstrap, group, [topic])
        found: list[Any] = []
        while len(found) < count and (came := member.poll(count - len(found), WAIT_S)):
            found += came
        member.commit()
        member.leave()
        return found

    def close(self) -> None:
        self._client.close()
