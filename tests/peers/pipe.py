"""A foreign client in its own process: one JSON command a line in, one JSON answer a line out.

Commands (all carry `op` and `bootstrap`; bytes travel as base64):
  produce     topic, codec, records [{partition, key, value, headers, timestamp}]  -> offsets
  consume     topic, count, timeout_ms                                             -> records from the start
  join        member, group, topics       assignment  member                       -> [[topic, partition]]
  poll        member, count, timeout_ms   commit      member      leave  member
  admin       topic, group, phase (before | after)                                 -> facts by name
"""

import base64
import json
import selectors
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from peers.record import PeerRecord

ANSWER_TIMEOUT_S = 300


class PeerError(AssertionError):
    """The foreign client reported an error of its own."""


class PipePeer:
    def __init__(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._lock = threading.Lock()

    def call(self, op: str, **arguments: Any) -> Any:
        with self._lock:
            assert self._process.stdin
            self._process.stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
            answer = json.loads(self._read_line(op))
        if "error" in answer:
            raise PeerError(f"{op}: {answer['error']}")
        return answer["result"]

    def _read_line(self, op: str) -> bytes:
        out = self._process.stdout
        assert out
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            if not selector.select(ANSWER_TIMEOUT_S):
                self.close()
                raise PeerError(f"{op}: no answer in {ANSWER_TIMEOUT_S} s")
        line = out.readline()
        if not line:
            raise PeerError(f"{op}: the peer died with {self._process.wait()}")
        return line

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def record_to_json(record: PeerRecord) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
        "key": _to_base64(record.key),
        "value": _to_base64(record.value),
        "headers": [[name, _to_base64(value)] for name, value in record.headers],
    }


def record_from_json(given: dict[str, Any]) -> PeerRecord:
    return PeerRecord(
        key=_from_base64(given["key"]),
        value=_from_base64(given["value"]),
        headers=tuple((name, _from_base64(value)) for name, value in given["headers"]),
        timestamp_ms=given["timestamp"],
        partition=given["partition"],
        offset=given["offset"],
    )


def _to_base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _from_base64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
