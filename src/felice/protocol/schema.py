"""Declares messages as classes whose attributes define their encoding.

    @request(api_key=26, versions="0-5", flexible="3+")
    class EndTxnRequest:
        transactional_id: str = string()
        producer_id: int = int64()

Keeps true:  a declared class is a plain mutable record: it has slots, every field has a default, the constructor takes
             keywords only, and objects compare by value. `schema_of(cls)` has the fields and their versions as data.
             One class serves every version; a field that a version lacks keeps its default.
How:         the decorator rebuilds the class with slots. The first construction compiles `__init__`, so that the
             declaration of about two hundred classes takes only milliseconds at import.
Leaves:      encoding and decoding to `decoder`, `encoder` and `codec`.

Three conventions differ from Kafka's generated classes. The versions of a nested struct's fields apply within the
versions of the field that contains the struct. A missing tagged struct is None, where Java has an object of defaults,
unless the declaration says otherwise.
The default of `records` is None.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast, dataclass_transform

from felice.dataclass import dataclass
from felice.protocol.primitives import ZERO_UUID

T = TypeVar("T")

_UNBOUNDED = 32767


FIRST_OWN_TAG = 10_000
"""The first tag of Felice's own tagged fields. Kafka numbers its tags from 0, and skips unknown tags."""


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when `min > max`."""

    min: int
    max: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read `"3"`, `"3-5"`, `"3+"` or `"none"`."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), _UNBOUNDED)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.min <= version <= self.max

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.min, self.max + 1))

    def __and__(self, other: Versions) -> Versions:
        both = Versions(max(self.min, other.min), min(self.max, other.max))
        return both if both.min <= both.max else NO_VERSIONS

    def __str__(self) -> str:
        if self.min > self.max:
            return "none"
        return f"{self.min}+" if self.max == _UNBOUNDED else f"{self.min}-{self.max}"


NO_VERSIONS = Versions(0, -1)

FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}


@dataclass(frozen=True, slots=True)
class FieldType:
    """`kind` is a primitive's name, `"struct"` or `"array"`.

    `may_be_encoded` says of a struct in an array that its bytes (`primitives.Encoded`) may stand in its place.
    """

    kind: str
    struct: type | None = None
    element: FieldType | None = None
    may_be_encoded: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message."""

    name: str
    type: FieldType
    versions: Versions
    nullable: Versions
    tag: int | None
    default: object
    ignorable: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """The arguments of the decorator, and the fields in the order of their encoding."""

    name: str
    kind: str
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]
    api_key: int = -1


def schema_of(cls: type) -> Schema:
    """Return the schema of a message class or struct. Raises `TypeError` for any other class."""
    schema = getattr(cls, "__schema__", None)
    if not isinstance(schema, Schema):
        raise TypeError(f"{cls.__name__} is not a declared message")
    return schema


@dataclass(frozen=True, slots=True)
class _Spec:
    type: FieldType
    versions: str
    nullable: str
    tag: int | None
    default: object
    ignorable: bool

    def named(self, name: str) -> Field:
        versions, nullable = Versions.parse(self.versions), Versions.parse(self.nullable)
        return Field(name, self.type, versions, nullable, self.tag, self.default, self.ignorable)


class _Empty:
    """Marks a default that each object gets as a new value: an empty list or a struct."""

    def __repr__(self) -> str:
        return "EMPTY"


EMPTY = _Empty()


def _number(kind: str) -> Callable[..., int]:
    def declare(
        *, versions: str = "0+", default: int = 0, tag: int | None = None, ignorable: bool = False
    ) -> int:
        return cast(int, _Spec(FieldType(kind), versions, "none", tag, default, ignorable))

    declare.__name__ = kind
    return declare


int8 = _number("int8")
int16 = _number("int16")
uint16 = _number("uint16")
int32 = _number("int32")
uint32 = _number("uint32")
int64 = _number("int64")


def float64(
    *, versions: str = "0+", default: float = 0.0, tag: int | None = None, ignorable: bool = False
) -> float:
    """Declare a double."""
    return cast(float, _Spec(FieldType("float64"), versions, "none", tag, default, ignorable))


def boolean(
    *, versions: str = "0+", default: bool = False, tag: int | None = None, ignorable: bool = False
) -> bool:
    """Declare a bool."""
    return cast(bool, _Spec(FieldType("bool"), versions, "none", tag, default, ignorable))


def string(
    *,
    versions: str = "0+",
    nullable: str = "none",
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> str:
    """Declare a UTF-8 string."""
    return cast(str, _Spec(FieldType("string"), versions, nullable, tag, default, ignorable))


def binary(
    *,
    versions: str = "0+",
    nullable: str = "none",
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> bytes:
    """Declare a `bytes` field: copied out of the frame when decoded."""
    return cast(bytes, _Spec(FieldType("bytes"), versions, nullable, tag, default, ignorable))


def records(*, versions: str = "0+", nullable: str = "0+") -> Any:
    """Declare record batches: decoded as a view of the frame; encoded from bytes or a slice of a file."""
    return _Spec(FieldType("records"), versions, nullable, None, None, False)


def uid(*, versions: str = "0+", tag: int | None = None, ignorable: bool = False) -> uuid.UUID:
    """Declare a uuid."""
    return cast(uuid.UUID, _Spec(FieldType("uuid"), versions, "none", tag, ZERO_UUID, ignorable))


def nested(
    cls: type[T],
    *,
    versions: str = "0+",
    nullable: str = "none",
    default: _Empty | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> T:
    """Declare a struct; without a `default` it is None if the struct is tagged or nullable.

    A struct that is tagged and nullable needs the default EMPTY if null and an absent tag differ, as in Kafka.
    """
    if tag is None and nullable == "none":
        default = EMPTY
    return cast(T, _Spec(FieldType("struct", cls), versions, nullable, tag, default, ignorable))


def array(
    of: Callable[..., T],
    *,
    versions: str = "0+",
    nullable: str = "none",
    default: list[T] | _Empty | None = EMPTY,
    tag: int | None = None,
    ignorable: bool = False,
    may_be_encoded: bool = False,
) -> list[T]:
    """Declare an array of structs (`array(FetchTopic)`) or of primitives (`array(int32)`).

    With `may_be_encoded` a sender may put the result of `codec.encode_element` in place of a struct.
    """
    kind = FieldType("array", None, _element(of, may_be_encoded))
    return cast(list[T], _Spec(kind, versions, nullable, tag, default, ignorable))


def _element(of: Callable[..., object], may_be_encoded: bool) -> FieldType:
    if isinstance(of, type):
        return FieldType("struct", of, may_be_encoded=may_be_encoded)
    names: dict[Callable[..., object], str] = {boolean: "bool", binary: "bytes", uid: "uuid"}
    return FieldType(names.get(of, of.__name__))


@dataclass_transform(kw_only_default=True)
def request(*, api_key: int, versions: str, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Declare a request."""
    return _declare("request", versions, flexible, api_key)


@dataclass_transform(kw_only_default=True)
def response(*, api_key: int, versions: str, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Declare a response."""
    return _declare("response", versions, flexible, api_key)


@dataclass_transform(kw_only_default=True)
def data(*, versions: str, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Declare bytes that begin with their version, such as a consumer's subscription."""
    return _declare("data", versions, flexible)


@dataclass_transform(kw_only_default=True)
def record_key(*, record_type: int) -> Callable[[type[T]], type[T]]:
    """Declare the key of a coordinator's record, which begins with the type of the record."""
    return _declare("key", "0", "none", record_type)


@dataclass_transform(kw_only_default=True)
def record_value(*, record_type: int, versions: str, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Declare the value of a coordinator's record, which begins with its version."""
    return _declare("value", versions, flexible, record_type)


@dataclass_transform(kw_only_default=True)
def metadata_record(*, api_key: int, versions: str = "0") -> Callable[[type[T]], type[T]]:
    """Declare a record of KRaft's metadata log. All its versions are flexible."""
    return _declare("metadata", versions, "0+", api_key)


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Declare a struct to be nested in messages. It is flexible if the message that contains it is."""
    return _declare("struct", "0+", "none")(cls)


def _declare(kind: str, versions: str, flexible: str, api_key: int = -1) -> Callable[[type[T]], type[T]]:
    def declare(cls: type[T]) -> type[T]:
        body = vars(cls)
        fields = tuple(spec.named(name) for name, spec in body.items() if isinstance(spec, _Spec))
        schema = Schema(
            cls.__name__, kind, Versions.parse(versions), Versions.parse(flexible), fields, api_key
        )
        kept = {
            name: value
            for name, value in body.items()
            if not isinstance(value, _Spec) and name not in ("__dict__", "__weakref__")
        }
        return cast(type[T], type(cls.__name__, (_Message,), {**kept, **_slots(schema)}))

    return declare


def _slots(schema: Schema) -> dict[str, object]:
    return {
        "__slots__": tuple(field.name for field in schema.fields),
        "__schema__": schema,
        "__init__": _init_on_first_use,
    }


class _Message:
    """The methods of every declared class."""

    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


def _init_on_first_use(self: object, **values: object) -> None:
    cls = type(self)
    init = _compile_init(schema_of(cls))
    cls.__init__ = init  # type: ignore[method-assign]
    init(self, **values)


def _compile_init(schema: Schema) -> Callable[..., None]:
    parameters, lines = [], ["    pass"]
    namespace: dict[str, object] = {"EMPTY": EMPTY}
    for field in schema.fields:
        fresh = _fresh(field, namespace)
        namespace[f"default_{field.name}"] = field.default
        parameters.append(f"{field.name}=default_{field.name}")
        value = field.name if fresh is None else f"{fresh} if {field.name} is EMPTY else {field.name}"
        lines.append(f"    self.{field.name} = {value}")
    star = ", *, " if parameters else ""
    exec(f"def __init__(self{star}{', '.join(parameters)}):\n" + "\n".join(lines), namespace)
    return cast(Callable[..., None], namespace["__init__"])


def _fresh(field: Field, namespace: dict[str, object]) -> str | None:
    if field.default is not EMPTY:
        return None
    if field.type.kind == "array":
        return "[]"
    namespace[f"struct_{field.name}"] = field.type.struct
    return f"struct_{field.name}()"
