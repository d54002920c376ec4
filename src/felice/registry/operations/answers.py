"""The JSON of answers about schemas, in Confluent's order of members."""

from __future__ import annotations

from felice.registry.rules import Json
from felice.registry.state import Version


def schema_answer(version: Version, text: str | None = None) -> dict[str, Json]:
    """A version of a subject. `text` replaces the schema's text, for another format of it."""
    made: dict[str, Json] = {
        "subject": version.subject,
        "version": version.number,
        "id": version.id,
        "guid": version.content.guid(),
        **version.content.members(),
    }
    if text is not None:
        made["schema"] = text
    return _with_record(made, version)


def content_answer(
    version: Version, text: str | None = None, *, with_subject: bool = True
) -> dict[str, Json]:
    """The schema of an id or a guid, with a version that has it."""
    made: dict[str, Json] = {**version.content.members(), "guid": version.content.guid()}
    if text is not None:
        made["schema"] = text
    if with_subject:
        made |= {"subject": version.subject, "version": version.number}
    return _with_record(made, version)


def _with_record(made: dict[str, Json], version: Version) -> dict[str, Json]:
    made["ts"] = version.timestamp_ms
    if version.deleted:
        made["deleted"] = True
    return made
