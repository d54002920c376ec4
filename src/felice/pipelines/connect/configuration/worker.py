"""The options of a worker that its tasks need, and the configurations of the clients that a task has.

Keeps true:  names and defaults are those of Kafka Connect 4.3.
             A client gets the worker's options with its prefix (`producer.`), over them the connector's
             (`producer.override.`). The worker's options without a prefix are for the worker's own clients, but for the
             address.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum

from felice.client.java_keys import convert_java_keys
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    at_least,
    one_of_any_case,
)
from felice.pipelines.connect.model.tasks import TaskId

_log = logging.getLogger("felice.connect.configuration")

BOOTSTRAP, GROUP = "bootstrap.servers", "group.id"
FLUSH_INTERVAL, FLUSH_TIMEOUT = "offset.flush.interval.ms", "offset.flush.timeout.ms"
TOPIC_CREATION, OFFSETS_TOPIC = "topic.creation.enable", "offset.storage.topic"
EXACTLY_ONCE = "exactly.once.source.support"

TASK_OPTIONS = ConfigDefinitions(
    [
        Definition(
            BOOTSTRAP,
            Type.STRING,
            "localhost:9092",
            "The addresses of brokers, with commas between them.",
            Importance.HIGH,
        ),
        Definition(
            FLUSH_INTERVAL,
            Type.LONG,
            60_000,
            "The time between two commits of the offsets of a task.",
            Importance.LOW,
        ),
        Definition(
            FLUSH_TIMEOUT,
            Type.LONG,
            5_000,
            "The limit of a wait for records to be written before offsets are committed.",
            Importance.LOW,
        ),
        Definition(
            TOPIC_CREATION,
            Type.BOOLEAN,
            True,
            "Whether sources may create topics as their topic.creation options say.",
            Importance.LOW,
        ),
        Definition(
            EXACTLY_ONCE,
            Type.STRING,
            "disabled",
            "Whether sources write in transactions.",
            Importance.HIGH,
            one_of_any_case("disabled", "preparing", "enabled"),
        ),
        Definition(GROUP, Type.STRING, None, "The name of the group of workers.", Importance.HIGH),
        Definition(OFFSETS_TOPIC, Type.STRING, None, "The topic of the offsets of sources.", Importance.HIGH),
    ]
)


POLL_RECORDS = "max.poll.records"
_POLL = ConfigDefinitions(
    [Definition(POLL_RECORDS, Type.INT, 500, "The most records of a poll.", Importance.MEDIUM, at_least(1))]
)


class Client(Enum):
    """The clients of a task: the prefix of the options, and a part of the client's id."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


def client_config(
    worker: Mapping[str, str],
    connector: Mapping[str, str],
    client: Client,
    task: TaskId,
    *,
    name: str | None = None,
) -> dict[str, object]:
    """The configuration of a client of a task. `name` replaces the client's kind in its id.

    Raises `KafkaException` (_INVALID_ARG) for options that cannot be followed. Those without effect are logged.
    """
    found = {
        "client.id": f"connector-{name or client.value}-{task}",
        **with_prefix(worker, client.value + "."),
        **with_prefix(connector, client.value + ".override."),
    }
    found.setdefault(BOOTSTRAP, worker[BOOTSTRAP])
    if client is Client.CONSUMER:
        found.pop(POLL_RECORDS, None)  # see `poll_records`
    settings, without_effect = convert_java_keys(found)
    if without_effect:
        _log.warning(
            "options of the %s of %s without effect: %s", client.value, task, ", ".join(without_effect)
        )
    return dict(settings)


def poll_records(worker: Mapping[str, str], connector: Mapping[str, str]) -> int:
    """The most records that a sink gets at once: an option of Java's consumer alone. Raises `ConfigError`."""
    prefixes = (f"{Client.CONSUMER.value}.", f"{Client.CONSUMER.value}.override.")
    given = {**with_prefix(worker, prefixes[0]), **with_prefix(connector, prefixes[1])}
    found: int = _POLL.parse(given)[POLL_RECORDS]
    return found


def with_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The options whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): text for name, text in options.items() if name.startswith(prefix)}
