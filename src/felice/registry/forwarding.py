"""Forwards a write to the leader, and returns the leader's answer as it is.

Keeps true:  a request is forwarded once: the leader gets the header `X-Forward`, and a registry that is not the leader
             refuses such a request instead of forwarding it again.
             Every forwarded request ends within its time limits.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx2

from felice.dataclass import dataclass
from felice.registry.errors import forwarding_failed

FORWARD_HEADER = "x-forward"
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 40.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_PASSED_ON = ("content-type", "accept", "authorization")


class LeaderAway(Exception):
    """Nothing listens at the leader's address: it got nothing of the request."""


@dataclass(frozen=True, slots=True)
class ForwardedAnswer:
    """The leader's answer."""

    status: int
    body: bytes
    headers: dict[str, str]


class Forwarder:
    """A client of the leader. `tls` verifies a leader with HTTPS."""

    def __init__(self, tls: ssl.SSLContext | bool = True) -> None:
        self._tls = tls
        # Made when it is first needed: most registries are alone, and the trusted certificates take time to load.
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def forward(
        self, url: str, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> ForwardedAnswer:
        """Sends a request to the leader at `url`. `path` is the raw path with its query.

        Raises `LeaderAway`, or `RegistryError` (50003) if the leader may have got the request.
        """
        passed = {name: headers[name] for name in _PASSED_ON if name in headers}
        client = self._opened()
        request = client.build_request(
            method, url + path, content=body, headers={**passed, FORWARD_HEADER: "false"}
        )
        try:
            answer = await client.send(request, stream=True)
            try:
                data = await _limited(answer)
            finally:
                await answer.aclose()
        except httpx2.ConnectError as error:
            raise LeaderAway(str(error) or type(error).__name__) from error
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise forwarding_failed(
                f"Error while forwarding the request to the leader {url}: {reason}"
            ) from error
        kept = {
            name: answer.headers[name] for name in ("content-type", "retry-after") if name in answer.headers
        }
        return ForwardedAnswer(answer.status_code, data, kept)

    def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            limits = httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
            self._client = httpx2.AsyncClient(
                timeout=limits, verify=self._tls, trust_env=False, follow_redirects=False
            )
        return self._client


async def _limited(answer: httpx2.Response) -> bytes:
    data = bytearray()
    async for part in answer.aiter_bytes():
        data += part
        if len(data) > MAX_ANSWER_BYTES:
            raise httpx2.HTTPError(f"the answer has over {MAX_ANSWER_BYTES:,} bytes")
    return bytes(data)
