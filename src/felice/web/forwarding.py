"""Forwards a request to another server of the same kind, mostly the leader, and returns its answer as it is.

Keeps true:  a request is forwarded once: the other server gets the header `X-Forward`, and one that cannot answer it
             itself refuses such a request instead of forwarding it again.
             Every forwarded request ends within its time limits.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import httpx2
from starlette.requests import Request
from starlette.responses import Response

from felice.dataclass import dataclass

FORWARD_HEADER = "x-forward"
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 40.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_PASSED_ON = ("content-type", "accept", "authorization")


class LeaderAway(Exception):
    """Nothing listens at the leader's address: it got nothing of the request."""


class ForwardingFailed(Exception):
    """The leader may have got the request, and its answer did not arrive."""


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
        self,
        url: str,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        more: Mapping[str, str] | None = None,
    ) -> ForwardedAnswer:
        """Sends a request to the leader at `url`. `path` is the raw path with its query.

        Of the client's `headers` a few are passed on; `more` are this server's own.

        Raises `LeaderAway`, or `ForwardingFailed` if the leader may have got the request.
        """
        passed = {name: headers[name] for name in _PASSED_ON if name in headers}
        client = self._opened()
        request = client.build_request(
            method, url + path, content=body, headers={**passed, **(more or {}), FORWARD_HEADER: "false"}
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
            raise ForwardingFailed(
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


async def passed_on(request: Request, forwarder: Forwarder, url: str) -> Response:
    """The answer of another server to a request of a client. Raises as `Forwarder.forward`."""
    path = request.scope["raw_path"].decode("latin-1")
    query = request.scope["query_string"].decode("latin-1")
    answer = await forwarder.forward(
        url,
        request.method,
        f"{path}?{query}" if query else path,
        await request.body(),
        request.headers,
    )
    return Response(answer.body, answer.status, headers=answer.headers)
