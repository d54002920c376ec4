"""Every import is checked against the levels of `layers.toml`, and no modules import each other in a cycle."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tidy.imports import ROOT, SOURCE, cycle_in, import_graph, imports_of, module_name

LAYERS = tomllib.loads((ROOT / "layers.toml").read_text())
LEVELS: dict[str, int] = LAYERS["levels"]
SUBSYSTEMS: dict[str, str] = {
    package: subsystem for subsystem, packages in LAYERS["subsystems"].items() for package in packages
}


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem in LEVELS)


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def fault_of(importer: str, imported: str) -> str | None:
    """Why `importer` (a package of felice) may not import the dotted name `imported`, or None."""
    parts = imported.split(".")
    if parts[0] != "felice":
        world = LAYERS["outside_world"]
        forbidden = parts[0] in world["modules"] and importer in world["applies_to"]
        return f"only {world['importers']} may import {parts[0]}" if forbidden else None
    target = parts[1] if len(parts) > 1 else ""
    if target not in LEVELS or target == importer or target in LAYERS["same_level"].get(importer, []):
        return None
    if LEVELS[target] >= LEVELS[importer]:
        return f"{target} (level {LEVELS[target]}) is not below {importer} (level {LEVELS[importer]})"
    subsystem, other = SUBSYSTEMS.get(importer), SUBSYSTEMS.get(target)
    if subsystem and other and subsystem != other:
        return f"the {subsystem} and the {other} communicate only over the network"
    return None


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    importer = package_of(path)
    assert importer in LEVELS, f"{importer} has no level in layers.toml"
    tree = ast.parse(path.read_text())
    faults = [
        f"{path}:{line}: {fault}" for line, name in imports_of(tree) if (fault := fault_of(importer, name))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("protocol", "felice.log.log"),
        ("log", "felice.metadata.store"),
        ("log", "time"),
        ("server", "felice.client"),
        ("pipelines", "felice.server.broker"),
    ],
)
def test_a_forbidden_import_is_noticed(importer: str, imported: str) -> None:
    assert fault_of(importer, imported)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("log", "felice.env"), ("env", "time"), ("cli", "felice.server.broker"), ("spark", "felice.pipelines")],
)
def test_an_allowed_import_is_not(importer: str, imported: str) -> None:
    assert fault_of(importer, imported) is None


def test_no_modules_import_each_other_in_a_cycle() -> None:
    sources = {module_name(path): path.read_text() for path in SOURCE.rglob("*.py")}
    assert cycle_in(import_graph(sources)) == []


def test_a_cycle_is_noticed_also_where_only_types_are_imported() -> None:
    sources = {
        "felice.a": "from felice.b import B",
        "felice.b": "if TYPE_CHECKING:\n    from felice.c import C",
        "felice.c": "def late():\n    import felice.a",
    }
    assert sorted(set(cycle_in(import_graph(sources)))) == ["felice.a", "felice.b", "felice.c"]
    assert cycle_in(import_graph({**sources, "felice.c": ""})) == []


def test_every_package_has_a_level_and_every_level_a_package() -> None:
    found = {path.stem for path in SOURCE.iterdir() if path.name not in ("__init__.py", "py.typed")}
    assert set(LEVELS) == found - {"__pycache__"}
    assert {package for packages in LAYERS["subsystems"].values() for package in packages} <= found


def test_the_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    linked = re.findall(r"\]\(((?:src|docs|tests)/[^)#]+)\)", text)
    assert linked
    assert [path for path in linked if not (ROOT / path).exists()] == []
