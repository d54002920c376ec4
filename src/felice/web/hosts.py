"""Refuses requests whose `Host` is unknown, on servers that anyone on the machine may use without a log in.

A page of the Internet whose name an attacker points to 127.0.0.1 (DNS rebinding) could otherwise use the server through
the browser of a user on this machine. The browser sends the page's name as `Host`.
"""

from __future__ import annotations

from http import HTTPStatus
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from felice.web.errors import Errors

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class KnownHosts:
    """The middleware. The server states the known names in the application's `state.hosts`; None means any."""

    def __init__(self, app: ASGIApp, errors: Errors) -> None:
        self._app = app
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request. Raises `HttpError` (421) for an unknown host."""
        known = getattr(scope["app"].state, "hosts", None) if scope["type"] == "http" else None
        if known is not None and (host := host_of(Headers(scope=scope).get("host", ""))) not in known:
            raise self._errors.of_status(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this server is not {host or 'a host without a name'}",
                f"it answers requests to {', '.join(sorted(known))}",
            )
        await self._app(scope, receive, send)


def known_hosts(host: str, *, has_login: bool) -> frozenset[str] | None:
    """The hosts that a server at this address answers; None for any."""
    return LOOPBACK | {host.lower()} if is_loopback(host) and not has_login else None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens at this address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The name or address in a `Host` header, without its port, in lower case."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].rstrip(".").lower()
