"""Where the rows of a store come from: topics, operators and functions. Finds stores without a name of their own again.

Keeps true: a lineage does not depend on the number of a node or on the order of lines, and `peek` does not change it.
            With the same functions `exact` is the same in every process of one release of Python. `loose` leaves out
            functions, and operators without a store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.topology import Node, Topology

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
        self._writers: dict[str, list[Node]] = {}
        for node in topology.nodes:
            if node.sink is not None and node.sink.is_repartition:
                self._writers.setdefault(node.sink.topic, []).extend(node.parents)
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
        parents = node.parents if source is None else self._writers[source.topic]
        before = ", ".join(dict.fromkeys(self._of_node(parent, is_exact) for parent in parents))
        kind = kind_of(node)
        if node.make is None or kind in _PASSING or not (is_exact or node.stores):
            return before
        return f"{kind} {self._digest(node.make)} of ({before})" if is_exact else f"{kind} of ({before})"

    def _digest(self, make: Callable[..., Any]) -> str:
        text = "\n".join(self._code(make, ()))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _code(self, value: Any, outer: tuple[int, ...]) -> Iterator[str]:
        """What a function does, and with which values. Objects that are not ours count as their class."""
        if id(value) in outer:
            return
        inner = (*outer, id(value))
        if isinstance(value, str) and self._is_name(value):
            return
        if isinstance(value, _PLAIN):
            yield repr(value)
            return
        parts: Any = ()
        if isinstance(value, FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
            parts = (value.__code__, value.__defaults__, *cells)
        elif isinstance(value, CodeType):
            yield value.co_code.hex()
            parts = (value.co_names, value.co_consts)
        elif isinstance(value, MethodType):
            parts = (value.__func__, value.__self__)
        elif isinstance(value, partial):
            parts = (value.func, value.args, value.keywords)
        elif isinstance(value, (tuple, list)):
            parts = value
        elif isinstance(value, dict):
            parts = value.items()
        elif isinstance(value, type):
            yield value.__qualname__
        else:
            yield type(value).__qualname__
            if type(value).__module__.startswith(_OWN):
                parts = [getattr(value, name, None) for name in _fields(value)]
        for part in parts:
            yield from self._code(part, inner)

    def _is_name(self, text: str) -> bool:
        """Whether a text may be the name of a store or a node, which may be numbered."""
        topology = self._topology
        return topology.has_store(text) or topology.automatic_part(text) is not None


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
