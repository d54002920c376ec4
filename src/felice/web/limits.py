"""The limits of an HTTP server, by name."""

from __future__ import annotations

from felice.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server grants to all its clients. Sizes are in bytes, times in seconds."""

    head_bytes: int = 16 * 1024
    """Request line and headers, and the line before a chunk of a body."""
    head_s: float = 2.0
    """From the first byte of a request, or from the beginning of its connection, to the end of its head."""
    body_bytes: int = 10 * 1024 * 1024
    body_s: float = 30.0
    """From the end of the head to the end of the body."""
    bodies_bytes: int = 64 * 1024 * 1024
    """The bodies of all requests together, until they are answered."""
    connections: int = 100
    """Each stream of HTTP/2 counts as one connection. One connection of HTTP/2 has at most this many streams."""
    half_requests: int = 32
    """The connections and streams among them whose request is not complete."""
    unread_answers: int = 32
    """The connections among them whose client does not read its answer as fast as it is sent."""
    idle_s: float = 60.0
    """From the end of an answer to the next request."""
    unread_s: float = 30.0
    """Without any progress of a client that reads an answer."""
    linger_s: float = 2.0
    """After an answer to a request whose body is still arriving: the rest is read and dropped this long. A client that
    still sends when its connection is closed may lose the answer."""
    stop_s: float = 10.0
    """For the requests that are being answered when the server stops."""
