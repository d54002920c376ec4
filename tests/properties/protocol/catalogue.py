"""Every declared message in every version, and generated values for them."""

import random
import string as letters
import uuid
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from felice.protocol.api import API
from felice.protocol.messages import consumer_protocol, offsets_topic, transaction_log
from felice.protocol.schema import Field, FieldType, schema_of

DATA_CLASSES: list[type[Any]] = [
    consumer_protocol.ConsumerProtocolSubscription,
    consumer_protocol.ConsumerProtocolAssignment,
    offsets_topic.LegacyOffsetCommitKey,
    offsets_topic.LegacyOffsetCommitValue,
    offsets_topic.OffsetCommitKey,
    offsets_topic.OffsetCommitValue,
    offsets_topic.GroupMetadataKey,
    offsets_topic.GroupMetadataValue,
    transaction_log.TransactionLogKey,
    transaction_log.TransactionLogValue,
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


def name_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


def messages(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Any message that `version` can carry; fields that it cannot carry keep their defaults."""
    fields = [field for field in schema_of(cls).fields if version in field.versions]
    return st.builds(cls, **{field.name: _values(field, version) for field in fields})


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _of_type(field.type, version)
    if field.tag is not None and field.type.struct is not None:
        # A tagged struct with all defaults is not encoded, and is decoded as None.
        blank = field.type.struct()
        return st.none() | values.filter(lambda value: value != blank)
    return st.none() | values if version in field.nullable else values


def _of_type(kind: FieldType, version: int) -> st.SearchStrategy[Any]:
    if kind.element is not None:
        return st.lists(_of_type(kind.element, version), max_size=3)
    if kind.struct is not None:
        return messages(kind.struct, version)
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

    def message(self, cls: type[Any]) -> Any:
        fields = [field for field in schema_of(cls).fields if self.version in field.versions]
        return cls(**{field.name: self.value(field.type) for field in fields})

    def value(self, kind: FieldType) -> Any:
        if kind.element is not None:
            return [self.value(kind.element) for _ in range(self.width)]
        if kind.struct is not None:
            return self.message(kind.struct)
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
