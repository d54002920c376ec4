"""Checks of the lists that an application passes to a client, before anything is sent.

Keeps true:  A text is not taken as a list of its characters, and every item has the type that the call needs. Where a
             parameter is annotated `list[...]`, confluent_kafka accepts lists alone, and so do these clients. An
             `Iterable` or a `Sequence` may be anything with items, except a text, bytes or a mapping. Keys and values
             of a mapping are checked, too: the text "t7" is not partition 7 of the topic t.
How:         `takes_lists` wraps the public methods of a class that have such parameters, so that a new method is
             covered by its annotations. `check_fields` does the same for the values that are passed to these calls.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any, TypeGuard, TypeVar

C = TypeVar("C", bound=type)

_TIME_LIMITS = ("request_timeout", "operation_timeout")
_MAX_LIMIT_S = 3600
_LISTS = ("list", "Iterable", "Sequence")
_CO_COROUTINE = 0x80  # inspect.CO_COROUTINE, without the import of `inspect`
_MAPPINGS = ("Mapping", "dict")
_PLAIN: dict[str, type] = {"str": str, "int": int, "tuple": tuple, "dict": dict, "Partition": tuple}
# The properties of a client: their parser says which names it does not know.
_CONFIGURATION = "str, object"


class _Item:
    """What an item of a list, a key or value of a mapping, or a field must be, by its annotation."""

    def __init__(self, name: str, annotation: str, namespace: Mapping[str, Any]) -> None:
        self._name = name
        outer = annotation.partition("[")[0].strip()
        kind = _PLAIN.get(outer) or namespace.get(outer)
        self._kind = kind if isinstance(kind, type) else None
        self._is_partition = outer == "Partition"
        inner = _Parameter(name, annotation, namespace) if "[" in annotation and kind is not dict else None
        self._inner = inner if inner is not None and inner.is_checked else None

    def checked(self, given: object, where: str = "") -> object:
        """Return the item, as a list if it has items; raises `TypeError` if it cannot be right."""
        if self._inner is not None:
            return self._inner.checked(given)
        if self._kind is int and not isinstance(given, int) and hasattr(given, "__index__"):
            return operator.index(given)
        if self._kind is not None and not isinstance(given, self._kind):
            found = f"of {type(given).__name__}" if where else type(given).__name__
            raise TypeError(f"{self._name}: expected {where}{self._kind.__name__}, not {found}")
        if self._is_partition and not _is_partition(given):
            raise TypeError(f"{self._name}: expected (topic, partition), not {given!r}")
        return given

    def checked_all(self, found: list[Any]) -> list[Any]:
        """Return the items of a list, each as `checked` returns it."""
        if self._inner is None and not self._is_partition and self._kind is not int:
            # Lists of records may be long.
            kind = self._kind
            if kind is None or all(isinstance(item, kind) for item in found):
                return found
        return [self.checked(item, "a list of ") for item in found]


class _Parameter:
    """What one parameter of a method accepts, by its annotation."""

    def __init__(self, name: str, annotation: str, namespace: Mapping[str, Any]) -> None:
        self.name = name
        parts = [part.strip() for part in _divided(annotation, "|")]
        outer = {part.partition("[")[0]: part.partition("[")[2].removesuffix("]") for part in parts}
        self.is_checked = "Callable" not in outer and any(kind in outer for kind in (*_LISTS, *_MAPPINGS))
        self._accepts_none = "None" in outer
        self._accepts_iterables = "Iterable" in outer or "Sequence" in outer
        self._accepts_lists = self._accepts_iterables or "list" in outer
        self._others = [kind for kind in outer if kind not in (*_LISTS, *_MAPPINGS, "None")]
        inner = next((outer[kind] for kind in _LISTS if kind in outer), "")
        self._item = _Item(name, inner, namespace)
        mapped = next((outer[kind] for kind in _MAPPINGS if kind in outer), None)
        self._accepts_mapping = mapped is not None
        self._pair: tuple[_Item, _Item] | None = None
        if mapped is not None and mapped != _CONFIGURATION:
            key, value = (part.strip() for part in _divided(mapped, ","))
            # Values of configurations may be numbers: their texts are sent.
            self._pair = _Item(name, key, namespace), _Item(name, "" if value == "str" else value, namespace)

    def checked(self, given: object) -> object:
        """Return the argument, as a list if it has items; raises `TypeError` if it cannot be right."""
        if given is None and self._accepts_none:
            return given
        if self._accepts_mapping and isinstance(given, Mapping):
            return self._checked_mapping(given)
        if type(given).__name__ in self._others:
            return given
        if not self._accepts_lists:
            raise TypeError(f"{self.name}: expected a dict, not {type(given).__name__}")
        if isinstance(given, list):
            found = given
        elif self._accepts_iterables and is_collection(given):
            found = list(given)
        else:
            raise TypeError(f"{self.name}: expected a list, not {type(given).__name__}")
        return self._item.checked_all(found)

    def _checked_mapping(self, given: Mapping[Any, Any]) -> object:
        if self._pair is None:
            return given
        key, value = self._pair
        return {key.checked(one, "keys of type "): value.checked(other) for one, other in given.items()}


class _TimeLimit:
    """A time limit of an administrative call, in seconds. confluent_kafka has the same bounds."""

    is_checked = True

    def __init__(self, name: str) -> None:
        self.name = name

    def checked(self, given: object) -> object:
        """Return the limit; None is that of the method. Raises `ValueError` for a limit that cannot be right."""
        if given is None:
            return given
        if not isinstance(given, int | float):
            raise TypeError(f"{self.name}: expected seconds as a number, not {type(given).__name__}")
        if not 0 <= given <= _MAX_LIMIT_S:
            raise ValueError(f"{self.name}: expected 0 to {_MAX_LIMIT_S} seconds, not {given:g}")
        return given


def check_fields(given: Any) -> None:
    """Check the fields of a value that an application makes, by their annotations, as `takes_lists` checks arguments.

    Plain fields are checked, too. A field gets a list in place of another collection.
    """
    kind = type(given)
    if kind not in _fields:
        namespace = vars(sys.modules[kind.__module__])
        _fields[kind] = [
            (name, _Item(name, annotation, namespace)) for name, annotation in kind.__annotations__.items()
        ]
    for name, item in _fields[kind]:
        setattr(given, name, item.checked(getattr(given, name)))


_fields: dict[type, list[tuple[str, _Item]]] = {}


def _is_partition(given: object) -> bool:
    """Whether it is a topic's name with a number. The two letters of a text are none."""
    match given:
        case (str(), number):
            return hasattr(number, "__index__")
    return False


def expect(name: str, given: object, *kinds: type) -> None:
    """Raise `TypeError` unless the value has one of these types."""
    if not isinstance(given, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name}: expected {wanted}, not {type(given).__name__}")


def is_collection(given: object) -> TypeGuard[Iterable[Any]]:
    """True for what has items of its own: neither a text nor a mapping."""
    return isinstance(given, Iterable) and not isinstance(
        given, str | bytes | bytearray | memoryview | Mapping
    )


def _divided(annotation: str, separator: str) -> list[str]:
    """The parts of an annotation between separators outside of brackets."""
    parts, depth = [""], 0
    for character in annotation:
        depth += (character == "[") - (character == "]")
        if character == separator and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def takes_lists(cls: C) -> C:
    """Let the public methods of a class check the arguments whose annotations say list, iterable or mapping.

    The time limits of administrative calls are checked, too.
    """
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and (not name.startswith("_") or name == "__init__"):
            own = method
            while hasattr(own, "__wrapped__"):
                own = own.__wrapped__
            names = own.__code__.co_varnames[: own.__code__.co_argcount + own.__code__.co_kwonlyargcount]
            parameters = [
                (index, _parameter(name, str(own.__annotations__.get(name, "")), own.__globals__))
                for index, name in enumerate(names)
            ]
            checked = [(index, one) for index, one in parameters if one.is_checked]
            if checked:
                setattr(cls, name, _checking(method, checked))
    return cls


def _parameter(name: str, annotation: str, namespace: Mapping[str, Any]) -> _Parameter | _TimeLimit:
    return _TimeLimit(name) if name in _TIME_LIMITS else _Parameter(name, annotation, namespace)


def _checking(
    method: Callable[..., Any], parameters: list[tuple[int, _Parameter | _TimeLimit]]
) -> Callable[..., Any]:
    def check(args: list[Any], kwargs: dict[str, Any]) -> None:
        for index, parameter in parameters:
            if index < len(args):
                args[index] = parameter.checked(args[index])
            elif parameter.name in kwargs:
                kwargs[parameter.name] = parameter.checked(kwargs[parameter.name])

    @functools.wraps(method)
    def call(*given: Any, **kwargs: Any) -> Any:
        args = list(given)
        check(args, kwargs)
        return method(*args, **kwargs)

    @functools.wraps(method)
    async def call_coroutine(*given: Any, **kwargs: Any) -> Any:
        args = list(given)
        check(args, kwargs)
        return await method(*args, **kwargs)

    # Mocks and frameworks must see that it is a coroutine function.
    is_coroutine = method.__code__.co_flags & _CO_COROUTINE
    return call_coroutine if is_coroutine else call
