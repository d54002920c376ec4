"""What a converter is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from felice.pipelines.connect.configuration.definitions import ConfigDefinitions
from felice.pipelines.connect.model.record import Header
from felice.pipelines.connect.model.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class Converter:
    """Converts keys or values. A class with these methods, made with its options' values and `is_key`."""

    definitions: ClassVar[ConfigDefinitions] = ConfigDefinitions()

    def __init__(self, config: Mapping[str, Any], *, is_key: bool) -> None:
        self.config = config
        self.is_key = is_key

    def to_bytes(
        self, topic: str, schema: Schema | None, value: Any, headers: Sequence[Header] = ()
    ) -> bytes | None:
        """The bytes of a value for a topic. Raises `DataError`."""
        raise NotImplementedError

    def to_column(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> pa.Array:
        """The bytes of many values of one schema, without headers. Extend it where columns are faster than values.

        Raises any error for a value that has no bytes.
        """
        import pyarrow as pa

        return pa.array([self.to_bytes(topic, schema, value) for value in values], pa.binary())

    def from_bytes(
        self, topic: str, data: bytes | None, headers: Sequence[Header] = ()
    ) -> tuple[Schema | None, Any]:
        """The schema and the value of bytes of a topic. Raises `DataError`."""
        raise NotImplementedError

    def from_column(
        self, topic: str, data: Sequence[bytes | None]
    ) -> tuple[Sequence[Schema | None], Sequence[Any]]:
        """The schemas and the values of many, without headers. Extend it where that is faster. Raises any error."""
        read = [self.from_bytes(topic, one) for one in data]
        return [schema for schema, _ in read], [value for _, value in read]
