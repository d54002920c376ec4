"""Where the rows of a store come from: topics, operators and functions. Finds stores without a name of their own again.

Keeps true: a lineage does not depend on the number of a node or on the order of lines, and `peek` does not change it.
            With the same functions `exact` is the same in every process of one release of Python. `loose` leaves out
            functions, and operators without a store.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.topology import Node, Topology

_PACKAGE = "felice."
_OWN = "felice.pipelines.streams.operators"
_PASSING = frozenset({"peek", "each-batch"})
_PLAIN = (str, bytes, int, float, bool, type(None), type(Ellipsis))


@dataclass(frozen=True, slots=True)
class Lineage:
    """The lineage of a store."""

    exact: str
    loose: str


class Lineages:
    """The lineages of a topology's stores."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known: dict[tuple[int, bool], str] = {}

    def of(self, store: str) -> Lineage:
        """The lineage of a store."""
        owners = owners_of(self._topology, store)
        return Lineage(
            *("; ".join(self._of_node(node, is_exact) for node in owners) for is_exact in (True, False))
        )

    def _of_node(self, node: Node, is_exact: bool) -> str:
        place = id(node), is_exact
        if place not in self._known:
            self._known[place] = self._found(node, is_exact)
        return self._known[place]

    def _found(self, node: Node, is_exact: bool) -> str:
        source = node.source
        if source is not None and not source.is_repartition:
            return f"{source.kind} {source.topic}"
        parents = self._topology.before(node)
        before = ", ".join(dict.fromkeys(self._of_node(parent, is_exact) for parent in parents))
        kind = kind_of(node)
        if node.make is None or kind in _PASSING or not (is_exact or node.stores):
            return before
        return f"{kind} {self._digest(node.make)} of ({before})" if is_exact else f"{kind} of ({before})"

    def _digest(self, make: Callable[..., Any]) -> str:
        text = "\n".join(self._code(make, (), is_own=True))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _code(self, value: Any, outer: tuple[int, ...], *, is_own: bool) -> Iterator[str]:
        """What a function does, and with which values. `is_own`: the value is held by code of this package."""
        if id(value) in outer:
            return
        if isinstance(value, str) and is_own and self._is_name(value):
            return
        if isinstance(value, _PLAIN):
            yield repr(value)
            return
        if isinstance(value, (set, frozenset)):
            inner = (*outer, id(value))
            yield from sorted("\n".join(self._code(one, inner, is_own=is_own)) for one in value)
            return
        told, parts, is_own = _parts(value, is_own=is_own)
        yield told
        for part in parts:
            yield from self._code(part, (*outer, id(value)), is_own=is_own)

    def _is_name(self, text: str) -> bool:
        """Whether a text may be the name of a store or a node, which may be numbered."""
        topology = self._topology
        return topology.has_store(text) or topology.automatic_part(text) is not None


def _parts(value: Any, *, is_own: bool) -> tuple[str, Iterable[Any], bool]:
    """What stands for a value, the values in it, and whether code of this package holds these."""
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
        parts = (value.__code__, value.__defaults__, value.__kwdefaults__, *cells)
        return "function", parts, (value.__module__ or "").startswith(_PACKAGE)
    if isinstance(value, CodeType):
        return value.co_code.hex(), (value.co_names, value.co_consts), is_own
    if isinstance(value, MethodType):
        return "method", (value.__func__, value.__self__), is_own
    if isinstance(value, partial):
        return "partial", (value.func, value.args, value.keywords), is_own
    if isinstance(value, (tuple, list)):
        return "list", value, is_own
    if isinstance(value, dict):
        return "dict", value.items(), is_own
    if isinstance(value, type):
        return value.__qualname__, (), is_own
    kind = type(value)
    if kind.__module__.startswith(_PACKAGE):
        # Of scopes, plans and stores only operators hold functions and values of the application.
        is_operator = kind.__module__.startswith(_OWN)
        return (
            kind.__qualname__,
            [getattr(value, name, None) for name in _fields(value)] if is_operator else (),
            True,
        )
    fields, call = _fields(value), kind.__dict__.get("__call__")
    if fields or isinstance(call, FunctionType):
        return kind.__qualname__, [call, *(getattr(value, name, None) for name in fields)], False
    try:
        return kind.__qualname__ + pickle.dumps(value).hex(), (), False
    except Exception:
        # It has no attributes and no `__call__` in Python: only its class can be compared.
        return kind.__qualname__, (), False


def kind_of(node: Node) -> str:
    """The kind of a node: its name without its number."""
    return node.name.rpartition("-")[0]


def owners_of(topology: Topology, store: str) -> list[Node]:
    """The nodes that write a store: the first that has it, and those beside it that have the same stores."""
    users = [node for node in topology.nodes if store in node.stores]
    return [one for one in users if one.stores == users[0].stores and kind_of(one) == kind_of(users[0])]


def _fields(value: Any) -> list[str]:
    named = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
    return sorted({*named, *getattr(value, "__dict__", ())})


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
