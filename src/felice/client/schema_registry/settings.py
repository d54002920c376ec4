"""The configuration of a registry's client, with confluent_kafka's names; pure.

Keeps true:  a property that has no effect is refused. Credentials never stand in an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from felice.client.schema_registry.caches import CAPACITY
from felice.dataclass import dataclass

REQUEST_TIMEOUT_S = 30.0
"""How long one attempt of a request may take, unless `timeout` says otherwise."""

MAX_RETRIES = 3
RETRY_WAIT_MS = 1000
RETRY_MAX_WAIT_MS = 20_000

_OAUTH = ("OAUTHBEARER", "OAUTHBEARER_AZURE_IMDS")


@dataclass(frozen=True, slots=True)
class Tls:
    """How the registry's certificate is verified, and this client's own certificate.

    `ca` is a file or directory of certificates, None for those that the system trusts, and False for no verification.
    """

    ca: str | bool | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None


@dataclass(frozen=True, slots=True)
class Bearer:
    """Where the token of each request comes from: fixed fields, or an application's function of its configuration."""

    fields: Mapping[str, str] | None = None
    function: Callable[..., Any] | None = None
    function_config: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """A client's configuration. Times are in the units of their names."""

    urls: tuple[str, ...]
    tls: Tls
    user: tuple[str, str] | None
    bearer: Bearer | None
    proxy: str | None
    timeout_s: float
    cache_capacity: int
    latest_life_s: float | None
    max_retries: int
    retry_wait_ms: int
    retry_max_wait_ms: int

    @staticmethod
    def of(conf: Mapping[str, Any]) -> Settings:
        """Read a client's configuration. Raises ValueError or TypeError, which name the property."""
        rest = dict(conf)
        urls = _urls(rest.pop("url", None))
        settings = Settings(
            urls=urls,
            tls=_tls(rest),
            user=_user(rest, urls[0]),
            proxy=rest.pop("proxy", None),
            timeout_s=_number(rest, "timeout", REQUEST_TIMEOUT_S),
            cache_capacity=int(_number(rest, "cache.capacity", CAPACITY)),
            latest_life_s=_life(rest),
            max_retries=int(_number(rest, "max.retries", MAX_RETRIES)),
            retry_wait_ms=int(_number(rest, "retries.wait.ms", RETRY_WAIT_MS)),
            retry_max_wait_ms=int(_number(rest, "retries.max.wait.ms", RETRY_MAX_WAIT_MS)),
            bearer=_bearer(rest),
        )
        if rest:
            raise ValueError(f"unknown properties: {', '.join(map(str, rest))}")
        return settings


def _urls(given: object) -> tuple[str, ...]:
    if given is None:
        raise ValueError("the property url is missing: the address of the schema registry")
    if not isinstance(given, str):
        raise TypeError(f"url must be a str, not {type(given).__name__}")
    urls = tuple(url.strip().rstrip("/") for url in given.split(","))
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url must begin with http:// or https://, and begins with {url[:8]!r}")
    return urls


def _tls(rest: dict[str, Any]) -> Tls:
    ca, key = rest.pop("ssl.ca.location", None), rest.pop("ssl.key.location", None)
    password = rest.pop("ssl.key.password", None)
    certificate = rest.pop("ssl.certificate.location", None)
    if certificate is None and (key is not None or password is not None):
        raise ValueError("ssl.key.location and ssl.key.password need ssl.certificate.location")
    return Tls(ca, certificate, key, password)


def _user(rest: dict[str, Any], url: str) -> tuple[str, str] | None:
    parts = urlsplit(url)
    in_url = None
    if parts.username is not None and parts.password is not None:
        in_url = (unquote(parts.username), unquote(parts.password))
    if in_url == ("", ""):
        in_url = None
    if "basic.auth.user.info" not in rest:
        return in_url
    if in_url is not None:
        raise ValueError("the url has a user and a password, so basic.auth.user.info must not be set")
    name, colon, password = str(rest.pop("basic.auth.user.info")).partition(":")
    if not colon:
        raise ValueError("basic.auth.user.info must be user:password")
    return name, password


def _number(rest: dict[str, Any], name: str, default: float) -> float:
    given = rest.pop(name, None)
    if given is None:
        return default
    if not isinstance(given, int | float):
        raise TypeError(f"{name} must be a number, not {type(given).__name__}")
    if given < 0:
        raise ValueError(f"{name} must not be negative: {given}")
    return given


def _life(rest: dict[str, Any]) -> float | None:
    given = _number(rest, "cache.latest.ttl.sec", -1)
    return None if given == -1 else given


def _bearer(rest: dict[str, Any]) -> Bearer | None:
    source = rest.pop("bearer.auth.credentials.source", None)
    if source is None:
        return None
    if source in _OAUTH:
        raise ValueError(
            f"bearer.auth.credentials.source {source} is not supported; use STATIC_TOKEN, or CUSTOM with a function"
        )
    if source == "CUSTOM":
        return _custom(rest)
    if source != "STATIC_TOKEN":
        raise ValueError(f"bearer.auth.credentials.source must be STATIC_TOKEN or CUSTOM, not {source!r}")
    fields: dict[str, str] = {}
    for name in ("bearer.auth.logical.cluster", "bearer.auth.token"):
        if name not in rest:
            raise ValueError(f"the property {name} is missing")
        fields[name] = rest.pop(name)
        if not isinstance(fields[name], str):
            raise TypeError(f"{name} must be a str, not {type(fields[name]).__name__}")
    pool = identity_pool(rest.pop("bearer.auth.identity.pool.id", None))
    return Bearer(fields if pool is None else fields | {"bearer.auth.identity.pool.id": pool})


def _custom(rest: dict[str, Any]) -> Bearer:
    names = ("bearer.auth.custom.provider.function", "bearer.auth.custom.provider.config")
    if missing := [name for name in names if name not in rest]:
        raise ValueError(f"the property {missing[0]} is missing")
    function, config = (rest.pop(name) for name in names)
    if not callable(function):
        raise TypeError(f"{names[0]} must be callable")
    if not isinstance(config, dict):
        raise TypeError(f"{names[1]} must be a dict, not {type(config).__name__}")
    return Bearer(function=function, function_config=config)


def identity_pool(given: str | list[str] | None) -> str | None:
    """Return the ids of identity pools as one text, separated by commas; None for None."""
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        return ",".join(given)
    if given is None or isinstance(given, str):
        return given
    raise TypeError("bearer.auth.identity.pool.id must be a str or a list of str")
