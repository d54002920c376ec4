"""Subjects of formats: the name under which a registry keeps the schema, or the strategy that chooses it.

Keeps true:  formats that differ only in their topic are equal. An id belongs to a schema and not to a subject, so their
             bytes are the same.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

from felice.client.serialization import MessageField, SerializationContext
from felice.dataclass import dataclass
from felice.pipelines.errors import OutsideError

RECORD = "RECORD"
_STRATEGIES = (RECORD, "TOPIC", "TOPIC_RECORD")
"""As the property `subject.name.strategy.type` has them."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Where a format's schema is registered: under a name, or where a strategy says."""

    name: str | None
    strategy: str
    place: tuple[str, str] | None = field(default=None, compare=False)
    """The topic, and "key" or "value". Formats of two topics have the same bytes: the id belongs to the schema."""

    def at(self, topic: str, part: str) -> Subject:
        """The subject of a topic's keys or values."""
        return replace(self, place=(topic, part))

    def conf(self) -> dict[str, Any]:
        """The properties of a serializer."""
        if self.name is None:
            return {"subject.name.strategy.type": self.strategy}
        return {"subject.name.strategy": lambda context, record_name: self.name}

    def context(self) -> SerializationContext | None:
        """What serializers need to know of the place. Raises `OutsideError` if a strategy needs a topic."""
        if self.place is None:
            if self.name is None and self.strategy != RECORD:
                raise OutsideError(
                    f"the strategy {self.strategy} needs a topic, and these values are written to none, "
                    "but to a store or a repartition: give their format a subject"
                )
            return None
        topic, part = self.place
        return SerializationContext(topic, MessageField(part))


def subject_of(given: str | None, strategy: str) -> Subject:
    """The subject of a name or of a strategy. Raises ValueError or TypeError for one that is not right."""
    if given is not None and (not isinstance(given, str) or not given):
        raise TypeError(f"subject must be the name of a subject, not {given!r}")
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(_STRATEGIES)}, not {strategy!r}")
    if given is not None and strategy != RECORD:
        raise ValueError(f"give a subject or the strategy {strategy}, not both")
    return Subject(given, strategy)
