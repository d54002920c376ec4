"""What ASSERT TOPIC and ASSERT SCHEMA compare. The functions return why an assertion fails, or None if it holds."""

from __future__ import annotations

from felice.pipelines.sql.rows.registry import Registry
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import AssertExists

_COUNTS = ("PARTITIONS", "REPLICAS")
"""The properties of a topic that are compared."""


def topic_fault(given: AssertExists, counts: tuple[int, int] | None) -> str | None:
    """Why ASSERT TOPIC fails. `counts` are the topic's numbers of partitions and replicas; None if the topic does not
    exist. Raises `SqlError` for a property that cannot be compared.
    """
    for written, literal in given.properties:
        if written.upper() not in _COUNTS:
            raise SqlError(f"Cannot assert unknown topic property: {written.upper()}.", literal.position)
    if (counts is not None) == given.is_negated:
        return f"Topic {given.name} {'exists' if given.is_negated else 'does not exist'}."
    if counts is None:
        return None
    actual = dict(zip(_COUNTS, counts, strict=True))
    for written, literal in given.properties:
        found = actual[written.upper()]
        if str(literal.value) != str(found):
            return (
                f"Mismatched configuration for topic {given.name}: For config {written.lower()}, expected "
                f"{literal.value} got {found}"
            )
    return None


def schema_fault(given: AssertExists, registry: Registry) -> str | None:
    """Why ASSERT SCHEMA fails. With a subject and an id, the subject must have a version with this id."""
    if given.schema_id is None:
        exists = registry.latest(str(given.name)) is not None
    else:
        subjects = registry.subjects_of(given.schema_id)
        exists = bool(subjects) if given.name is None else given.name in subjects
    if exists != given.is_negated:
        return None
    names = (("subject name", given.name), ("id", given.schema_id))
    told = " ".join(f"{what} {value}" for what, value in names if value is not None)
    return f"Schema with {told} {'exists' if exists else 'does not exist'}"
