"""`felice.client` has confluent_kafka's public names, members, values and parameters, except for a list of differences.

confluent_kafka is read by introspection, and the parameters of its C classes from the stub that is installed with it.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import confluent_kafka
import pytest

from unit.client.confluent.allowed_differences import ABSENT, PARAMETERS

SUBMODULES = (
    "",
    "admin",
    "aio",
    "cimpl",
    "deserializing_consumer",
    "error",
    "serialization",
    "serializing_producer",
)
STUB = Path(confluent_kafka.__file__).with_name("cimpl.pyi")
# Names that a module imports for its own use, from typing and other modules.
PRIVATE_IMPORTS = {"string_type", "K", "V", "TYPE_CHECKING"}


def pair(submodule: str) -> tuple[ModuleType, ModuleType]:
    suffix = f".{submodule}" if submodule else ""
    return importlib.import_module(f"confluent_kafka{suffix}"), importlib.import_module(
        f"felice.client{suffix}"
    )


def public_names(module: ModuleType) -> list[str]:
    """`__all__` if it exists, otherwise the names that the module, or a private module of confluent_kafka, defines."""
    declared = getattr(module, "__all__", None)
    if declared is not None:
        return [name for name in declared if not inspect.ismodule(getattr(module, name, module))]
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and name not in PRIVATE_IMPORTS
        and _belongs_to(value, module)
    )


def _belongs_to(value: Any, module: ModuleType) -> bool:
    home = getattr(value, "__module__", None)
    if home is None or isinstance(value, int):
        return True  # a constant
    if module.__name__ in ("confluent_kafka.serializing_producer", "confluent_kafka.deserializing_consumer"):
        return bool(home == module.__name__)
    return str(home).startswith(("confluent_kafka", "cimpl")) and "_util" not in home and "_types" not in home


def qualified(submodule: str, *names: str) -> str:
    return ".".join(filter(None, (submodule, *names)))


def members(theirs: Any) -> list[str]:
    return [name for name in dir(theirs) if not name.startswith("_")]


def rows() -> Iterator[tuple[str, Any, Any]]:
    """Every public name and every public member of a class: qualified name, theirs, ours (or `ABSENT`)."""
    for submodule in SUBMODULES:
        their_module, our_module = pair(submodule)
        for name in public_names(their_module):
            theirs, ours = getattr(their_module, name), getattr(our_module, name, ABSENT)
            yield qualified(submodule, name), theirs, ours
            if inspect.isclass(theirs) and ours is not ABSENT:
                for member in members(theirs):
                    yield (
                        qualified(submodule, name, member),
                        getattr(theirs, member),
                        getattr(ours, member, ABSENT),
                    )


ROWS = list(rows())


def test_the_comparison_sees_both_packages() -> None:
    assert len(ROWS) > 500
    assert {"Producer.produce", "admin.AdminClient.list_offsets", "cimpl.RESOURCE_TOPIC"} <= {
        row[0] for row in ROWS
    }


def is_absence_allowed(name: str) -> bool:
    inherited = {
        "SerializingProducer": "Producer",
        "DeserializingConsumer": "Consumer",
        "AsyncSerializingProducer": "AIOProducer",
        "AsyncDeserializingConsumer": "AIOConsumer",
    }
    *path, member = name.split(".")
    alike = [".".join([inherited.get(part, part) for part in path] + [member])]
    for submodule in ("cimpl.", "serializing_producer.", "deserializing_consumer."):
        alike.append(alike[0].removeprefix(submodule))
    return any(candidate in ABSENT for candidate in alike)


def test_every_public_name_exists() -> None:
    missing = [name for name, _, ours in ROWS if ours is ABSENT and not is_absence_allowed(name)]
    assert not missing


def test_every_allowed_absence_is_absent() -> None:
    absent = {name for name, _, ours in ROWS if ours is ABSENT}
    assert not set(ABSENT) - absent


def test_constants_and_members_of_enumerations_have_the_same_values() -> None:
    different = []
    for name, theirs, ours in ROWS:
        if ours is ABSENT:
            continue
        if isinstance(theirs, enum.Enum):
            theirs, ours = theirs.value, ours.value
        if (
            isinstance(theirs, int | str)
            and not callable(theirs)
            and theirs != ours
            and name != "__version__"
        ):
            different.append((name, theirs, ours))
    assert not different


def stub_parameters() -> dict[str, list[str]]:
    """Parameter names of the C classes and functions by qualified name, from the installed stub."""
    found: dict[str, list[str]] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = [argument.arg for argument in node.args.args]
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and not method.decorator_list:
                    names = [argument.arg for argument in method.args.args]
                    found[f"{node.name}.{method.name}"] = names
    return found


STUBS = stub_parameters()


def their_parameters(name: str, theirs: Any) -> list[str] | None:
    last = ".".join(name.split(".")[-2:])
    for candidate in (last, last.split(".")[-1], f"{last.split('.')[-1]}.__init__"):
        if candidate in STUBS and not inspect.isfunction(theirs):
            return [parameter for parameter in STUBS[candidate] if parameter != "self"]
    try:
        signature = inspect.signature(theirs)
    except (TypeError, ValueError):
        return None
    return [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name != "self"
    ]


def our_parameters(ours: Any) -> list[str]:
    return [name for name in inspect.signature(ours).parameters if name != "self"]


def callables() -> list[tuple[str, list[str], list[str]]]:
    found = []
    for name, theirs, ours in ROWS:
        if ours is ABSENT or not callable(theirs) or isinstance(theirs, enum.EnumMeta):
            continue
        expected = their_parameters(name, theirs)
        if expected is None:
            continue
        try:
            found.append((name, expected, our_parameters(ours)))
        except ValueError:
            continue
    return found


CALLABLES = callables()


def test_the_comparison_sees_parameters() -> None:
    by_name = {name: expected for name, expected, _ in CALLABLES}
    assert by_name["Producer.produce"][:3] == ["topic", "value", "key"]
    assert by_name["admin.AdminClient.create_topics"] == ["new_topics"]
    assert by_name["TopicPartition"] == ["topic", "partition", "offset", "metadata", "leader_epoch"]


@pytest.mark.parametrize(("name", "expected", "actual"), CALLABLES, ids=[row[0] for row in CALLABLES])
def test_parameters_have_their_names_and_order(name: str, expected: list[str], actual: list[str]) -> None:
    if name.split(".")[-1] in PARAMETERS:
        assert actual[: len(expected)] != expected, f"{name} no longer differs: take it from the list"
    else:
        assert actual[: len(expected)] == expected


# confluent_kafka's AdminClient takes these as keyword arguments and passes them to its C class.
KEYWORDS = {
    name.split(".")[1]: [
        parameter
        for parameter in parameters
        if parameter.endswith("_timeout")
        or parameter in ("validate_only", "include_authorized_operations", "require_stable")
    ]
    for name, parameters in STUBS.items()
    if name.startswith("_AdminClientImpl.") and not name.endswith("__")
}


@pytest.mark.parametrize(
    "name", [name for name in KEYWORDS if KEYWORDS[name] and f"admin.AdminClient.{name}" not in ABSENT]
)
def test_keyword_arguments_of_the_admin_client_exist(name: str) -> None:
    from felice.client.admin import AdminClient

    assert not set(KEYWORDS[name]) - set(our_parameters(getattr(AdminClient, name)))
