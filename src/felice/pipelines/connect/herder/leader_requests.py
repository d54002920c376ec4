"""What a worker asks of the leader: to write the tasks of its connector, and to fence older tasks.

Keeps true:  a request is tried again while the group divides its work, or nothing listens at the leader's address.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote

from felice.pipelines.connect.herder.errors import NotHere
from felice.pipelines.connect.herder.herder import Herder
from felice.pipelines.connect.herder.membership import WorkerGroup
from felice.pipelines.connect.herder.signatures import signed
from felice.pipelines.connect.model.errors import ConnectError
from felice.web.forwarding import ForwardedAnswer, Forwarder, ForwardingFailed, LeaderAway

TIMEOUT_S = 60.0
_RETRY_S = 0.5
_AGAIN = (409, 503)
"""The leader is not ready: its group divides, or it has not read its topic."""


class LeaderPublisher:
    """The publisher of a distributed worker (`Publisher`)."""

    def __init__(self, group: WorkerGroup, forwarder: Forwarder, herder: Callable[[], Herder]) -> None:
        self._group = group
        self._forwarder = forwarder
        self._herder = herder

    async def publish(self, name: str, tasks: Sequence[Mapping[str, str]]) -> None:
        """As `Publisher.publish`."""
        body = json.dumps([dict(one) for one in tasks]).encode()
        await self._ask(
            lambda: self._herder().publish(name, tasks),
            "POST",
            f"/connectors/{quote(name, safe='')}/tasks",
            body,
        )

    async def fence(self, name: str) -> None:
        """As `Publisher.fence`."""
        await self._ask(
            lambda: self._herder().fence(name), "PUT", f"/connectors/{quote(name, safe='')}/fence", b""
        )

    async def _ask(self, here: Callable[[], Awaitable[None]], method: str, path: str, body: bytes) -> None:
        """Does it here if this worker leads, or asks the leader. Raises `ConnectError`."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + TIMEOUT_S
        while True:
            why = "the group has no leader"
            try:
                await here()
            except NotHere as error:
                if error.url is not None:
                    why = await self._ask_other(error.url, method, path, body) or ""
            else:
                return
            if not why:
                return
            if loop.time() > give_up_at:
                raise ConnectError(f"the leader of the workers could not be asked in {TIMEOUT_S:g} s: {why}")
            await self._group.wait_changed(_RETRY_S)
            await asyncio.sleep(_RETRY_S)

    async def _ask_other(self, url: str, method: str, path: str, body: bytes) -> str | None:
        """Asks the leader. Returns why it must be asked again, or None if it is done. Raises `ConnectError`."""
        key = self._herder().session_key
        if key is None:
            return "the key of workers' requests has not been read"
        headers = {"content-type": "application/json"}
        try:
            answer = await self._forwarder.forward(
                url.rstrip("/"), method, path, body, headers, signed(key, method, path, body)
            )
        except (LeaderAway, ForwardingFailed) as error:
            return str(error)
        if answer.status < 300:
            return None
        why = _message(answer)
        if answer.status in _AGAIN:
            return why
        raise ConnectError(f"the leader {url} answered {answer.status}: {why}")


def _message(answer: ForwardedAnswer) -> str:
    try:
        return str(json.loads(answer.body)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.body[:200].decode(errors="replace")
