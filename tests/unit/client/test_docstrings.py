"""Every public class of the client, and every public method of it, has a docstring."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import felice.client
import felice.client.admin
import felice.client.aio
import felice.client.blocking
import felice.client.serialization
from felice.client.aio.confluent import AIOConsumer

MODULES = (
    felice.client,
    felice.client.admin,
    felice.client.aio,
    felice.client.blocking,
    felice.client.serialization,
)


def classes(module: ModuleType) -> Iterator[type]:
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value):
            yield value


def undocumented(owner: type) -> list[str]:
    """The class and its methods and properties without a docstring, inherited ones included, as `help()` shows them."""
    found = [] if owner.__doc__ and not _is_made_by_dataclass(owner) else [owner.__name__]
    for name, value in inspect.getmembers(owner):
        is_method = inspect.isroutine(value) or isinstance(value, property)
        if not name.startswith("_") and is_method and _belongs_to_felice(value) and not inspect.getdoc(value):
            found.append(f"{owner.__name__}.{name}")
    return found


def _is_made_by_dataclass(owner: type) -> bool:
    return (owner.__doc__ or "").startswith(f"{owner.__name__}(")


def _belongs_to_felice(value: Any) -> bool:
    function = value.fget if isinstance(value, property) else value
    return str(getattr(function, "__module__", "")).startswith("felice.")


@pytest.mark.parametrize(
    "owner",
    sorted({owner for module in MODULES for owner in classes(module)}, key=lambda owner: owner.__qualname__),
    ids=lambda owner: f"{owner.__module__}.{owner.__name__}",
)
def test_class_and_its_methods_are_documented(owner: type) -> None:
    assert not undocumented(owner)


def test_method_without_a_docstring_is_noticed() -> None:
    class Bare(AIOConsumer):
        """Has a method without a docstring."""

        async def silent(self) -> None: ...

    Bare.silent.__module__ = "felice.client"
    assert undocumented(Bare) == ["Bare.silent"]
