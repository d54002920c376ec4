"""Each module of the client, the pipelines and the server imports only what lies below it in its package.

The tables `client_levels`, `pipelines_levels` and `server_levels` of layers.toml have the levels of their rooms: the
packages and modules directly below `felice.client`, and so on. Imports for types and imports inside functions count.
`test_layers.py` checks that no modules import each other in a cycle.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest

from tidy.imports import ROOT, SOURCE, import_graph, module_name

LEVELS: dict[str, dict[str, int]] = {
    name.removesuffix("_levels"): levels
    for name, levels in tomllib.loads((ROOT / "layers.toml").read_text()).items()
    if name.endswith("_levels")
}
GRAPH = import_graph(
    {
        module_name(path): path.read_text()
        for package in LEVELS
        for path in sorted((SOURCE / package).rglob("*.py"))
    }
)


def room_of(name: str, package: str) -> str | None:
    """The first name below the package; None for modules elsewhere and for the package itself."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["felice", package] and len(parts) > 2 else None


def fault_of(package: str, importer: str, imported: str) -> str | None:
    """Why one room of a package may not import another, or None."""
    levels = LEVELS[package]
    if importer == imported:
        return None
    if levels[imported] < levels[importer] or (levels[imported] == levels[importer] == 0):
        return None
    return f"{imported} (level {levels[imported]}) is not below {importer} (level {levels[importer]})"


def faults_of(module: str) -> Iterator[str]:
    """Every import of the module that goes upward; none for a package itself, which collects public names."""
    package = module.split(".")[1]
    importer = room_of(module, package)
    rooms = {room for name in GRAPH[module] if (room := room_of(name, package))}
    for room in sorted(rooms) if importer else []:
        if (fault := fault_of(package, str(importer), room)) is not None:
            yield fault


@pytest.mark.parametrize("module", GRAPH)
def test_a_module_imports_only_rooms_below_its_own(module: str) -> None:
    assert not list(faults_of(module))


@pytest.mark.parametrize("package", LEVELS)
def test_every_room_has_a_level_and_every_level_a_room(package: str) -> None:
    assert set(LEVELS[package]) == {room for module in GRAPH if (room := room_of(module, package))}


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("felice.client.consume.core", "felice.client.net.cluster"),
        ("felice.pipelines.streams.on_spark.application", "felice.pipelines.spark.topic_limits"),
        ("felice.server.handlers.produce", "felice.server.writes.admission"),
    ],
)
def test_the_graph_contains_the_imports(importer: str, imported: str) -> None:
    assert imported in GRAPH[importer]


@pytest.mark.parametrize(
    ("package", "importer", "imported"),
    [
        ("client", "net", "produce"),
        ("client", "produce", "consume"),
        ("client", "consume", "aio"),
        ("client", "options", "net"),
        ("pipelines", "spark", "streams"),
        ("pipelines", "streams", "sql"),
        ("pipelines", "sql", "connect"),
        ("pipelines", "connect", "sql"),
        ("pipelines", "limits", "streams"),
        ("server", "writes", "services"),
        ("server", "services", "handlers"),
        ("server", "handlers", "net"),
        ("server", "disks", "writes"),
    ],
)
def test_an_import_upward_is_a_fault(package: str, importer: str, imported: str) -> None:
    assert fault_of(package, importer, imported)
