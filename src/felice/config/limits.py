"""Options that limit what one client can take of a broker. Kafka does not have them; their names begin with `felice.`.

Kafka serves each connection one request at a time, on several threads. Felice has one event loop for all connections,
so it limits what one connection may do on the loop before other connections have their turn.
"""

from __future__ import annotations

from felice.config.option import Kind, option
from felice.dataclass import dataclass


@dataclass(frozen=True, slots=False)
class LimitOptions:
    """Limits of one client."""

    felice_turn_max_requests: int = option(
        "felice.turn.max.requests",
        Kind.INT,
        100,
        "Requests of one connection that are handled before other connections have their turn.",
        minimum=1,
    )
    felice_turn_max_bytes: int = option(
        "felice.turn.max.bytes",
        Kind.INT,
        4 * 1024 * 1024,
        "Bytes of requests and of replies in memory that one connection may move before other connections have their "
        "turn.",
        minimum=1,
    )
    felice_turn_max_ms: int = option(
        "felice.turn.max.ms",
        Kind.INT,
        5,
        "How long the requests of one connection are handled before other connections have their turn; a request that "
        "has begun is finished.",
        minimum=1,
    )
    felice_connection_unsent_max_bytes: int = option(
        "felice.connection.unsent.max.bytes",
        Kind.INT,
        1024 * 1024,
        "Bytes of replies in memory that wait for one client to read them before its next requests wait, too. Records "
        "do not count: they are sent from their files.",
        minimum=1,
    )
    felice_unsent_max_bytes: int = option(
        "felice.unsent.max.bytes",
        Kind.LONG,
        64 * 1024 * 1024,
        "Bytes of replies in memory that wait for all clients together. Above it no request is handled, and after "
        "half a second the connections with the most unsent bytes are closed.",
        minimum=1,
    )
    felice_request_max_elements: int = option(
        "felice.request.max.elements",
        Kind.INT,
        50_000,
        "Elements of all arrays of one request together; a request with more closes its connection.",
        minimum=100,
    )
    felice_auto_create_topics_max_at_once: int = option(
        "felice.auto.create.topics.max.at.once",
        Kind.INT,
        100,
        "Topics that are being created because clients asked for their metadata. Further names are unknown topics, "
        "and are created when clients ask again.",
        minimum=1,
    )
    felice_batch_max_decompressed_bytes: int = option(
        "felice.batch.max.decompressed.bytes",
        Kind.INT,
        64 * 1024 * 1024,
        "The most bytes that the records of one produced batch may have once decompressed; a batch with more is "
        "MESSAGE_TOO_LARGE.",
        minimum=1024,
        maximum=256 * 1024 * 1024,
    )
    felice_large_batches_max_at_once: int = option(
        "felice.large.batches.max.at.once",
        Kind.INT,
        2,
        "Produced batches of more than 2 MiB that are decompressed at the same time, each on a thread.",
        minimum=1,
    )
