"""`felice.dataclass` does what the standard library's `dataclass` does: every test runs with both."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pprint
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import pytest

import felice.dataclass

T = TypeVar("T")
Decorator = Callable[..., Callable[[type], type]]

both = pytest.mark.parametrize("dataclass", [dataclasses.dataclass, felice.dataclass.dataclass])


class _Plain:
    """The body of a class with each kind of field."""

    kind: ClassVar[str] = "point"
    x: int
    y: int = 2
    seen: list[int] = dataclasses.field(default_factory=list)
    note: str = dataclasses.field(default="", compare=False)
    secret: str = dataclasses.field(default="s", repr=False)
    start: int = dataclasses.field(default=7, init=False)
    made: list[int] = dataclasses.field(default_factory=list, init=False)


def plain(dataclass: Decorator, **how: Any) -> Any:
    body = {name: value for name, value in vars(_Plain).items() if name not in ("__dict__", "__weakref__")}
    return dataclass(slots=True, **how)(type("_Plain", (), body))


@felice.dataclass.dataclass(frozen=True, slots=True)
class Frozen:
    """Can be pickled, because it is an attribute of its module."""

    x: int
    y: tuple[int, ...] = ()


@felice.dataclass.dataclass(frozen=True, slots=True)
class Heir(Frozen):
    """Inherits two fields and gives one of them another default."""

    y: tuple[int, ...] = (1,)
    z: int = 3


@felice.dataclass.dataclass(frozen=True, slots=False)
class Part:
    """One part of `Whole`."""

    x: int = 1


@felice.dataclass.dataclass(frozen=True, slots=False)
class OtherPart:
    """Another part of `Whole`."""

    y: int = 2


@felice.dataclass.dataclass(frozen=True, slots=True)
class Whole(Part, OtherPart):
    """Can be pickled, because it is an attribute of its module."""

    z: int = 3


@both
def test_objects_can_be_printed_over_several_lines(dataclass: Decorator) -> None:
    made = plain(dataclass, frozen=True)(1)
    assert "x=1" in pprint.pformat([made] * 9, width=20)
    assert made.__dataclass_params__.frozen and made.__dataclass_params__.eq


@both
def test_fields_get_arguments_defaults_and_new_values(dataclass: Decorator) -> None:
    made, other = plain(dataclass)(1, note="n"), plain(dataclass)(5, 6, [7])
    assert (made.x, made.y, made.seen, made.note, made.start, made.made) == (1, 2, [], "n", 7, [])
    assert (other.x, other.y, other.seen) == (5, 6, [7])
    assert made.kind == "point"
    made.seen.append(1)
    assert plain(dataclass)(1).seen == []


@both
def test_wrong_arguments_are_refused(dataclass: Decorator) -> None:
    for arguments, named in (((), {}), ((1,), {"start": 3}), ((1,), {"unknown": 3})):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            plain(dataclass)(*arguments, **named)


@both
def test_the_text_names_the_fields_that_may_be_shown(dataclass: Decorator) -> None:
    made = plain(dataclass)(1)
    assert repr(made) == "_Plain(x=1, y=2, seen=[], note='', start=7, made=[])"
    made.seen.append(made)
    assert "seen=[...]" in repr(made)


@both
def test_objects_compare_by_value_and_class(dataclass: Decorator) -> None:
    cls = plain(dataclass)
    assert cls(1) == cls(1, note="not compared")
    assert cls(1) != cls(2)
    assert cls(1) != plain(dataclass)(1)
    assert cls(1).__eq__(1) is NotImplemented
    with pytest.raises(TypeError, match="unhashable"):
        hash(cls(1))
    without = plain(dataclass, eq=False)
    assert without(1) != without(1)
    assert {without(1)}


@both
def test_a_frozen_class_refuses_changes_and_has_a_hash(dataclass: Decorator) -> None:
    body = {"__annotations__": {"x": "int", "y": "int"}, "__module__": __name__}
    cls = dataclass(frozen=True, slots=True)(type("P", (), body))
    point = cls(1, 2)
    assert hash(point) == hash(cls(1, 2)) == hash((1, 2))
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert (point.x, point.y) == (1, 2)


@both
def test_methods_of_the_class_are_kept(dataclass: Decorator) -> None:
    def said(self: object, *_: object) -> str:
        return "said"

    def number(self: object) -> int:
        return 5

    body = {
        "__annotations__": {"x": "int"},
        "__repr__": said,
        "__hash__": number,
        "__eq__": said,
        "__module__": __name__,
    }
    cls = dataclass(frozen=True, slots=True)(type("P", (), body))
    assert (repr(cls(1)), hash(cls(1)), cls(1) == cls(2)) == ("said", 5, "said")


@both
def test_the_method_after_construction_is_called(dataclass: Decorator) -> None:
    def double(self: Any) -> None:
        self.x *= 2

    body = {"__annotations__": {"x": "int"}, "__post_init__": double, "__module__": __name__}
    assert dataclass(slots=True)(type("P", (), body))(4).x == 8


@both
def test_the_functions_of_the_standard_library_work(dataclass: Decorator) -> None:
    cls = plain(dataclass)
    assert dataclasses.is_dataclass(cls)
    assert [field.name for field in dataclasses.fields(cls)] == [
        *("x", "y", "seen", "note", "secret", "start", "made")
    ]
    assert dataclasses.replace(cls(1), y=5) == cls(1, 5)
    assert dataclasses.asdict(cls(1))["y"] == 2
    assert copy.copy(cls(1, 4)) == cls(1, 4)
    assert cls.__match_args__ == ("x", "y", "seen", "note", "secret")
    assert cls.__slots__ == ("x", "y", "seen", "note", "secret", "start", "made")
    assert list(inspect.signature(cls).parameters) == list(cls.__match_args__)
    assert str(inspect.signature(cls)).startswith("(x: 'int', y: 'int' = 2, seen: 'list[int]' = <factory>")


@both
def test_an_heir_has_the_fields_of_its_base_first(dataclass: Decorator) -> None:
    base = plain(dataclass)
    body = {"__annotations__": {"z": "int", "y": "int"}, "z": 9, "y": 8, "__module__": __name__}
    heir = dataclass(slots=True)(type("Heir", (base,), body))
    assert [field.name for field in dataclasses.fields(heir)][:2] == ["x", "y"]
    assert heir.__slots__ == ("z",)
    assert (heir(1).x, heir(1).y, heir(1).z) == (1, 8, 9)
    assert base(1) != heir(1)
    assert base(1).y == 2


@both
def test_an_heir_has_the_fields_of_all_its_parts_the_last_part_first(dataclass: Decorator) -> None:
    part = dataclass(frozen=True, slots=False)
    left = part(type("Left", (), {"__annotations__": {"x": "int"}, "x": 1}))
    right = part(type("Right", (), {"__annotations__": {"y": "int", "z": "int"}, "y": 2, "z": 3}))
    body = {"__annotations__": {"w": "int", "z": "int"}, "w": 4, "z": 5}
    base = dataclass(frozen=True, slots=True)(type("Base", (), {"__annotations__": {"v": "int"}}))
    heir: Any = dataclass(frozen=True, slots=True)(type("Heir", (left, right, base), body))
    assert [field.name for field in dataclasses.fields(heir)] == ["v", "y", "z", "x", "w"]
    made = dataclasses.replace(heir(v=0), x=9)
    assert [getattr(made, name) for name in "vyzxw"] == [0, 2, 5, 9, 4]
    assert made != heir(v=0) and made == heir(v=0, x=9)


def test_an_heir_of_parts_has_a_slot_for_every_field() -> None:
    assert not hasattr(Whole(), "__dict__") and Whole.__slots__ == ("z", "x", "y")
    assert copy.copy(Whole(x=2)) == pickle.loads(pickle.dumps(Whole(x=2))) == Whole(x=2)


def test_a_class_that_is_not_decorated_inherits_the_methods() -> None:
    class Named(Frozen):
        def __init__(self, x: int) -> None:
            super().__init__(x, (x,))

    assert Named(3).y == (3,)
    assert repr(Named(3)).endswith("Named(x=3, y=(3,))")


def test_a_frozen_object_can_be_pickled() -> None:
    for made in (Frozen(1, (2,)), Heir(1)):
        assert pickle.loads(pickle.dumps(made)) == made
        assert copy.deepcopy(made) == made


def test_a_class_has_slots_and_keeps_its_names() -> None:
    assert not hasattr(Heir(1), "__dict__")
    assert (Heir.__name__, Heir.__qualname__, Heir.__module__) == ("Heir", "Heir", __name__)
    assert Heir.__init__.__qualname__ == "Heir.__init__"


def test_a_generic_class_keeps_its_parameters() -> None:
    @felice.dataclass.dataclass(frozen=True, slots=True)
    class Box(Generic[T]):
        value: T

    assert Box[int](3) == Box(3)
    assert Box.__qualname__.endswith(".<locals>.Box")


def test_importing_compiles_no_method_and_use_compiles_one() -> None:
    @felice.dataclass.dataclass(frozen=True, slots=True)
    class Point:
        x: int

    def waiting() -> set[str]:
        return {name for name, found in vars(Point).items() if isinstance(found, felice.dataclass.OnFirstUse)}

    data = {"__dataclass_fields__", "__dataclass_params__"}
    every = {"__init__", "__eq__", "__hash__", "__match_args__"} | data
    assert waiting() == every
    point = Point(1)
    assert waiting() == every - {"__init__", "__dataclass_fields__"}
    assert point == Point(1)
    assert waiting() == {"__hash__", "__match_args__", "__dataclass_params__"}


def test_the_module_needs_only_the_standard_library() -> None:
    code = "import sys, felice.dataclass; print(*(name for name in sys.modules if name.startswith('felice')))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["felice", "felice.dataclass"]
