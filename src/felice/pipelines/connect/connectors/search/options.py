"""The options of the sink, and the rules between them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    at_least,
    between,
    invalid,
    one_of_any_case,
)

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _urls(name: str, value: Any) -> None:
    if not value:
        raise invalid(name, value, "expected the address of a server, as http://host:9200")
    for one in value:
        if not re.match(r"https?://[^/\s]+", one):
            raise invalid(name, one, "expected a URL that begins with http:// or https://")


OPTIONS = ConfigDefinitions(
    [
        Definition(
            "connection.url",
            Type.LIST,
            documentation="Addresses of servers of one cluster. Another one is asked when one does not answer.",
            importance=_HIGH,
            validator=_urls,
        ),
        Definition("connection.username", Type.STRING, None, "The user.", _MEDIUM),
        Definition("connection.password", Type.PASSWORD, None, "The user's password.", _MEDIUM),
        Definition("connection.compression", Type.BOOLEAN, False, "Whether requests are compressed.", _LOW),
        Definition(
            "connection.timeout.ms", Type.INT, 1000, "The limit of a connection's start.", _LOW, at_least(1)
        ),
        Definition("read.timeout.ms", Type.INT, 3000, "The limit of an answer.", _LOW, at_least(1)),
        Definition(
            "batch.size", Type.INT, 2000, "The most records of one request.", _MEDIUM, between(1, 1_000_000)
        ),
        Definition(
            "bulk.size.bytes",
            Type.LONG,
            5_242_880,
            "The most bytes of one request; -1 is no limit.",
            _LOW,
            at_least(-1),
        ),
        Definition(
            "max.in.flight.requests",
            Type.INT,
            5,
            "The most requests at a time. Requests whose order matters go one after another.",
            _MEDIUM,
            between(1, 1000),
        ),
        Definition(
            "max.buffered.records",
            Type.INT,
            20_000,
            "The most records that wait for a request. Then the task takes no more.",
            _LOW,
            at_least(1),
        ),
        Definition(
            "linger.ms",
            Type.LONG,
            1,
            "How long a record waits for others to be sent with.",
            _LOW,
            at_least(0),
        ),
        Definition(
            "flush.timeout.ms",
            Type.LONG,
            180_000,
            "How long a commit of offsets waits for its records.",
            _LOW,
            at_least(1),
        ),
        Definition(
            "flush.synchronously",
            Type.BOOLEAN,
            False,
            "Whether the task takes the next records only when the last ones are written.",
            _LOW,
        ),
        Definition("max.retries", Type.INT, 5, "How often a request is tried again.", _MEDIUM, at_least(0)),
        Definition(
            "retry.backoff.ms",
            Type.LONG,
            100,
            "The wait before the first of these. It doubles each time.",
            _LOW,
            at_least(0),
        ),
        Definition(
            "key.ignore",
            Type.BOOLEAN,
            False,
            "Whether a document's id is topic+partition+offset instead of the record's key.",
            _HIGH,
        ),
        Definition("topic.key.ignore", Type.LIST, [], "Topics for which key.ignore is true.", _LOW),
        Definition(
            "schema.ignore",
            Type.BOOLEAN,
            False,
            "Whether the server guesses the types of members, instead of getting them from the records' schemas.",
            _LOW,
        ),
        Definition("topic.schema.ignore", Type.LIST, [], "Topics for which schema.ignore is true.", _LOW),
        Definition(
            "compact.map.entries",
            Type.BOOLEAN,
            True,
            "Whether a map with texts as keys is an object, and not a list of keys and values.",
            _LOW,
        ),
        Definition(
            "drop.invalid.message",
            Type.BOOLEAN,
            False,
            "Whether a record that cannot be a document is left out.",
            _LOW,
        ),
        Definition(
            "behavior.on.null.values",
            Type.STRING,
            "FAIL",
            "fail, ignore, or delete: a record without a value deletes the document of its key.",
            _LOW,
            one_of_any_case("IGNORE", "DELETE", "FAIL"),
        ),
        Definition(
            "behavior.on.malformed.documents",
            Type.STRING,
            "FAIL",
            "What follows when the server refuses a document: fail the task, or make it a dead letter; "
            "warn, ignore: it is left out.",
            _LOW,
            one_of_any_case("IGNORE", "WARN", "FAIL"),
        ),
        Definition(
            "write.method",
            Type.STRING,
            "INSERT",
            "insert: a document replaces the one with its id; upsert: its members are added to it.",
            _LOW,
            one_of_any_case("INSERT", "UPSERT"),
        ),
        Definition(
            "use.autogenerated.ids",
            Type.BOOLEAN,
            False,
            "Whether the server chooses ids: then documents may be there twice after a failure.",
            _LOW,
        ),
        Definition(
            "external.version.header",
            Type.STRING,
            "",
            "The header with a document's version. Without it, it is the record's offset.",
            _LOW,
        ),
        Definition(
            "data.stream.type",
            Type.STRING,
            "NONE",
            "logs or metrics: records go to a data stream.",
            _LOW,
            one_of_any_case("LOGS", "METRICS", "NONE"),
        ),
        Definition("data.stream.dataset", Type.STRING, "", "The second part of a data stream's name.", _LOW),
        Definition(
            "data.stream.namespace",
            Type.STRING,
            "${topic}",
            "The third part of it, with ${topic} for the record's topic.",
            _LOW,
        ),
        Definition(
            "data.stream.timestamp.field",
            Type.LIST,
            [],
            "Members of values of which the first that is there is the time of a document in a data stream.",
            _LOW,
        ),
    ]
)
LACKING = (
    "connection.api.key",
    "max.connection.idle.time.ms",
    "log.sensitive.data",
    "external.resource.usage",
    "topic.to.external.resource.mapping",
    "proxy.host",
    "proxy.port",
    "proxy.username",
    "proxy.password",
    "elastic.security.protocol",
    "elastic.https.ssl.keystore.location",
    "elastic.https.ssl.truststore.location",
    "kerberos.user.principal",
    "kerberos.keytab.path",
)
"""Options of Confluent's sink that this one does not have."""


def conflicts(config: Mapping[str, str]) -> list[tuple[str, str]]:
    """Options that do not fit together, with the error."""
    found = []
    for name, other in (
        ("connection.username", "connection.password"),
        ("connection.password", "connection.username"),
    ):
        if config.get(name) and not config.get(other):
            found.append((other, f"{name} needs {other}"))
    is_stream = config.get("data.stream.type", "NONE").upper() != "NONE"
    deletes = config.get("behavior.on.null.values", "").upper() == "DELETE"
    upserts = config.get("write.method", "").upper() == "UPSERT"
    if is_stream != bool(config.get("data.stream.dataset")):
        found.append(("data.stream.dataset", "data.stream.type and data.stream.dataset need each other"))
    if is_stream and deletes:
        found.append(("behavior.on.null.values", "a document of a data stream cannot be deleted"))
    if is_stream and upserts:
        found.append(("write.method", "a document of a data stream cannot be changed by upsert"))
    if config.get("data.stream.timestamp.field") and not is_stream:
        found.append(("data.stream.timestamp.field", "data.stream.timestamp.field needs data.stream.type"))
    if config.get("use.autogenerated.ids", "").lower() == "true" and (deletes or upserts):
        name = "behavior.on.null.values" if deletes else "write.method"
        found.append((name, "use.autogenerated.ids leaves no id by which a document is changed or deleted"))
    return found
