"""One request to the registry: its attempts, the waits between them, and what the last answer means; pure.

Keeps true:  a request ends after `max.retries` + 1 attempts at each URL, each with a time limit.
How:         an attempt that got no answer, or one of `RETRIABLE`, is made again after a random wait that doubles its
             limit each time. After the last one the next URL has its turn. Another error ends the request at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from felice.client.schema_registry.error import SchemaRegistryError
from felice.client.schema_registry.settings import Bearer, Settings
from felice.client.schema_registry.steps import Call, Send, Steps, Wait
from felice.dataclass import dataclass

RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})

MAX_ANSWER_BYTES = 64 << 20
"""The longest answer that is read. Registries refuse schemas of more than 10 MiB."""

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json"
_CONTENT = "application/vnd.schemaregistry.v1+json"
_SHOWN_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    content: bytes

    @property
    def good(self) -> bool:
        """Whether the registry did what it was asked."""
        return 200 <= self.status <= 299


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt without an answer. `retriable` is true if the network is the cause."""

    error: Exception
    retriable: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A request by its path, without the URL of a server. `query` is encoded already."""

    method: str
    path: str
    query: str = ""
    body: dict[str, Any] | None = None


def encoded_query(members: dict[str, Any] | None) -> str:
    """A query: booleans as true and false, lists as repeated members."""
    pairs = []
    for name, value in (members or {}).items():
        for item in value if isinstance(value, list) else [value]:
            text = str(item).lower() if isinstance(item, bool) else str(item)
            pairs.append((name, text))
    return urlencode(pairs)


def wait_ms(base_ms: float, most_ms: float, retries: int, random: Callable[[], float]) -> float:
    """A random wait before retry `retries` (from 0), below a limit that doubles with each."""
    # A higher power is no float, and every limit is below this one.
    return random() * min(base_ms * 2.0 ** min(retries, 64), most_ms)


def exchange(settings: Settings, request: Request, random: Callable[[], float], agent: str) -> Steps[Any]:
    """Send a request, and return the JSON of the answer; None if it is empty.

    Raises `SchemaRegistryError` for an answer that reports an error or is not JSON, and the error of the last attempt
    if it got no answer.
    """
    body = None if request.body is None else json.dumps(request.body).encode()
    headers = _headers(body, agent)
    if settings.bearer is not None:
        headers |= yield from _bearer_headers(settings.bearer)
    query = f"?{request.query}" if request.query else ""
    outcome: Reply | Failed | None = None
    for base in settings.urls:
        send = Send(request.method, f"{base}/{request.path}{query}", headers, body)
        outcome = yield from _attempts(settings, send, random)
        if isinstance(outcome, Reply) and (outcome.good or outcome.status not in RETRIABLE):
            break
    if isinstance(outcome, Failed):
        raise outcome.error
    assert outcome is not None
    return _meaning(outcome)


def _headers(body: bytes | None, agent: str) -> dict[str, str]:
    if body is None:
        return {"Accept": _ACCEPT, "Confluent-Client-Version": agent}
    return {
        "Content-Length": str(len(body)),
        "Content-Type": _CONTENT,
        "Confluent-Accept-Unknown-Properties": "true",
        "Confluent-Client-Version": agent,
    }


def _bearer_headers(bearer: Bearer) -> Steps[dict[str, str]]:
    fields = bearer.fields
    if fields is None:
        assert bearer.function is not None
        fields = yield Call(bearer.function, bearer.function_config)
    for name in ("bearer.auth.token", "bearer.auth.logical.cluster"):
        if name not in fields:
            raise ValueError(f"the function of bearer.auth.custom.provider.function did not return {name}")
    headers = {"Authorization": f"Bearer {fields['bearer.auth.token']}"}
    headers["target-sr-cluster"] = fields["bearer.auth.logical.cluster"]
    if "bearer.auth.identity.pool.id" in fields:
        headers["Confluent-Identity-Pool-Id"] = fields["bearer.auth.identity.pool.id"]
    return headers


def _attempts(settings: Settings, send: Send, random: Callable[[], float]) -> Steps[Reply | Failed]:
    retries = 0
    while True:
        outcome: Reply | Failed = yield send
        again = outcome.retriable if isinstance(outcome, Failed) else outcome.status in RETRIABLE
        if not again or retries >= settings.max_retries:
            return outcome
        pause_ms = wait_ms(settings.retry_wait_ms, settings.retry_max_wait_ms, retries, random)
        yield Wait(pause_ms / 1000)
        retries += 1


def _meaning(reply: Reply) -> Any:
    if reply.good and (reply.status == 204 or not reply.content):
        return None
    try:
        answer = json.loads(reply.content)
    except (ValueError, RecursionError):
        raise _unknown(reply) from None
    if reply.good:
        return answer
    if not isinstance(answer, dict):
        raise _unknown(reply)
    raise SchemaRegistryError(reply.status, answer.get("error_code"), answer.get("message"))


def _unknown(reply: Reply) -> SchemaRegistryError:
    shown = repr(reply.content[:_SHOWN_BYTES])
    return SchemaRegistryError(reply.status, SchemaRegistryError.UNKNOWN, f"not a registry's answer: {shown}")
