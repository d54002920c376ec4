"""Each module of the client imports only modules of lower levels of the client (`client_levels` in layers.toml).

`test_layers.py` checks that no modules import each other in a cycle.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest

from tidy.imports import ROOT, SOURCE, import_graph, module_name

LEVELS: dict[str, int] = tomllib.loads((ROOT / "layers.toml").read_text())["client_levels"]
TEXTS = {module_name(path): path.read_text() for path in sorted((SOURCE / "client").rglob("*.py"))}
GRAPH = import_graph(TEXTS)


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


def faults_of(module: str) -> Iterator[str]:
    """Every import of the module that goes upward; none for felice.client itself, which collects public names."""
    importer = part_of(module)
    for part in sorted({part for name in GRAPH[module] if (part := part_of(name))}) if importer else []:
        if (fault := fault_of(str(importer), part)) is not None:
            yield fault


@pytest.mark.parametrize("module", GRAPH)
def test_a_module_of_the_client_imports_only_modules_below_it(module: str) -> None:
    assert not list(faults_of(module))


def test_the_graph_contains_the_imports_of_the_client() -> None:
    assert "felice.client.net.cluster" in GRAPH["felice.client.consume.core"]


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("net", "produce"), ("produce", "consume"), ("consume", "aio"), ("options", "net")],
)
def test_an_import_upward_is_a_fault(importer: str, imported: str) -> None:
    assert fault_of(importer, imported)
