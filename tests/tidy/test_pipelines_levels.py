"""Each module of the pipelines imports only what lies below it in the pipelines (`pipelines_levels` in layers.toml).

`test_layers.py` checks that no modules import each other in a cycle.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest

from tidy.imports import ROOT, SOURCE, import_graph, module_name

LEVELS: dict[str, int] = tomllib.loads((ROOT / "layers.toml").read_text())["pipelines_levels"]
TEXTS = {module_name(path): path.read_text() for path in sorted((SOURCE / "pipelines").rglob("*.py"))}
GRAPH = import_graph(TEXTS)


def part_of(name: str) -> str | None:
    """The first name below felice.pipelines; None for other packages and for felice.pipelines itself."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["felice", "pipelines"] and len(parts) > 2 else None


def fault_of(importer: str, imported: str) -> str | None:
    """Why one part of the pipelines may not import another, or None."""
    if importer == imported:
        return None
    if LEVELS[imported] < LEVELS[importer] or (LEVELS[imported] == LEVELS[importer] == 0):
        return None
    return f"{imported} (level {LEVELS[imported]}) is not below {importer} (level {LEVELS[importer]})"


def faults_of(module: str) -> Iterator[str]:
    """Every import of the module that goes upward."""
    importer = part_of(module)
    for part in sorted({part for name in GRAPH[module] if (part := part_of(name))}) if importer else []:
        if (fault := fault_of(str(importer), part)) is not None:
            yield fault


@pytest.mark.parametrize("module", GRAPH)
def test_a_module_of_the_pipelines_imports_only_modules_below_it(module: str) -> None:
    assert not list(faults_of(module))


def test_the_graph_contains_the_imports_of_the_pipelines() -> None:
    assert "felice.pipelines.spark.topic_limits" in GRAPH["felice.pipelines.streams.on_spark.application"]


def test_every_part_has_a_level_and_every_level_a_part() -> None:
    parts = {part for module in GRAPH if (part := part_of(module))}
    assert set(LEVELS) == parts


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("spark", "streams"), ("streams", "sql"), ("sql", "connect"), ("connect", "sql"), ("limits", "streams")],
)
def test_an_import_upward_is_a_fault(importer: str, imported: str) -> None:
    assert fault_of(importer, imported)
