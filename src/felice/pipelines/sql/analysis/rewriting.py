"""Expressions with other expressions in place of some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from felice.pipelines.sql.syntax.tree import Binary, Expression, Lambda, Node, Star, left_chain, placed

Part = Expression | Lambda | Star
Change = Callable[[Part], Part | None]
"""Returns what stands in place of an expression; None to look inside."""


def rewritten(given: Any, change: Change) -> Any:
    """The expression after a change, which is offered each part before its own parts."""
    found = change(given)
    if found is not None:
        return found
    if isinstance(given, Binary):
        return _chain(given, change)
    fields = {name: _value(getattr(given, name), change) for name in _names(given)}
    return placed(type(given)(**fields), given.position)


def _chain(given: Binary, change: Change) -> Any:
    chain, first = left_chain(given)
    # A part of the chain may be replaced as a whole: the outermost one that is.
    made: Any = None
    start = 0
    for number in range(len(chain) - 2, -1, -1):
        made = change(chain[number])
        if made is not None:
            start = number + 1
            break
    else:
        made = rewritten(first, change)
    for one in chain[start:]:
        made = placed(Binary(one.operator, made, rewritten(one.right, change)), one.position)
    return made


def _value(given: Any, change: Change) -> Any:
    if isinstance(given, tuple):
        return tuple(_value(one, change) for one in given)
    return rewritten(given, change) if isinstance(given, Node) and _is_part(given) else given


def _is_part(given: Node) -> bool:
    return type(given).__name__ not in ("TypeName", "ArrayType", "MapType", "StructType", "Duration")


def _names(given: Any) -> list[str]:
    return list(type(given).__dataclass_fields__)


def parts_of(given: Any) -> Iterator[Part]:
    """The expression and all expressions in it."""
    waiting = [given]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting.extend(reversed(one))
        elif isinstance(one, Node) and _is_part(one):
            yield one  # type: ignore[misc]
            waiting.extend(reversed([getattr(one, name) for name in _names(one)]))
