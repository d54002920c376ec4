"""The names of a package that are imported when they are first used."""

import sys
from types import ModuleType

import pytest

from felice.late_names import late_names


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("json")
    made.own = 1  # type: ignore[attr-defined]
    homes = {"decimal": "Decimal", "fractions": "Fraction _Private"}
    made.__getattr__, made.__dir__, made.__all__ = late_names("json", homes, modules=("tool",))  # type: ignore
    monkeypatch.setitem(sys.modules, "json", made)
    monkeypatch.setattr(made, "__path__", [], raising=False)
    return made


def test_a_name_is_imported_once(package: ModuleType) -> None:
    from decimal import Decimal

    assert "Decimal" not in vars(package)
    assert package.Decimal is Decimal
    assert vars(package)["Decimal"] is Decimal


def test_another_name_does_not_exist(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'json' has no attribute 'Integer'"):
        _ = package.Integer


def test_all_names_are_listed(package: ModuleType) -> None:
    assert {"own", "Decimal", "Fraction", "tool"} <= set(dir(package))
    assert package.__all__ == ["Decimal", "Fraction"]


def test_a_submodule_is_imported(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = ModuleType("json.tool")
    monkeypatch.setitem(sys.modules, "json.tool", tool)
    assert package.tool is tool
