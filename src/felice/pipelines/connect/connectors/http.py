"""A sink that sends records to an HTTP server, with the options of Confluent's HTTP sink.

Keeps true:  `put` returns when the server has taken every record, in their order: at least once.
             A server that is away or busy (no answer, 429, 5xx) gets the same request again, after waits that double.
             A request that it refuses (another status) is reported record by record.
Differs:     there is no reporter: what was sent and refused is in the dead-letter topic, or fails the task.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    at_least,
    invalid,
    one_of,
    one_of_any_case,
)
from felice.pipelines.connect.connector.base import OffsetlessSink, SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.http_attempts import BUSY, beginning, wait_s
from felice.pipelines.connect.converters.json import JsonConverter
from felice.pipelines.connect.converters.plain import printed
from felice.pipelines.connect.model.errors import ConnectError, DataError, RetriableError
from felice.pipelines.connect.model.record import SinkRecord

_log = logging.getLogger("felice.connect.http")

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _url(name: str, value: Any) -> None:
    if not re.match(r"https?://[^/\s]+", value or ""):
        raise invalid(name, value, "expected a URL that begins with http:// or https://")


def _headers(name: str, value: Any) -> None:
    for one in filter(None, (value or "").split("|")):
        if not re.fullmatch(r"[!#$%&'*+.^_`~0-9A-Za-z-]+:[^\r\n]*", one.strip()):
            raise invalid(name, value, "expected name:value|name:value")


class HttpSink(OffsetlessSink):
    """Sends records to an HTTP server."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.confluent.connect.http.HttpSinkConnector"
    definitions: ClassVar = ConfigDefinitions(
        [
            Definition(
                "http.api.url",
                Type.STRING,
                documentation="The address. ${topic} and ${key} are those of a record.",
                importance=_HIGH,
                validator=_url,
            ),
            Definition(
                "request.method",
                Type.STRING,
                "POST",
                "POST, PUT, PATCH or DELETE.",
                _HIGH,
                one_of_any_case("POST", "PUT", "PATCH", "DELETE"),
            ),
            Definition(
                "headers",
                Type.STRING,
                "",
                "Headers of each request, as name:value|name:value.",
                _HIGH,
                _headers,
            ),
            Definition(
                "request.body.format",
                Type.STRING,
                "string",
                "string: the text of the value; json: its JSON.",
                _LOW,
                one_of("string", "json"),
            ),
            Definition("batch.max.size", Type.INT, 1, "The most records of one request.", _HIGH, at_least(1)),
            Definition(
                "batch.prefix", Type.STRING, "", "What stands before the records of a request.", _HIGH
            ),
            Definition("batch.suffix", Type.STRING, "", "What stands after them.", _HIGH),
            Definition("batch.separator", Type.STRING, ",", "What stands between them.", _HIGH),
            Definition(
                "batch.json.as.array", Type.BOOLEAN, False, "Whether the records are an array of JSON.", _HIGH
            ),
            Definition(
                "auth.type", Type.STRING, "NONE", "NONE or BASIC.", _HIGH, one_of_any_case("NONE", "BASIC")
            ),
            Definition("connection.user", Type.STRING, None, "With BASIC: the user.", _MEDIUM),
            Definition(
                "connection.password", Type.PASSWORD, None, "With BASIC: the user's password.", _MEDIUM
            ),
            Definition(
                "http.connect.timeout.ms",
                Type.INT,
                30_000,
                "The limit of a connection's start.",
                _LOW,
                at_least(1),
            ),
            Definition(
                "http.request.timeout.ms", Type.INT, 30_000, "The limit of an answer.", _LOW, at_least(1)
            ),
            Definition(
                "max.retries", Type.INT, 10, "How often a request is tried again.", _MEDIUM, at_least(0)
            ),
            Definition(
                "retry.backoff.ms",
                Type.INT,
                3000,
                "The wait before the first of these.",
                _MEDIUM,
                at_least(1),
            ),
            Definition(
                "behavior.on.null.values",
                Type.STRING,
                "ignore",
                "ignore, fail, or delete: DELETE at the address.",
                _LOW,
                one_of("ignore", "fail", "delete"),
            ),
            Definition(
                "behavior.on.error",
                Type.STRING,
                "fail",
                "fail: a refused record fails the task, or is a dead letter; ignore, log: it is left out.",
                _LOW,
                one_of("fail", "ignore", "log"),
            ),
        ]
    )
    lacking: ClassVar = (
        "auth.profile.id",
        "oauth2.token.url",
        "oauth2.client.id",
        "regex.patterns",
        "regex.replacements",
        "reporter.bootstrap.servers",
        "reporter.result.topic.name",
        "reporter.error.topic.name",
        "http.proxy.host",
        "https.ssl.truststore.location",
        "https.ssl.keystore.location",
        "retry.on.status.codes",
        "report.errors.as",
    )

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        """The task."""
        return HttpSinkTask


class HttpSinkTask(SinkTask):
    """Sends the requests."""

    def start(self, config: Mapping[str, str]) -> None:
        """Prepares. Raises `ConnectError` if the HTTP library is not installed."""
        try:
            import httpx2
        except ModuleNotFoundError as error:
            raise ConnectError(f"{error.name} is not installed: pip install 'felice[connect]'") from error
        options = self._options = HttpSink.definitions.parse(dict(config))
        self._stopped = threading.Event()
        given = [one.partition(":") for one in options["headers"].split("|") if one.strip()]
        headers = {name.strip(): value.strip() for name, _, value in given}
        is_json = options["request.body.format"] == "json" or options["batch.json.as.array"]
        names = {name.lower() for name in headers}
        if "content-type" not in names:
            headers["Content-Type"] = "application/json" if is_json else "text/plain; charset=utf-8"
        if "accept-encoding" not in names:
            headers["Accept-Encoding"] = "identity"  # a short text is expected
        auth = None
        if options["auth.type"].upper() == "BASIC":
            password = options["connection.password"]
            auth = httpx2.BasicAuth(
                options["connection.user"] or "", "" if password is None else password.value
            )
        self._client = httpx2.Client(
            headers=headers,
            auth=auth,
            timeout=httpx2.Timeout(
                options["http.request.timeout.ms"] / 1000, connect=options["http.connect.timeout.ms"] / 1000
            ),
            follow_redirects=False,
            trust_env=False,
        )
        plain = {"schemas.enable": "false", "decimal.format": "NUMERIC"}
        self._json = JsonConverter(JsonConverter.definitions.parse(plain), is_key=False)
        self._failures = 0
        self._next: dict[TopicPartition, int] = {}

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets where this task was in these partitions: another task may have sent their records since then."""
        for one in partitions:
            self._next.pop(one, None)

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Sends the records. Raises `RetriableError` while the server may take them later, and `ConnectError`."""
        # Of a `put` that is tried again, the first requests may have been taken.
        new = [one for one in records if one.offset >= self._next.get(one.place, 0)]
        for url, method, batch in self._batches(new):
            self._send(url, method, batch)
            self._failures = 0
            for one in batch:
                self._next[one.place] = one.offset + 1

    def stop(self) -> None:
        """Closes the connections."""
        if hasattr(self, "_client"):
            self._client.close()

    def _batches(self, records: Sequence[SinkRecord]) -> Iterator[tuple[str, str, list[SinkRecord]]]:
        """The requests: their address, method and records, in order."""
        waiting: list[SinkRecord] = []
        place = ("", "")
        for record in records:
            method = self._options["request.method"].upper()
            if record.value is None:
                if self._options["behavior.on.null.values"] == "ignore":
                    continue
                if self._options["behavior.on.null.values"] == "fail":
                    self.context.report(
                        record, DataError("a record has no value, and behavior.on.null.values is fail")
                    )
                    continue
                method = "DELETE"
            at = (self._address(record), method)
            if waiting and (at != place or len(waiting) >= self._options["batch.max.size"]):
                yield *place, waiting
                waiting = []
            place = at
            waiting.append(record)
        if waiting:
            yield *place, waiting

    def _address(self, record: SinkRecord) -> str:
        from urllib.parse import quote

        url: str = self._options["http.api.url"]
        if "${" not in url:
            return url
        key = "" if record.key is None else printed(record.key)
        return url.replace("${topic}", quote(record.topic, safe="")).replace("${key}", quote(key, safe=""))

    def _send(self, url: str, method: str, batch: list[SinkRecord]) -> None:
        import httpx2

        body = None if batch[0].value is None else self._body(batch)
        try:
            with self._client.stream(method, url, content=body) as answer:
                said = beginning(answer)
        except httpx2.HTTPError as error:
            self._again(f"the server does not answer: {error or type(error).__name__}", None)
            return
        if answer.status_code < 300:
            return
        why = f"the server answers {answer.status_code} {answer.reason_phrase}: {said}"
        if answer.status_code in BUSY or answer.status_code >= 500:
            self._again(why, answer.headers.get("retry-after"))
        elif len(batch) > 1:
            for one in batch:
                self._send(url, method, [one])
        else:
            self._refuse(batch[0], why)

    def _body(self, batch: Sequence[SinkRecord]) -> bytes:
        options = self._options
        texts = [self._text(record) for record in batch]
        if options["batch.json.as.array"]:
            return f"[{','.join(texts)}]".encode()
        return f"{options['batch.prefix']}{options['batch.separator'].join(texts)}{options['batch.suffix']}".encode()

    def _text(self, record: SinkRecord) -> str:
        if self._options["request.body.format"] == "json" or self._options["batch.json.as.array"]:
            data = self._json.to_bytes(record.topic, record.value_schema, record.value)
            return "null" if data is None else data.decode()
        value = record.value
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        return json.dumps(value) if isinstance(value, (dict, list)) else printed(value)

    def _again(self, why: str, retry_after: str | None) -> None:
        """Raises `RetriableError`, with a wait, or `ConnectError` after the last attempt."""
        if self._failures >= self._options["max.retries"]:
            raise ConnectError(f"{why}; it was tried {self._failures + 1} times")
        self.context.set_timeout(
            int(wait_s(self._options["retry.backoff.ms"], self._failures, retry_after) * 1000)
        )
        self._failures += 1
        _log.warning("%s; it is tried again", why)
        raise RetriableError(why)

    def _refuse(self, record: SinkRecord, why: str) -> None:
        behavior = self._options["behavior.on.error"]
        if behavior == "fail":
            self.context.report(record, ConnectError(why))
        elif behavior == "log":
            _log.error(
                "record %s-%d@%d is left out: %s", record.topic, record.partition or 0, record.offset, why
            )
