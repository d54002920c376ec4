"""Bounds the memory for clients' names, because clients may send any number of them, each of up to 32 KiB."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

MAX_CLIENTS = 10_000
_MAX_NAME_LENGTH = 256


def kept(found: OrderedDict[K, V], key: K, make: Callable[[], V]) -> V:
    """The value of a key, made if it is missing. The key that was unused longest is dropped."""
    if key in found:
        found.move_to_end(key)
        return found[key]
    if len(found) >= MAX_CLIENTS:
        found.popitem(last=False)
    value = found[key] = make()
    return value


def short_name(name: str) -> str:
    """The name, or a short text in its place: its beginning and its digest, so that different names stay different."""
    if len(name) <= _MAX_NAME_LENGTH:
        return name
    return f"{name[:_MAX_NAME_LENGTH]}…{sha256(name.encode()).hexdigest()}"
