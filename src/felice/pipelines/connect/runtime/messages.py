"""The messages between a worker and a running task: JSON objects after their length, and the proof that begins them.

Keeps true:  a message has at most `MAX_BYTES`, and one before the proof `MAX_PROOF_BYTES`: what is longer ends the
             connection before it is read.
             The key of a link never travels: the task proves with it that it is the one that the worker started.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.storage.json_records import json_text

MAX_BYTES = 1 << 24
MAX_PROOF_BYTES = 1 << 10
HEAD = struct.Struct(">I")
"""The length of a message, before it."""

Message = dict[str, Any]

# What the worker tells a task.
PAUSE, RESUME, STOP = "pause", "resume", "stop"
# What a task tells the worker, or asks it.
STATE, TOPIC, READ, WRITE, END = "state", "topic", "read", "write", "end"
PROGRESS, LINES = "progress", "lines"


@dataclass(frozen=True, slots=True)
class Ticket:
    """With it a task finds its worker. Whoever has it can be that task: it is passed on only inside Spark's job."""

    host: str
    port: int
    number: int
    key: bytes

    def __repr__(self) -> str:
        return f"Ticket({self.host}:{self.port}, number {self.number})"


def frame_of(message: Message) -> bytes:
    """A message with its length. Raises `ConnectError` if it is too long."""
    data = json_text(message).encode()
    if len(data) > MAX_BYTES:
        raise ConnectError(f"a message of {len(data)} bytes is longer than {MAX_BYTES}")
    return HEAD.pack(len(data)) + data


def length_of(head: bytes, limit: int = MAX_BYTES) -> int:
    """The length of the message that follows. Raises `ConnectError` if it is above the limit."""
    length: int = HEAD.unpack(head)[0]
    if length > limit:
        raise ConnectError(f"a message of {length} bytes is longer than {limit}")
    return length


def proof(key: bytes, challenge: str) -> str:
    """What only the owner of the key can answer to a challenge."""
    return hmac.new(key, challenge.encode(), hashlib.sha256).hexdigest()
