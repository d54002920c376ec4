"""HDFS over HTTP (WebHDFS), for Connect's sink and for the state of stream applications."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

PORTS = {"webhdfs": 9870, "swebhdfs": 9871}
"""The schemes, over HTTP and HTTPS, and their ports in Hadoop's defaults."""


def web_hdfs(address: str, default_user: str | None = None) -> Any:
    """The file system, of fsspec, at `webhdfs://USER:PASSWORD@HOST:PORT/…`, of which only HOST is necessary.

    It asks for nothing yet. Raises `ModuleNotFoundError` without the library, and `ValueError` for a port that is no
    number.
    """
    from fsspec.implementations.webhdfs import WebHDFS

    parts = urlsplit(address)
    return WebHDFS(
        parts.hostname,
        parts.port or PORTS[parts.scheme],
        user=unquote(parts.username) if parts.username else default_user,
        password=unquote(parts.password) if parts.password else None,
        use_https=parts.scheme == "swebhdfs",
        skip_instance_cache=True,
        use_listings_cache=False,
    )
