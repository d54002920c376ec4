"""Every declared message in every version, and generated values for them."""

import random
import string as letters
import uuid
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from felice.protocol.api import API
from felice.protocol.messages import (
    cluster_metadata,
    consumer_group_records,
    consumer_protocol,
    offsets_topic,
    share_group_records,
    share_state_topic,
    streams_group_records,
    transaction_log,
)
from felice.protocol.schema import Field, FieldType, schema_of

DATA_KINDS = ("data", "key", "value", "metadata")
DATA_MODULES = (
    cluster_metadata,
    consumer_protocol,
    offsets_topic,
    consumer_group_records,
    share_group_records,
    streams_group_records,
    share_state_topic,
    transaction_log,
)
DATA_CLASSES: list[type[Any]] = [
    cls
    for module in DATA_MODULES
    for cls in vars(module).values()
    if hasattr(cls, "__schema__") and schema_of(cls).kind in DATA_KINDS
]
API_CLASSES: list[type[Any]] = [cls for api in API.by_key.values() for cls in (api.request, api.response)]
CLASSES = API_CLASSES + DATA_CLASSES
CLASSES_AND_VERSIONS = [(cls, version) for cls in CLASSES for version in schema_of(cls).versions]

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


WIDE_LISTS = 2
"""How deep lists have several elements: those of lists in lists would make messages of many kilobytes."""


def name_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


def messages(cls: type[Any], version: int, depth: int = 0) -> st.SearchStrategy[Any]:
    """Any message that `version` can carry; fields that it cannot carry keep their defaults."""
    fields = [field for field in schema_of(cls).fields if version in field.versions]
    return st.builds(cls, **{field.name: _values(field, version, depth) for field in fields})


def _values(field: Field, version: int, depth: int) -> st.SearchStrategy[Any]:
    values = _of_type(field.type, version, depth)
    if field.tag is not None and field.type.struct is not None and field.default is None:
        # A tagged struct with all defaults is not encoded, and is decoded as None.
        blank = field.type.struct()
        return st.none() | values.filter(lambda value: value != blank)
    return st.none() | values if version in field.nullable else values


def _of_type(kind: FieldType, version: int, depth: int) -> st.SearchStrategy[Any]:
    if kind.element is not None:
        most = 3 if depth < WIDE_LISTS else 1
        return st.lists(_of_type(kind.element, version, depth + 1), max_size=most)
    if kind.struct is not None:
        return messages(kind.struct, version, depth)
    if kind.kind in RANGES:
        low, high = RANGES[kind.kind]
        return st.integers(low, high)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "string": st.text(max_size=8) | st.just("x" * 200),
        "bytes": st.binary(max_size=8) | st.just(b"y" * 2000),
        "records": st.binary(max_size=8) | st.just(b"z" * 2000),
        "uuid": st.uuids(),
    }
    return simple[kind.kind]


def sample(cls: type[Any], version: int, seed: int = 0, width: int = 2) -> Any:
    """A message with every field of `version` filled, always the same one."""
    return _Sampler(random.Random(f"{cls.__name__} {version} {seed}"), version, width).message(cls)


class _Sampler:
    def __init__(self, source: random.Random, version: int, width: int) -> None:
        self.source = source
        self.version = version
        self.width = width

    def message(self, cls: type[Any], depth: int = 0) -> Any:
        fields = [field for field in schema_of(cls).fields if self.version in field.versions]
        return cls(**{field.name: self.value(field.type, depth) for field in fields})

    def value(self, kind: FieldType, depth: int) -> Any:
        if kind.element is not None:
            width = self.width if depth < WIDE_LISTS else 1
            return [self.value(kind.element, depth + 1) for _ in range(width)]
        if kind.struct is not None:
            return self.message(kind.struct, depth)
        if kind.kind in RANGES:
            return self.source.randint(1, RANGES[kind.kind][1])
        return self.others()[kind.kind]()

    def others(self) -> dict[str, Callable[[], Any]]:
        return {
            "bool": lambda: True,
            "float64": self.source.random,
            "string": lambda: "".join(self.source.choices(letters.ascii_letters + "éß漢", k=9)),
            "bytes": lambda: self.source.randbytes(12),
            "records": lambda: self.source.randbytes(30),
            "uuid": lambda: uuid.UUID(bytes=self.source.randbytes(16)),
        }
