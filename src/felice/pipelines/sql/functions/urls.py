"""Functions of URLs: their parts, and values in their queries.

How:        a URL is divided by the rules of RFC 2396, as Java's `URI` does. Parts are decoded, but for the host.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote_plus, unquote, unquote_plus

from felice.dataclass import dataclass
from felice.pipelines.sql.functions.limits import within
from felice.pipelines.sql.functions.table import scalar

_PARTS = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_ILLEGAL = re.compile(r"[\x00-\x20\x7f-\xa0\"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")
_BRACKETS = re.compile(r"[\[\]]")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = rf"(?:(?:{_LABEL}\.)+(?=[A-Za-z]))?{_LABEL}\.?"
_HOST = rf"\[[0-9A-Fa-f:.%]+\]|[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}}|{_NAME}"
_SERVER = re.compile(rf"(?:[^@\[\]]*@)?({_HOST})(?::([0-9]*))?")
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MOST_PORT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class _Url:
    scheme: str | None
    host: str | None
    port: int | None
    path: str | None
    query: str | None
    fragment: str | None


@lru_cache(maxsize=16)
def _parsed(text: str) -> _Url:
    """The parts of a URL. Raises ValueError."""
    found = _PARTS.fullmatch(text)
    assert found is not None
    scheme, authority, path, query, fragment = found.groups()
    if _ILLEGAL.search(text) or "#" in (fragment or "") or not _SCHEME.fullmatch(scheme or "a"):
        raise _refused(text)
    if scheme is not None and authority is None and not path.startswith("/"):
        if not path and query is None:
            raise _refused(text)
        # What follows `mailto:` has no parts.
        return _Url(scheme, None, None, None, None, _decoded(fragment))
    is_empty = authority == path == "" and query is None and fragment is None
    if is_empty or _BRACKETS.search(path) or (scheme is None and path.startswith(":")):
        raise _refused(text)
    server = _SERVER.fullmatch(authority or "")
    if server is None and _BRACKETS.search(authority or ""):
        raise _refused(text)
    host, port = (None, None) if server is None else (server[1], server[2])
    return _Url(scheme, host, _port(port), unquote(path), _decoded(query), _decoded(fragment))


def _port(text: str | None) -> int | None:
    number = int(text) if text and len(text) < 11 else None
    return number if number is not None and number <= _MOST_PORT else None


def _decoded(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _refused(text: str) -> ValueError:
    return ValueError(f"expected a URL, and got {text!r:.80}")


@scalar(
    "URL_EXTRACT_PROTOCOL(url STRING) -> STRING",
    "What stands before the colon of a URL.",
    ("URL_EXTRACT_PROTOCOL('http://test.com/?q#f')", "'http'"),
)
def protocol(url: str) -> str | None:
    """Raises ValueError if the text is not a URL."""
    return _parsed(url).scheme


@scalar(
    "URL_EXTRACT_HOST(url STRING) -> STRING",
    "The host of a URL.",
    ("URL_EXTRACT_HOST('http://user@test.com:8080/path')", "'test.com'"),
)
def host(url: str) -> str | None:
    """Raises ValueError if the text is not a URL."""
    return _parsed(url).host


@scalar(
    "URL_EXTRACT_PORT(url STRING) -> INTEGER",
    "The port that a URL names.",
    ("URL_EXTRACT_PORT('http://localhost:8080/path')", "8080"),
)
def port(url: str) -> int | None:
    """Raises ValueError if the text is not a URL."""
    return _parsed(url).port


@scalar(
    "URL_EXTRACT_PATH(url STRING) -> STRING",
    "The path of a URL, decoded; it may be empty.",
    ("URL_EXTRACT_PATH('http://test.com/path%20to?q')", "'/path to'"),
)
def path(url: str) -> str | None:
    """Raises ValueError if the text is not a URL."""
    return _parsed(url).path


@scalar(
    "URL_EXTRACT_QUERY(url STRING) -> STRING",
    "What follows the question mark of a URL, decoded.",
    ("URL_EXTRACT_QUERY('http://test.com?a=foo%20bar&b=baz#f')", "'a=foo bar&b=baz'"),
)
def query(url: str) -> str | None:
    """Raises ValueError if the text is not a URL."""
    return _parsed(url).query


@scalar(
    "URL_EXTRACT_FRAGMENT(url STRING) -> STRING",
    "What follows the hash sign of a URL, decoded.",
    ("URL_EXTRACT_FRAGMENT('http://test.com#frag%20space')", "'frag space'"),
)
def fragment(url: str) -> str | None:
    """Raises ValueError if the text is not a URL."""
    return _parsed(url).fragment


@scalar(
    "URL_EXTRACT_PARAMETER(url STRING, name STRING) -> STRING",
    "The value of a parameter of a URL's query, decoded; empty for one without a value.",
    ("URL_EXTRACT_PARAMETER('http://test.com?a%20b=c%20d&e', 'a b')", "'c d'"),
)
def parameter(url: str, name: str) -> str | None:
    """The value of the first parameter with this name. Raises ValueError if the text is not a URL."""
    for one in (_parsed(url).query or "").split("&"):
        own, _, value = one.partition("=")
        if one and own == name:
            return value
    return None


@scalar(
    "URL_ENCODE_PARAM(text STRING) -> STRING",
    "The text as a parameter of a URL's query.",
    ("URL_ENCODE_PARAM('?foo $bar')", "'%3Ffoo+%24bar'"),
)
def encoded(text: str) -> str:
    """A space becomes a plus sign."""
    found = quote_plus(text, safe="*").replace("~", "%7E")
    within(len(found))
    return found


@scalar(
    "URL_DECODE_PARAM(text STRING) -> STRING",
    "The text of a parameter of a URL's query.",
    ("URL_DECODE_PARAM('%3Ffoo+%24bar')", "'?foo $bar'"),
)
def decoded(text: str) -> str:
    """Raises ValueError for a percent sign without two digits."""
    if _PERCENT.search(text):
        raise ValueError(f"expected two hexadecimal digits after each percent sign, and got {text!r:.80}")
    return unquote_plus(text)
