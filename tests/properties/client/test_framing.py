"""However the network cuts the stream of responses, each request gets its own response."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from felice.client.net.connection import Connection
from felice.protocol.api import API
from felice.protocol.frames import encode_response
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse


class Wire(asyncio.Transport):
    """A transport that discards all data."""

    def write(self, data: Any) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


async def receive(sizes: list[int], cuts: list[int]) -> list[str | None]:
    connection = Connection("fake:1", "test")
    connection.connection_made(Wire())
    calls = [
        asyncio.ensure_future(connection.call_version(MetadataRequest(topics=[]), 8, 10.0)) for _ in sizes
    ]
    await asyncio.sleep(0)
    frames = [
        encode_response(
            API.METADATA.key, 8, number, MetadataResponse(cluster_id=chr(97 + number % 26) * size)
        )
        for number, size in enumerate(sizes)
    ]
    stream = memoryview(b"".join(frames))
    cut = 0
    while stream:
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(stream), cuts[cut % len(cuts)])
        buffer[:count] = stream[:count]
        connection.buffer_updated(count)
        stream, cut = stream[count:], cut + 1
    return [reply.cluster_id for reply in await asyncio.gather(*calls)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 300), st.integers(20_000, 32_000)), min_size=1, max_size=12),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=6),
)
def test_replies_survive_any_cutting(sizes: list[int], cuts: list[int]) -> None:
    expected = [chr(97 + number % 26) * size for number, size in enumerate(sizes)]
    assert asyncio.run(receive(sizes, cuts)) == expected
