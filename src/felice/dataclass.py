"""The `dataclass` of the standard library for classes with slots, but cheaper at import.

    from felice.dataclass import dataclass

    @dataclass(frozen=True, slots=True)
    class Endpoint:
        host: str
        port: int = 9092

Keeps true:  a class has the same methods with the same meaning as one of the standard library's, and the functions
             `fields`, `replace`, `asdict` and `is_dataclass` of `dataclasses` work on it.
Parts:       Python cannot combine two base classes with slots. A class with `slots=False` is a part: it only declares
             fields. The class that inherits it has the slots of these fields. A class may inherit many parts.
How:         a method is compiled when it is first looked up. A broker imports 170 such classes, and until it is ready
             it uses a tenth of their methods. To compile all of them took a third of that time.
Leaves out:  the arguments that Felice does not use, such as `order` and `kw_only`. Annotations must be texts
             (`from __future__ import annotations`).
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")


class OnFirstUse:
    """An attribute of a class that is made when it is first looked up, and then takes this object's place."""

    __slots__ = ("_make", "_name", "_owner")

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object | None, cls: type | None = None) -> Any:
        made = self._make(self._owner)
        setattr(self._owner, self._name, made)
        bind = getattr(made, "__get__", None)
        return made if bind is None else bind(instance, cls)


def compiled(
    owner: type, name: str, parameters: Iterable[str], lines: Iterable[str], names: dict[str, Any]
) -> Callable[..., Any]:
    """Compiles a method of a class from its parameters and lines. `names` are the globals that it sees."""
    exec(f"def {name}({', '.join(parameters)}):\n " + "\n ".join(lines), names)
    method: Callable[..., Any] = names[name]
    method.__qualname__ = f"{owner.__qualname__}.{name}"
    return method


class _Factory:
    """Stands for the result of a `default_factory` in a signature."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _declare(cls: type[T], frozen: bool, eq: bool, slots: bool) -> type[T]:
    """The class again, with slots and with methods that are still to be compiled."""
    own = {name: text for name, text in cls.__annotations__.items() if not text.startswith("ClassVar")}
    inherited = [vars(base) for base in cls.__mro__[1:-1]]
    taken = {slot for base in inherited for slot in base.get("__slots__", ())}
    unslotted = [name for base in inherited for name in base.get("_part", ()) if name not in taken]
    own_slots = tuple(name for name in own if name not in taken)
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    defaults = {name: body.pop(name) for name in own if name in body}
    methods: dict[str, Any] = {"__init__": OnFirstUse(_init), "__repr__": _repr}
    if frozen:
        methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    if eq:
        methods["__eq__"] = OnFirstUse(_eq)
        # Python puts None there if a class defines only `__eq__`.
        if body.get("__hash__") is None:
            body["__hash__"] = OnFirstUse(_hash) if frozen else None
    body = {
        **methods,
        "__match_args__": OnFirstUse(_match_args),
        **body,
        "__slots__": tuple(dict.fromkeys([*own_slots, *unslotted])) if slots else (),
        **({} if slots else {"_part": own_slots}),
        "__dataclass_fields__": OnFirstUse(lambda owner: _all_fields(owner, own, defaults)),
        # `pprint` reads it, for example when pytest explains an assertion.
        "__dataclass_params__": OnFirstUse(lambda owner: _params(frozen, eq)),
        **({"__setattr__": _refuse_change, "__delattr__": _refuse_change} if frozen else {}),
    }
    metaclass: Callable[..., type[T]] = type(cls)
    made = metaclass(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _all_fields(owner: type, own: dict[str, str], defaults: dict[str, Any]) -> dict[str, Field[Any]]:
    """The inherited fields and those of the class itself, by name. The standard library makes the latter."""
    found: dict[str, Field[Any]] = {}
    for base in owner.__mro__[-1:0:-1]:
        found |= getattr(base, "__dataclass_fields__", {})
    body = {"__annotations__": own, "__module__": owner.__module__, "__doc__": owner.__name__, **defaults}
    plain: type = type("_", (), body)
    dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(plain)
    return found | {field.name: field for field in dataclasses.fields(plain)}


def _params(frozen: bool, eq: bool) -> object:
    plain: type = dataclasses.dataclass(frozen=frozen, eq=eq)(type("_", (), {}))
    params: object = vars(plain)["__dataclass_params__"]
    return params


def _fields(owner: type) -> Iterable[Field[Any]]:
    return owner.__dataclass_fields__.values()  # type: ignore[attr-defined, no-any-return]


def _init(owner: type) -> Callable[..., None]:
    names: dict[str, Any] = {"_FACTORY": _FACTORY}
    is_frozen = owner.__setattr__ is _refuse_change
    parameters, lines = ["self"], ["pass"]
    for field in _fields(owner):
        if (parameter := _parameter(field, names)) is not None:
            parameters.append(parameter)
        if (value := _initial(field, names)) is None:
            continue
        if is_frozen:
            names[f"_set_{field.name}"] = getattr(owner, field.name).__set__
        lines.append(f"_set_{field.name}(self, {value})" if is_frozen else f"self.{field.name} = {value}")
    if hasattr(owner, "__post_init__"):
        lines.append("self.__post_init__()")
    init = compiled(owner, "__init__", parameters, lines, names)
    init.__annotations__ = {field.name: field.type for field in _fields(owner) if field.init} | {
        "return": None
    }
    return init


def _parameter(field: Field[Any], names: dict[str, Any]) -> str | None:
    """The parameter of `__init__` that sets a field, or None. `names` receives its default."""
    if not field.init:
        return None
    if field.default_factory is not MISSING:
        return f"{field.name}=_FACTORY"
    if field.default is MISSING:
        return field.name
    names[f"_default_{field.name}"] = field.default
    return f"{field.name}=_default_{field.name}"


def _initial(field: Field[Any], names: dict[str, Any]) -> str | None:
    """The expression for the first value of a field; None if it has none."""
    name = field.name
    if field.default_factory is not MISSING:
        names[f"_new_{name}"] = field.default_factory
        return f"_new_{name}() if {name} is _FACTORY else {name}" if field.init else f"_new_{name}()"
    if field.init:
        return name
    names[f"_default_{name}"] = field.default
    return None if field.default is MISSING else f"_default_{name}"


def _eq(owner: type) -> Callable[[Any, object], bool]:
    names = [field.name for field in _fields(owner) if field.compare]
    mine, others = (_values(who, names) for who in ("self", "other"))
    lines = [f"if other.__class__ is self.__class__: return {mine} == {others}", "return NotImplemented"]
    return compiled(owner, "__eq__", ("self", "other"), lines, {})


def _hash(owner: type) -> Callable[[Any], int]:
    names = [field.name for field in _fields(owner) if (field.compare if field.hash is None else field.hash)]
    return compiled(owner, "__hash__", ("self",), [f"return hash({_values('self', names)})"], {})


def _values(of: str, names: Iterable[str]) -> str:
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


def _match_args(owner: type) -> tuple[str, ...]:
    return tuple(field.name for field in _fields(owner) if field.init)


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in _fields(type(self)) if field.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse_change(self: object, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _getstate(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in _fields(type(self))]


def _setstate(self: Any, state: Iterable[object]) -> None:
    for field, value in zip(_fields(type(self)), state, strict=True):
        object.__setattr__(self, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, slots: bool, frozen: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]:
        """As `dataclasses.dataclass`, but a class without slots is a part of others, and has no instances."""
        return lambda cls: _declare(cls, frozen, eq, slots)
