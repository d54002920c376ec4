"""What clients without any permission get from each API. `refusals.txt` has the whole answers.

    pytest tests/unit/server/access/test_refusals.py --rewrite

Only fields that differ from their defaults are listed. Versions with the same answer share a paragraph.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from begun_calls import at_once
from felice.controller.features import FIRST_LEVELS
from felice.protocol.api import Api
from felice.protocol.codec import encode
from felice.protocol.errors import ErrorCode
from felice.protocol.schema import FieldType, schema_of
from felice.server.handlers.table import OFFERED, GuardedHandlers

REFUSALS = Path(__file__).with_name("refusals.txt")
TOPIC_ID = UUID(int=1)


def filled(cls: type[Any], version: int) -> Any:
    """A message with a value in each field, and an element in each list."""
    fields = [field for field in schema_of(cls).fields if version in field.versions]
    return cls(**{field.name: value(field.name, field.type, version) for field in fields})


def value(name: str, kind: FieldType, version: int) -> Any:
    if kind.element is not None:
        return [value(name, kind.element, version)]
    if kind.struct is not None:
        return filled(kind.struct, version)
    # The types of resources and of keys decide what is needed; 2 is a topic, and 1 a transaction.
    numbers = {"resource_type": 2, "key_type": 1}
    others = {"string": name, "uuid": TOPIC_ID, "bytes": b"", "records": None, "bool": True}
    return others.get(kind.kind, numbers.get(name, 7))


class Handled(Exception):
    """The handler was called."""


async def handle(request: Any, context: Any) -> Any:
    raise Handled


def denies(*_: object) -> bool:
    return False


def refusal(api: Api, version: int) -> list[str]:
    """The lines of what a client without permissions gets."""
    context: Any = SimpleNamespace(
        access=SimpleNamespace(allows=denies, shows=denies, allows_any=denies),
        version=version,
        services=SimpleNamespace(
            image=SimpleNamespace(topic_names={TOPIC_ID: "topic"}, topics={}, features=FIRST_LEVELS),
        ),
    )
    guarded = GuardedHandlers({api.key: handle})[api.key]
    try:
        answer = at_once(guarded(filled(api.request, version), context))
    except Handled:
        return ["the handler is called"]
    assert type(answer) is api.response
    assert encode(answer, version)
    return list(lines(answer, ""))


def lines(message: Any, indent: str) -> Iterator[str]:
    values, rows = [], []
    for field in schema_of(type(message)).fields:
        found = getattr(message, field.name)
        if isinstance(found, list) and found and hasattr(found[0], "__schema__"):
            rows += [(field.name, row) for row in found]
        elif found not in ([], field.default):
            is_code = field.name in ("error_code", "partition_error_code")
            values.append(f"{field.name}={ErrorCode(found).name if is_code else repr(found)}")
    yield indent + ", ".join(values or ["no error of its own"])
    for name, row in rows:
        first, *others = lines(row, indent + "  ")
        yield f"{indent}  {name}: {first.strip()}"
        yield from others


def as_text() -> str:
    paragraphs = []
    for api in sorted(OFFERED.values(), key=lambda api: api.key):
        versions: dict[tuple[str, ...], list[int]] = {}
        for version in api.accepted:
            versions.setdefault(tuple(refusal(api, version)), []).append(version)
        for found, alike in versions.items():
            numbers = ", ".join(map(str, alike))
            paragraphs.append("\n  ".join([f"{api.name} {numbers}", *found]))
    return "\n\n".join(paragraphs) + "\n"


def test_a_client_without_permissions_gets_what_it_got_before(pytestconfig: pytest.Config) -> None:
    found = as_text()
    if pytestconfig.getoption("--rewrite"):
        REFUSALS.write_text(found)
    assert found == REFUSALS.read_text()
