"""A process imports modules from the sources that it was sent."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from felice.pipelines.streams.on_spark import modules
from felice.pipelines.streams.on_spark.modules import SentModule, install, modules_of, note_imported


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(modules, "_finder", modules._Finder())
    monkeypatch.setattr(modules, "_current", ())
    yield
    for name in modules._finder.modules:
        sys.modules.pop(name, None)


def sent(name: str, source: str, *, is_package: bool = False) -> SentModule:
    return SentModule(name, f"/gone/{name}.py", source.encode(), is_package)


def imported(name: str) -> Any:
    return importlib.import_module(name)


def test_the_last_modules_replace_the_ones_before() -> None:
    install((sent("sent_a", "value = 1"), sent("sent_b", "import sent_a; value = sent_a.value")))
    assert imported("sent_b").value == 1
    install((sent("sent_b", "value = 2"),))
    assert imported("sent_b").value == 2
    with pytest.raises(ModuleNotFoundError):
        imported("sent_a")


def test_the_same_modules_are_not_imported_again() -> None:
    install((sent("sent_a", "value = []"),))
    before = imported("sent_a")
    install((sent("sent_a", "value = []"),))
    install(())
    assert imported("sent_a") is before


def test_the_driver_keeps_what_it_has_imported() -> None:
    found = modules_of(["json.decoder"])
    before = sys.modules["json.decoder"]
    note_imported(found)
    install(found)
    assert sys.modules["json.decoder"] is before


def test_modules_of_imported_ones_have_their_sources_and_packages_are_marked() -> None:
    package, module = modules_of(["json.decoder", "json"])
    assert (package.name, package.is_package) == ("json", True)
    assert (module.name, module.is_package) == ("json.decoder", False)
    assert b"class JSONDecoder" in module.source
    assert modules_of(["_thread", "math"]) == ()


def test_a_module_knows_its_path_and_tracebacks_show_its_source() -> None:
    install((sent("sent_a", "def fail():\n    raise KeyError('the cause')  # here\n"),))
    module = imported("sent_a")
    assert (module.__file__, module.__package__) == ("/gone/sent_a.py", "")
    with pytest.raises(KeyError) as raised:
        module.fail()
    assert "raise KeyError('the cause')  # here" in "".join(traceback.format_exception(raised.value))


def test_a_package_has_its_modules_by_their_relative_names() -> None:
    install((sent("sent_p", "from .inner import value", is_package=True), sent("sent_p.inner", "value = 3")))
    assert imported("sent_p").value == 3
