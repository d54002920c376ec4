"""The race: messages into one queue, topic or stream and out again, on Felice, Kafka, Redis, JetStream and RabbitMQ.

Felice and Kafka get their load from librdkafka (acks=1, six partitions), the others from the official Go clients. No
system compresses; every message is acknowledged.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable
from typing import Any

from bench import programs, rdkafka
from bench.workloads import PARTITIONS, Figures, scratch_topic

_TIMEOUT_S = 900


def race(messages: int, message_bytes: int) -> Callable[[Any], Figures]:
    """Messages of this size in, then the same messages out."""

    def run(system: Any) -> Figures:
        found = (_through_go if system.name in ("redis", "nats", "rabbitmq") else _through_librdkafka)(
            system, messages, message_bytes
        )
        return {f"{way} messages/s": rate for way, rate in found.items()}

    return run


def _through_librdkafka(system: Any, messages: int, message_bytes: int) -> dict[str, float]:
    with scratch_topic(system.bootstrap) as topic:
        sent = rdkafka.produce(system.bootstrap, topic, messages, message_bytes, "acks=1")
        received = rdkafka.consume(system.bootstrap, topic, messages, PARTITIONS)
    return {"in": rdkafka.rate(sent), "out": rdkafka.rate(received)}


def _through_go(system: Any, messages: int, message_bytes: int) -> dict[str, float]:
    name = f"race-{uuid.uuid4().hex[:8]}"
    return {way: _go(system, way, name, messages, message_bytes) for way in ("in", "out")}


def _go(system: Any, way: str, name: str, messages: int, message_bytes: int) -> float:
    command = [programs.race_client(), system.name, way, system.bootstrap, name]
    command += [str(messages), str(message_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"the race of {system.name} failed: {done.stderr[-500:]}")
    return messages / float(json.loads(done.stdout)["seconds"])
