"""The imports between the modules of `src/felice`, as a graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "felice"


def imports_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, also of those inside functions and under TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def module_name(path: Path) -> str:
    """`felice.log.segment` of `.../src/felice/log/segment.py`; a package's `__init__` has the package's name."""
    return ".".join(("felice", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules that each module imports, of the modules given by name and text."""
    graph: dict[str, set[str]] = {}
    for name, text in sources.items():
        found = {_module_of(imported, sources) for _, imported in imports_of(ast.parse(text))}
        graph[name] = {target for target in found if target is not None and target != name}
    return graph


def _module_of(imported: str, known: Mapping[str, str]) -> str | None:
    """`from felice.log.segment import Segment` names an attribute: the module is the part before it."""
    if imported in known:
        return imported
    parent = imported.rpartition(".")[0]
    return parent if parent in known else None


def cycle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of one import cycle, each importing the next; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []
