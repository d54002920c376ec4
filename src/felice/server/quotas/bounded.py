"""A dict with a bounded number of clients, because clients may send any number of names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

MAX_CLIENTS = 10_000


def kept(found: OrderedDict[K, V], key: K, make: Callable[[], V]) -> V:
    """The value of a key, made if it is missing. The key that was unused longest is dropped."""
    if key in found:
        found.move_to_end(key)
        return found[key]
    if len(found) >= MAX_CLIENTS:
        found.popitem(last=False)
    value = found[key] = make()
    return value
