"""The levels inside the client hold, and no modules of the client import each other in a circle."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
CLIENT = SOURCE / "felice" / "client"
LEVELS: dict[str, int] = tomllib.loads((ROOT / "layers.toml").read_text())["client_levels"]
MODULES = sorted(CLIENT.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def imports_of(path: Path) -> Iterator[str]:
    """Modules of felice that a file imports, also inside functions; `from package import module` is the module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("felice."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("felice."):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if is_module(inner) else str(node.module)


def part_of(name: str) -> str | None:
    """The first name below felice.client; None for other packages and for felice.client itself."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["felice", "client"] and len(parts) > 2 else None


def fault_of(importer: str, imported: str) -> str | None:
    """Why one part of the client may not import another, or None."""
    if importer == imported:
        return None
    if LEVELS[imported] < LEVELS[importer] or (LEVELS[imported] == LEVELS[importer] == 0):
        return None
    return f"{imported} (level {LEVELS[imported]}) is not below {importer} (level {LEVELS[importer]})"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_of_the_client_imports_only_what_lies_below_it(path: Path) -> None:
    importer = part_of(name_of(path))
    if importer is None:
        return  # felice.client itself collects the public names
    parts = {part for name in imports_of(path) if (part := part_of(name))}
    assert not [fault for part in sorted(parts) if (fault := fault_of(importer, part))]


def test_no_modules_of_the_client_import_each_other_in_a_circle() -> None:
    graph = {name_of(path): set(imports_of(path)) for path in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("net", "produce"), ("produce", "consume"), ("consume", "aio"), ("options", "net")],
)
def test_an_import_upward_is_noticed(importer: str, imported: str) -> None:
    assert fault_of(importer, imported)
