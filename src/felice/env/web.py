"""Reads a document from a URL: http, https, or a file."""

from __future__ import annotations

from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

_TIMEOUT_S = 10.0
_MAX_BYTES = 1024 * 1024
SCHEMES = ("http", "https", "file")


class CannotRead(Exception):
    """The document was not read; the text has the address and the reason."""


def read_url(url: str) -> str:
    """Reads a text of at most 1 MiB. Blocks: call it on a thread. Raises `CannotRead`."""
    if urlsplit(url).scheme not in SCHEMES:
        raise CannotRead(f"{url} is not an address of http, https or a file")
    try:
        with urlopen(url, timeout=_TIMEOUT_S) as response:
            data: bytes = response.read(_MAX_BYTES + 1)
    except (URLError, OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise CannotRead(f"{url} cannot be read: {reason}") from None
    if len(data) > _MAX_BYTES:
        raise CannotRead(f"{url} is larger than {_MAX_BYTES} bytes")
    return data.decode(errors="replace")
