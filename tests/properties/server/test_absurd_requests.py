"""Well-formed requests that make no sense: each gets an answer that can be read, or a closed connection.

No handler may fail over what a client sends: that would be an "a request failed" in the log.
The samples are made from the declarations, with values that handlers stumble over: nothing, minus
one, the largest and the smallest number, names that exist, names that cannot.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
import uuid
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from felice.config.authorizer_options import AUTHORIZERS
from felice.controller.topic_names import CONSUMER_OFFSETS
from felice.controller.topic_plans import NewTopic
from felice.env import Environment
from felice.protocol.api import API, Api
from felice.protocol.frames import decode_response, encode_request
from felice.protocol.schema import FieldType, schema_of
from felice.records.builder import BatchBuilder
from felice.security.acl import (
    Acl,
    AclBinding,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from felice.server.broker import Broker
from felice.server.handlers.table import OFFERED
from felice.server.net.session import Session
from felice.server.process.embedded import embedded_config

SAMPLES_A_VERSION = 25
# The keys of Produce, Fetch, JoinGroup and SyncGroup, which may be answered much later.
MAY_WAIT = (0, 1, 11, 14)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


class Absurd:
    """Messages of one version, from one seed."""

    def __init__(self, source: random.Random, version: int, topic_id: uuid.UUID, batch: bytes) -> None:
        self.source = source
        self.version = version
        self.topic_id = topic_id
        self.batch = batch

    def message(self, cls: type[Any]) -> Any:
        fields = [field for field in schema_of(cls).fields if self.version in field.versions]
        return cls(**{field.name: self._value(field) for field in fields if not self._left_out(field)})

    def _left_out(self, field: Any) -> bool:
        return field.tag is not None and self.source.random() < 0.5

    def _value(self, field: Any) -> Any:
        if self.version in field.nullable and self.source.random() < 0.2:
            return None
        return self._of(field.type)

    def _of(self, kind: FieldType) -> Any:
        if kind.element is not None:
            return [self._of(kind.element) for _ in range(self.source.choice((0, 1, 1, 2, 3)))]
        if kind.struct is not None:
            return self.message(kind.struct)
        return self.source.choice(self._choices(kind.kind))

    def _choices(self, kind: str) -> list[Any]:
        if kind in BITS:
            top = 2 ** (BITS[kind] - 1)
            return [-top, -3, -2, -1, 0, 0, 1, 1, 2, 4, top - 1]
        return {
            "bool": [True, False],
            "uint16": [0, 65535],
            "float64": [0.0, -1.0],
            "string": ["", "a", "a", "a", "b", "..", "0", "retention.ms", "x" * 300, "é/ñ"],
            "bytes": [b"", b"\0", b"\0\1\0\0\0\0", bytes(50)],
            "records": [b"", bytes(10), bytes(70), self.batch, self.batch[:-1], self.batch * 2],
            "uuid": [uuid.UUID(int=0), self.topic_id, uuid.UUID(int=9)],
        }[kind]


class Wireless(asyncio.Transport):
    """A transport without a wire: keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 5) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


async def _ask(broker: Broker, frame: bytes, patience: int) -> bytes | None:
    """The reply, b"" if none came soon, None if the connection was closed."""
    session, transport = Session(broker.listeners[0]), Wireless()
    session.connection_made(transport)
    view = memoryview(frame)
    while view and not transport.aborted:
        buffer = session.get_buffer(-1)
        count = min(len(buffer), len(view))
        buffer[:count] = view[:count]
        session.buffer_updated(count)
        view = view[count:]
    for _ in range(patience):
        if transport.written or transport.aborted or session.is_idle:
            break
        await asyncio.sleep(0.001)
    session.connection_lost(None)
    return None if transport.aborted else bytes(transport.written)


def _batch(now_ms: int) -> bytes:
    builder = BatchBuilder()
    builder.append(now_ms, b"k", b"v")
    return bytes(builder.build())


def _requests(api: Api, topic_id: uuid.UUID, batch: bytes) -> Iterator[tuple[int, Any]]:
    for version in api.accepted:
        source = random.Random(f"{api.name} {version}")
        for _ in range(SAMPLES_A_VERSION):
            yield version, Absurd(source, version, topic_id, batch).message(api.request)


class Rights(Enum):
    """What the client may do: everything without an authorizer, nothing, or all operations on what is named `a`."""

    NO_AUTHORIZER = "no authorizer"
    NONE = "no rights"
    SOME = "some rights"

    @property
    def settings(self) -> dict[str, str]:
        return {} if self is Rights.NO_AUTHORIZER else {"authorizer.class.name": AUTHORIZERS[0]}

    @property
    def acls(self) -> list[AclBinding]:
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        rule = Acl("User:*", "*", Operation.ALL, Permission.ALLOW)
        return [AclBinding(ResourcePattern(kind, "a"), rule) for kind in kinds] if self is Rights.SOME else []


@pytest.mark.parametrize("rights", Rights, ids=lambda rights: rights.value)
@pytest.mark.parametrize("key", sorted(OFFERED), ids=lambda key: API.by_key[key].name)
def test_an_absurd_request_is_answered_or_its_connection_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: int, rights: Rights
) -> None:
    api = API.by_key[key]

    async def scenario() -> SimpleNamespace:
        seen = SimpleNamespace(answered=0, closed=0, silent=0)
        settings = {"offsets.topic.num.partitions": "2", "max.connections": "100", **rights.settings}
        broker = Broker(embedded_config(tmp_path / "data", 0, settings), Environment.system())
        await broker.start()
        planned = await broker.services.changes.cluster.create_topic(NewTopic("a", 2))
        assert await broker.services.topics.auto.create(CONSUMER_OFFSETS) == 0
        await broker.services.changes.acls.create(rights.acls)
        batch = _batch(broker.env.clock.now_ms())
        for version, request in _requests(api, planned.topic_id, batch):
            # On a slow machine answers come late; it suffices that most come.
            is_behind = key not in MAY_WAIT and seen.answered <= seen.closed + seen.silent
            frame = encode_request(key, version, 7, "absurd", request)
            reply = await _ask(broker, frame, patience=2000 if is_behind else 20)
            if reply is None:
                seen.closed += 1
            elif not reply:
                seen.silent += 1
            else:
                seen.answered += 1
                assert struct.unpack(">i", reply[:4]) == (len(reply) - 4,)
                decode_response(api, version, reply[4:])
        await broker.stop()
        return seen

    with caplog.at_level(logging.WARNING, "felice"):
        seen = asyncio.run(scenario())
    failed = [record for record in caplog.records if record.exc_info]
    assert not failed, logging.Formatter().format(failed[0])
    assert seen.answered > seen.closed + seen.silent or key in MAY_WAIT
