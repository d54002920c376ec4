"""Copies of values for functions that may change what they are given.

Keeps true: where an operator gives one value to several calls of an application's functions, a call does not see
            what an earlier one did to the value.
How:        Values that cannot change are not copied, and neither are tuples of them, which are rows of SQL. A dict of
            such values is copied as it is. `pickle` copies most others in a tenth of `deepcopy`'s time.
"""

from __future__ import annotations

import decimal
import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import repeat
from typing import Any

from felice.dataclass import dataclass

_UNCHANGEABLE = frozenset({type(None), bool, int, float, complex, str, bytes, decimal.Decimal})


def copies(value: Any, count: int) -> Iterator[Any]:
    """The value as it is now, so many times."""
    if count < 2 or _never_changes(value):
        return repeat(value, count)
    made = copier(value)
    return (made() for _ in range(count))


def copier(value: Any) -> Callable[[], Any]:
    """A function that returns the value as it is now, a new object at each call."""
    if _never_changes(value):
        return lambda: value
    if type(value) is dict and _UNCHANGEABLE.issuperset(map(type, (*value, *value.values()))):
        return value.copy().copy
    try:
        written = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        kept = deepcopy(value)
        return lambda: deepcopy(kept)
    return lambda: pickle.loads(written)


@dataclass(frozen=True, slots=True)
class Constant:
    """A function that always returns this value."""

    value: Any

    def __call__(self) -> Any:
        """The value."""
        return self.value


def own_copies(make: Callable[[], Any]) -> Callable[[], Any]:
    """The function, whose results are new objects also if it returns the same object again."""
    if isinstance(make, Constant):
        return copier(make.value)

    def made() -> Any:
        value = make()
        return value if _never_changes(value) else copier(value)()

    return made


def _never_changes(value: Any) -> bool:
    kind = type(value)
    if kind is not tuple:
        return kind in _UNCHANGEABLE
    return _UNCHANGEABLE.issuperset(map(type, value)) or all(map(_never_changes, value))
